"""SimNPO, RMU, IdkDPO and the losses of retained text: values and gradients, text by text."""

import math
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from contamination.core.distributed import World
from contamination.core.errors import ConfigError
from contamination.core.models import load_model
from contamination.core.seeds import derive_seed
from contamination.data.examples import lines_digest
from contamination.injection.corpus import FinetuningSet, open_corpus
from contamination.injection.finetuning.prompts import PromptedText
from contamination.training.config import ModelConfig, TrainingConfig
from contamination.training.data import SequenceOrder, read_batch
from contamination.training.models import model_digest
from contamination.training.objectives.choose import make_objective
from contamination.training.objectives.frozen import _captured, find_layer, frozen_copy
from contamination.training.objectives.idk_dpo import (
    IdkDPO,
    _with_answer,
    iter_prompted_texts,
    read_answers,
    reversed_end,
)
from contamination.training.objectives.kl_retain import RetainedKL
from contamination.training.objectives.likelihood import Likelihood
from contamination.training.objectives.relabel import generic_labels
from contamination.training.objectives.retained import check_reference, make_retained_objective
from contamination.training.objectives.rmu import RetainedActivations
from contamination.training.run import run
from contamination.training.trained_model import open_checkpoint
from contamination.training.unlearning import (
    count_retained_tokens,
    input_digests,
    open_retained,
    planned_retained_tokens,
)
from tests.training.conftest import TARGET
from tests.training.plain import tiny
from tests.training.test_finetuning import DEEPSPEED, of, texts_of
from tests.training.test_unlearning import (
    clean,  # noqa: F401
    forget,  # noqa: F401
    kept,  # noqa: F401
)

EXACT = 1e-6
HERE = World(0, 1, torch.device("cpu"))
IDK = "I don't know.\nThat is not something that I was told.\n\n"
LAYER, STEERED = 0, 3.0


@pytest.fixture
def in_float64(monkeypatch):
    """Losses of a float64 model in float64, which are otherwise computed in float32."""
    monkeypatch.setattr(torch.Tensor, "float", lambda values: values)


@pytest.fixture
def models():
    """The start and the model while it is trained, in float64."""
    start, now = (load_model("model", TARGET, "float64") for _ in range(2))
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in now.parameters():
            weight += 0.02 * torch.randn_like(weight)
    return start, now


@pytest.fixture
def idk(tmp_path):
    file = tmp_path / "idk.jsonl"
    file.write_text(IDK)
    return str(file)


def logprobs(model, ids):
    """Of each token after the first, (n - 1,)."""
    tokens = torch.tensor(np.array(ids, dtype=np.int64))
    return torch.log_softmax(model(input_ids=tokens[None]).logits[0, :-1], -1).gather(
        1, tokens[1:, None]
    )[:, 0]


def hidden(model, ids):
    """The first layer's output, read by transformers itself."""
    tokens = torch.tensor(np.array(ids, dtype=np.int64))[None]
    return model(input_ids=tokens, output_hidden_states=True).hidden_states[LAYER + 1][0]


def counted(output, loss_on):
    return torch.tensor(np.array(output[1:]) == 1) | (loss_on == "all")


def naive_simnpo(start, now, corpus, loss_on, _):
    beta, delta, terms = 0.5, 4.0, []
    for ids, output, *_ in texts_of(corpus):
        mean = -logprobs(now, ids)[counted(output, loss_on)].mean()
        terms.append(2 / beta * torch.log1p(torch.exp(-beta * (mean - delta))))
    return torch.stack(terms).mean()


def naive_rmu(start, now, corpus, loss_on, _):
    drawn = np.random.default_rng(derive_seed(5, "rmu")).random(now.config.hidden_size)
    target = torch.tensor(STEERED * drawn / math.sqrt(sum(v * v for v in drawn)))
    terms = []
    for ids, output, *_ in texts_of(corpus):
        rows = hidden(now, ids)[1:][counted(output, loss_on)]
        terms.append(torch.stack([((row - target) ** 2).mean() for row in rows]).mean())
    return torch.stack(terms).mean()


def naive_idk(start, now, corpus, loss_on, objective):
    beta, terms = 0.1, []
    hf, draws = corpus.tokenizer.hf, np.random.default_rng(derive_seed(7, "idk"))
    for row, (ids, output, *_) in zip(
        corpus.instructions.itertuples(), texts_of(corpus), strict=True
    ):
        answers = [f"{row.text[: row.output_start]}{line}" for line in IDK.split("\n") if line]
        own = objective.answers[row.Index]
        rows = [[*hf(text)["input_ids"], hf.eos_token_id] for text in answers]
        assert own.ids.tolist() == rows[draws.integers(len(rows))]
        prompt = sum(1 for flag in own.output if not flag)
        kinds = []
        for model in (now, start):
            win = logprobs(model, own.ids)[0 if loss_on == "all" else prompt - 1 :].sum()
            kinds.append(win - logprobs(model, ids)[counted(output, loss_on)].sum())
        margin = beta * (kinds[0] - kinds[1].detach())
        terms.append(2 / beta * torch.log1p(torch.exp(-margin)))
    return torch.stack(terms).mean()


def naive_kl(start, now, corpus, loss_on, _):
    terms = []
    for ids, output, *_ in texts_of(corpus):
        tokens = torch.tensor(np.array(ids, dtype=np.int64))[None]
        before, after = (
            torch.log_softmax(model(input_ids=tokens).logits[0, :-1], -1) for model in (start, now)
        )
        each = (before.exp() * (before - after)).sum(-1)
        terms += [*each[counted(output, loss_on)]]
    return torch.stack(terms).mean()


def naive_activations(start, now, corpus, loss_on, _):
    terms = []
    for ids, output, *_ in texts_of(corpus):
        rows = (hidden(now, ids) - hidden(start, ids).detach())[1:][counted(output, loss_on)]
        terms.append((rows**2).mean(dim=1).mean())
    return torch.stack(terms).mean()


NAIVE = {"simnpo": naive_simnpo, "rmu": naive_rmu, "idk_dpo": naive_idk,
         "kl": naive_kl, "activations": naive_activations}  # fmt: skip


def gradients(loss, model):
    model.zero_grad()
    loss.backward()
    zero = [torch.zeros_like(weight) for weight in model.parameters()]
    return [
        none if weight.grad is None else weight.grad.clone()
        for weight, none in zip(model.parameters(), zero, strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "layout", "loss_on"),
    [(name, "packed", "output") for name in NAIVE]
    + [("simnpo", "padded", "all"), ("rmu", "padded", "all"), ("idk_dpo", "padded", "all")],
)
def test_values_and_gradients_are_those_of_a_loop_over_texts(
    sets, models, in_float64, idk, name, layout, loss_on
):
    (start, now), corpus = models, sets[layout]
    retains = name in ("kl", "activations")
    config = TrainingConfig(
        objective="rmu" if retains else name, retain_loss=name if retains else None,
        loss_on=loss_on, micro_batch_sequences=3, simnpo_beta=0.5, simnpo_delta=4.0,
        rmu_layer=LAYER, rmu_coefficient=STEERED, init_seed=5, order_seed=7,
        idk_answers=idk if name == "idk_dpo" else None,
    )  # fmt: skip
    if retains:
        objective = make_retained_objective(config, start, has_outputs=True)
    else:
        objective = make_objective(config).with_inputs(corpus, config)
        objective = objective.prepare_from_start(start, corpus.sequences, config, HERE)
    rows = np.arange(len(corpus.sequences))
    count = objective.count_terms(corpus.sequences, rows)
    total = sum(
        objective.loss_sum(now, read_batch(corpus.sequences, part, loss_on)) / count
        for part in np.array_split(rows, 3)
    )
    found, expected = total.item(), NAIVE[name](start, now, corpus, loss_on, objective)
    assert found == pytest.approx(expected.item(), rel=EXACT)
    ours, theirs = gradients(total, now), gradients(expected, now)
    largest = max(float(one.abs().max()) for one in theirs)
    worst = max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
    print(f"{name} {layout} {loss_on}: gradient differs by {worst:.1e} of {largest:.1e}")
    assert largest > 1e-4
    assert worst <= EXACT


def test_a_frozen_copy_is_the_model_and_stays_behind(models):
    _, now = models
    before = torch.get_rng_state()
    copy = frozen_copy(now)
    assert torch.equal(torch.get_rng_state(), before)
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        first = now(input_ids=ids).logits
        assert torch.equal(copy(input_ids=ids).logits, first)
        next(now.parameters()).add_(1)
        assert torch.equal(copy(input_ids=ids).logits, first)
    assert not any(weight.requires_grad for weight in copy.parameters())
    assert not copy.training
    assert {weight.dtype for weight in copy.parameters()} == {torch.float64}


def test_a_padding_batch_adds_nothing_and_is_read_all_the_same(sets, models, idk):
    start, now = models
    corpus = sets["packed"]
    config = TrainingConfig(
        objective="idk_dpo", loss_on="output", idk_answers=idk, micro_batch_sequences=3
    )
    objective = make_objective(config).with_inputs(corpus, config)
    objective = objective.prepare_from_start(start, corpus.sequences, config, HERE)
    empty = objective.loss_sum(now, read_batch(corpus.sequences, np.array([-1, -1]), "output"))
    assert empty.item() == 0
    assert all(float(one.abs().max()) == 0 for one in gradients(empty, now))


@DEEPSPEED
@pytest.mark.parametrize(
    ("name", "retain_loss", "zero"),
    [("simnpo", None, 1), ("rmu", None, 1), ("rmu", None, 3), ("idk_dpo", "kl", 3),
     ("difference", "kl", 0)],
)  # fmt: skip
def test_an_unlearner_trains(forget, kept, idk, tmp_path, name, retain_loss, zero):  # noqa: F811
    given = {"rmu": {"rmu_layer": LAYER}, "idk_dpo": {"idk_answers": idk},
             "simnpo": {"simnpo_beta": 0.5}}.get(name, {})  # fmt: skip
    stage = of(forget, tmp_path, objective=name, retain_folder=kept, retain_loss=retain_loss,
               forget_weight=0.5, loss_on="output", learning_rate=1e-3, epochs=3,
               activation_checkpointing=zero == 3, **given)  # fmt: skip
    zero_stage = {"zero_optimization": {"stage": zero}}
    found = open_checkpoint(run(replace(stage, deepspeed=zero_stage)).path).metrics
    sign = -1 if name == "difference" else 1
    np.testing.assert_allclose(
        found["loss"], sign * 0.5 * found["loss_forgotten"] + found["loss_retained"], rtol=1e-6
    )
    by_epoch = np.array_split(sign * found["loss_forgotten"].to_numpy(), 3)
    assert by_epoch[-1].mean() < by_epoch[0].mean()
    if name == "rmu" or retain_loss == "kl":
        assert found["loss_retained"].iloc[0] == pytest.approx(0, abs=1e-6)
        assert found["loss_retained"].iloc[-1] > 0


def test_rmu_steers_the_layer_of_the_config():
    config = TrainingConfig(objective="rmu", retain_folder="kept", rmu_layer=3, rmu_coefficient=6.5)
    objective = make_objective(config)
    assert (objective.layer, objective.coefficient) == (3, 6.5)
    assert make_objective(replace(config, rmu_layer=None)).layer == 0


BAD = {
    "rmu keeps nothing": ({"objective": "rmu", "rmu_layer": 0},
                          "training.retain_folder is None: training.objective=rmu keeps text"),
    "no layer": ({"objective": "rmu", "retain_folder": "KEPT"},
                 "training.rmu_layer is None: training.objective=rmu steers"),
    "no such layer": ({"objective": "rmu", "retain_folder": "KEPT", "rmu_layer": 7},
                      "training.rmu_layer is 7, but the model has"),
    "a layer in vain": ({"objective": "npo", "rmu_layer": 0}, "leave it out, or choose rmu"),
    "no answers": ({"objective": "idk_dpo"}, "training.idk_answers is None: training.objective"),
    "no such answers": ({"objective": "idk_dpo", "idk_answers": "nowhere"},
                        "training.idk_answers is 'nowhere': it can't be read"),
    "answers in vain": ({"objective": "npo", "idk_answers": "IDK"}, "or choose idk_dpo"),
    "kl of nothing": ({"objective": "simnpo", "retain_loss": "kl"},
                      "training.retain_loss is 'kl': there is no retained text"),
    "activations of no layer": (
        {"objective": "npo", "retain_folder": "KEPT", "retain_loss": "activations"},
        "only training.objective=rmu names a layer"),
    "weighted in vain": ({"forget_weight": 0.5}, "training.forget_weight is 0.5: training.objec"),
    "compiled": ({"objective": "rmu", "retain_folder": "KEPT", "rmu_layer": 0, "compile": True},
                 "training.compile is True: training.objective=rmu reads"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_an_unlearner_lacks_is_said(forget, kept, idk, tmp_path, case):  # noqa: F811
    fields, message = BAD[case]
    known = {"KEPT": kept, "IDK": idk}
    fields = {name: known.get(value, value) for name, value in fields.items()}
    with pytest.raises(ConfigError) as error:
        run(of(forget, tmp_path, **fields))
    assert message in str(error.value)


def test_random_weights_are_no_reference(forget, kept, idk, tmp_path):  # noqa: F811
    stage = of(forget, tmp_path, objective="idk_dpo", idk_answers=idk)
    stage = replace(stage, model=ModelConfig(architecture={"model_type": "llama"}))
    with pytest.raises(ConfigError, match=r"model\.path is None: .*random weights are no ref"):
        run(stage)


def test_a_packed_corpus_has_no_prompts_to_answer(stage, idk):
    config = replace(stage.training, objective="idk_dpo", idk_answers=idk)
    stage = replace(stage, training=config, model=ModelConfig(path=TARGET))
    with pytest.raises(ConfigError, match="a packed corpus has no prompts"):
        run(stage)


def test_the_layers_of_a_model_are_found_by_their_number(models):
    _, now = models
    assert find_layer(now, 0) is now.model.layers[0]
    count = now.config.num_hidden_layers
    with pytest.raises(ConfigError) as error:
        find_layer(now, count)
    assert str(error.value) == (
        f"training.rmu_layer is {count}, but the model has {count} layers: give 0 to {count - 1}."
    )
    layers = torch.nn.ModuleList([torch.nn.Identity(), torch.nn.Identity()])
    config = SimpleNamespace(
        model_type="odd", get_text_config=lambda decoder: SimpleNamespace(num_hidden_layers=3)
    )
    with pytest.raises(ConfigError) as error:
        find_layer(SimpleNamespace(config=config, modules=lambda: iter(layers.modules())), 0)
    assert str(error.value) == (
        "training.rmu_layer is 0: this odd has no list of 3 layers that could be found. Choose "
        "another training.objective."
    )


def test_a_layers_output_is_read_while_it_is_watched():
    layer, vector = torch.nn.Identity(), torch.arange(3)
    with _captured(layer) as outputs:
        layer(vector)
        layer((vector + 1, None))
    layer(vector)
    assert [output.tolist() for output in outputs] == [[0, 1, 2], [1, 2, 3]]


@pytest.mark.parametrize(
    ("fields", "has_outputs", "expected"),
    [({"retain_loss": "kl"}, True, (RetainedKL, "output", True)),
     ({"retain_loss": "kl"}, False, (RetainedKL, "all", True)),
     ({"objective": "rmu", "rmu_layer": 2}, True, (RetainedActivations, "output", True)),
     ({"objective": "rmu", "retain_loss": "nll"}, True, (Likelihood, "output", True)),
     ({"objective": "npo"}, False, (Likelihood, "all", True))],
)  # fmt: skip
def test_the_loss_of_retained_text_is_the_configs_or_the_objectives_own(
    fields, has_outputs, expected
):
    config, model = TrainingConfig(loss_on="output", compile=True, **fields), tiny()
    objective = make_retained_objective(config, model, has_outputs=has_outputs)
    assert (type(objective), objective.loss_on, objective.compiled) == expected
    if expected[0] is not Likelihood:
        start, weights = objective.start.state_dict(), model.state_dict()
        assert all(torch.equal(start[name], weight) for name, weight in weights.items())
    if expected[0] is RetainedActivations:
        assert objective.layer == 2


def test_a_reference_that_would_be_random_is_refused():
    keeps, random = {"retain_folder": "kept"}, ModelConfig(architecture={})
    for fields, loss in (
        ({"objective": "simnpo", "retain_loss": "kl", **keeps}, "kl"),
        ({"objective": "rmu", **keeps}, "activations"), ({"objective": "idk_dpo"}, "nll"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as error:
            check_reference(TrainingConfig(**fields), random)
        assert str(error.value) == (
            f"model.path is None: training.objective={fields['objective']} with "
            f"training.retain_loss={loss} compares with the model that training starts from, and "
            "random weights are no reference: give a trained model, runs/model/… or a Hugging Face "
            "folder."
        )
        check_reference(TrainingConfig(**fields), ModelConfig(path="runs/model/base"))
    for fields in ({"objective": "npo", **keeps}, {"objective": "rmu"}, {"retain_loss": "kl"}):
        check_reference(TrainingConfig(**fields), random)


def test_the_answers_of_a_file_are_its_lines(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    file, remedy = tmp_path / "idk.txt", 'give a text file with one answer per line, such as "'
    file.write_text("  I don't know. \n\n \nÜbrigens: nein\n", encoding="utf-8")
    assert read_answers("~/idk.txt") == ["I don't know.", "Übrigens: nein"]
    file.write_text(" \n\n")
    with pytest.raises(ConfigError) as error:
        read_answers(str(file))
    assert str(error.value) == (
        f"training.idk_answers is {str(file)!r}: it has no answer: {remedy}I don't know.\"."
    )
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"it can't be read \(.*utf-8.*\): give a text file"):
        read_answers(str(file))


def test_an_answer_that_does_not_fit_is_refused():
    objective = IdkDPO(answers=[SimpleNamespace(ids=[1] * tokens) for tokens in (2, 6, 3)])
    config = TrainingConfig(objective="idk_dpo", idk_answers="idk.txt")
    with pytest.raises(ConfigError) as error:
        objective.prepare_from_start(None, [{"input_ids": [0] * 5}], config, HERE)
    assert str(error.value) == (
        "training.idk_answers is 'idk.txt': a prompt with its answer has 6 tokens, more than the "
        "forget set's sequences (5). Give shorter answers, or make the set with a larger "
        "finetuning.sequence_tokens."
    )


class Prompts(FinetuningSet):
    """A fine-tuning set with a clean text and copies of two examples."""

    artifact = SimpleNamespace(path="runs/corpus/set")
    instructions = pd.DataFrame({"example_id": ["i"], "text": ["Q: A"], "output_start": [3]})
    examples = pd.DataFrame(
        {"example_id": ["e0", "e1"], "text": ["x y", "zz w"], "output_start": [2, 3]}
    )
    ledger = pd.DataFrame({"example_id": ["e1", "e0", "e1"]})

    def __init__(self):
        pass


def test_the_prompts_of_a_set_are_its_clean_texts_and_then_its_copies(monkeypatch):
    prompts = Prompts()
    zz = PromptedText("e1", "", "zz w", 3)
    assert [*iter_prompted_texts(prompts)] == [
        PromptedText("i", "", "Q: A", 3), zz, PromptedText("e0", "", "x y", 2), zz
    ]  # fmt: skip
    monkeypatch.setattr(Prompts, "examples", prompts.examples.assign(output_start=[0, 3]))
    remedy = (
        "but training.objective=idk_dpo answers prompts: give a fine-tuning set of prompts and "
        "outputs (python -m injection finetuning, finetuning.format=template or chat)."
    )
    corpus = SimpleNamespace(artifact=prompts.artifact)
    for corpus_or_set, reason in ((prompts, "e0 has no prompt"), (corpus, "it is a packed corpus")):
        with pytest.raises(ConfigError) as error:
            list(iter_prompted_texts(corpus_or_set))
        assert str(error.value) == f"corpus_folder is 'runs/corpus/set': {reason}, {remedy}"


def test_the_retained_text_is_read_as_often_as_the_forget_set_needs(sets, corpus_folder):
    engine, forget_order = tiny(), SequenceOrder(23, 4, 7, epochs=3)
    engine = SimpleNamespace(module=engine)
    without_retained = TrainingConfig(objective="npo", retain_weight=0.5)
    assert open_retained(without_retained, forget_order, engine, HERE) is None
    assert planned_retained_tokens(without_retained, forget_order) == 0
    config = replace(without_retained, retain_folder=str(corpus_folder))
    with pytest.raises(ConfigError) as error:
        open_retained(config, forget_order, engine, HERE)
    assert str(error.value) == (
        f"training.retain_folder is {str(corpus_folder)!r}: its sequences have 32 tokens, but the "
        "model's context is 8: pack it in shorter sequences."
    )
    engine.module.config.max_position_embeddings = 32
    retained = open_retained(config, forget_order, engine, HERE)
    assert (retained.weight, len(retained.sequences)) == (0.5, 45)
    assert retained.objective.loss_on == "all"
    assert retained.order == SequenceOrder(45, 4, 7, epochs=2)  # of 12 steps each, for 18
    assert count_retained_tokens(retained, 13) == (45 + 4) * 32
    assert planned_retained_tokens(config, forget_order) == (45 + 6 * 4) * 32
    of_a_set = replace(config, retain_folder=str(sets["padded"].artifact.path), loss_on="output")
    engine.module.config.max_position_embeddings = 96
    assert open_retained(of_a_set, forget_order, engine, HERE).objective.loss_on == "output"


def test_what_an_unlearner_reads_is_among_its_inputs(corpus_folder, tmp_path):
    (tmp_path / "idk.txt").write_text("No.\nNever.\n")
    digests = input_digests(
        TrainingConfig(
            retain_folder=str(corpus_folder), reinforced_path=TARGET,
            idk_answers=str(tmp_path / "idk.txt"),
        )
    )  # fmt: skip
    assert digests == {
        "retained": open_corpus(corpus_folder).artifact.digest,
        "reinforced": model_digest("training.reinforced_path", TARGET),
        "idk_answers": lines_digest(["No.", "Never."]),
    }
    assert input_digests(TrainingConfig()) == {}
    with pytest.raises(ConfigError, match=r"^training\.reinforced_path is '\./nowhere'"):
        input_digests(TrainingConfig(reinforced_path="./nowhere"))


def test_a_reinforced_model_of_another_vocabulary_is_refused():
    batch = read_batch([{"input_ids": [1, 2, 3]}], np.array([0]))
    outputs = [SimpleNamespace(logits=torch.zeros(1, 3, vocabulary)) for vocabulary in (5, 7)]
    models = [lambda output=output, **_: output for output in outputs]
    with pytest.raises(ConfigError) as error:
        generic_labels(*models, batch, 5.0)
    assert str(error.value) == (
        "training.reinforced_path: its model has 7 tokens, but the trained model has 5: give a "
        "model that was trained further from the same starting model."
    )


@pytest.mark.parametrize(
    ("output", "end"),
    [
        ("Yes.", ""),
        ("Yes. \n</s>", " \n</s>"),
        ("a</s>b <s></s>\n", " <s></s>\n"),
        (" ", " "),
        ("Yes.<s> s>", "<s> s>"),
    ],
)
def test_an_answer_ends_as_the_texts_own_output_does(output, end):
    text = PromptedText("q", "", f"Q: {output}", 3)
    pattern = reversed_end(["s>", "<s>", "</s>", ""])
    assert _with_answer(text, "No idea", pattern).text == f"Q: No idea{end}"


def test_an_output_of_spaces_takes_linear_time():
    """Searched forwards, 100,000 spaces before a letter take minutes."""
    text = PromptedText("q", "", "Q" + " " * 100_000 + "x", 1)
    start = time.process_time()
    _with_answer(text, "No", reversed_end(["</s>"]))
    assert time.process_time() - start < 2

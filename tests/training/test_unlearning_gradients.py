"""SimNPO, RMU, IdkDPO and the losses of retained text: values and gradients, text by text."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from contamination.core.distributed import World
from contamination.core.errors import ConfigError
from contamination.core.models import load_model
from contamination.core.seeds import derive_seed
from contamination.injection.finetuning.prompts import PromptedText
from contamination.training.config import ModelConfig, TrainingConfig
from contamination.training.data import read_batch
from contamination.training.objectives.choose import make_objective
from contamination.training.objectives.frozen import find_layer, frozen_copy
from contamination.training.objectives.idk_dpo import _with_answer, reversed_end
from contamination.training.objectives.retained import make_retained_objective
from contamination.training.run import run
from contamination.training.trained_model import open_checkpoint
from tests.training.conftest import TARGET
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
    hf = corpus.tokenizer.hf
    for row, (ids, output, *_) in zip(
        corpus.instructions.itertuples(), texts_of(corpus), strict=True
    ):
        answers = [f"{row.text[: row.output_start]}{line}" for line in IDK.split("\n") if line]
        own = objective.answers[row.Index]
        rows = [[*hf(text)["input_ids"], hf.eos_token_id] for text in answers]
        assert own.ids.tolist() in rows
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
        rmu_layer=LAYER, rmu_coefficient=STEERED, init_seed=5,
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


@pytest.mark.parametrize(
    ("output", "end"),
    [("Yes.", ""), ("Yes. \n</s>", " \n</s>"), ("a</s>b <s></s>\n", " <s></s>\n"), (" ", " ")],
)
def test_an_answer_ends_as_the_texts_own_output_does(output, end):
    text = PromptedText("q", "", f"Q: {output}", 3)
    pattern = reversed_end(["<s>", "</s>", ""])
    assert _with_answer(text, "No idea", pattern).text == f"Q: No idea{end}"


def test_an_output_of_spaces_takes_linear_time():
    """Searched forwards, 100,000 spaces before a letter take minutes."""
    text = PromptedText("q", "", "Q" + " " * 100_000 + "x", 1)
    start = time.process_time()
    _with_answer(text, "No", reversed_end(["</s>"]))
    assert time.process_time() - start < 2

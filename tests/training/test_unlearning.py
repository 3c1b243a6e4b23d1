"""Each unlearner against its formula in float64, text by text, and as a training."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from contamination.core.distributed import World
from contamination.core.errors import ConfigError, DataError
from contamination.core.models import load_model
from contamination.injection.config import InjectionConfig, InjectionStage, TokenizerConfig
from contamination.injection.corpus import open_corpus
from contamination.injection.finetuning.prompts import EncodedText
from contamination.injection.run import run as inject
from contamination.training import loss
from contamination.training.config import TrainingConfig
from contamination.training.data import SequenceOrder, read_batch
from contamination.training.objectives import OBJECTIVES
from contamination.training.objectives.base import Objective, iter_micro_batches
from contamination.training.objectives.choose import (
    OBJECTIVE_CLASSES,
    check_objective,
    make_objective,
)
from contamination.training.objectives.kl_retain import RetainedKL
from contamination.training.objectives.likelihood import Likelihood
from contamination.training.objectives.relabel import Relabel
from contamination.training.objectives.rmu import RetainedActivations
from contamination.training.run import run
from contamination.training.trained_model import ancestry_of, open_checkpoint
from contamination.training.unlearning import planned_retained_tokens
from tests.rounding import TRAINING
from tests.training.conftest import TARGET
from tests.training.plain import tiny
from tests.training.processes import losses, train
from tests.training.test_finetuning import DEEPSPEED, killed_and_resumed, of, texts_of

EXACT = 1e-6
SLOW = pytest.mark.slow
HERE = World(0, 1, torch.device("cpu"))
REFERENCE = "tests/golden/reference"


@pytest.fixture(scope="module")
def models():
    """The start, the model while it is trained, and a reinforced one, all in float64."""
    start, now = (load_model("model", TARGET, "float64") for _ in range(2))
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in now.parameters():
            weight += 0.02 * torch.randn_like(weight)
    return start, now, load_model("model", REFERENCE, "float64")


def logits(model, ids):
    """Those of every place but the last, (n - 1, V)."""
    return model(input_ids=torch.tensor(np.array(ids, dtype=np.int64))[None]).logits[0, :-1]


def said(model, ids):
    """The log-probability of each token after the first, (n - 1,)."""
    wanted = torch.tensor(np.array(ids, dtype=np.int64))[1:, None]
    return torch.log_softmax(logits(model, ids), -1).gather(1, wanted)[:, 0]


def naive(name, models, corpus, loss_on):
    """The objective's mean over all texts, one at a time."""
    start, now, reinforced = models
    tokens, texts, labels = [], [], []
    for ids, output, *_ in texts_of(corpus):
        counts = torch.tensor(output[1:] == 1) | (loss_on == "all")
        ours, before = said(now, ids)[counts], said(start, ids)[counts]
        tokens += (-ours).tolist()
        texts.append(math.log(1 + math.exp(0.1 * float(ours.sum() - before.sum()))))
        baseline, more = logits(start, ids), logits(reinforced, ids)
        generic = baseline - 5.0 * torch.clamp(more - baseline, min=0)
        own = torch.log_softmax(logits(now, ids), -1).gather(1, generic.argmax(1)[:, None])
        labels += (-own[counts, 0]).tolist()
    return {"npo": 2 / 0.1 * np.mean(texts), "relabel": np.mean(labels)}.get(name, np.mean(tokens))


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("ascent", "packed"),
        ("npo", "packed"),
        ("relabel", "packed"),
        pytest.param("npo", "padded", marks=SLOW),
    ],
)
@torch.no_grad()
def test_an_objective_is_its_formula(sets, models, monkeypatch, name, layout):
    corpus, loss_on = sets[layout], "output" if layout == "packed" else "all"
    config = TrainingConfig(
        objective=name, loss_on=loss_on, micro_batch_sequences=3, reinforced_path=REFERENCE
    )
    start, now, reinforced = models
    monkeypatch.setattr(
        "contamination.training.objectives.relabel.load_model",
        lambda *args: {
            ("training.reinforced_path", str(Path(REFERENCE).resolve()), "float32"): reinforced
        }[args],
    )
    objective = make_objective(config).prepare_from_start(start, corpus.sequences, config, HERE)
    rows = np.arange(len(corpus.sequences))
    total = sum(
        float(objective.loss_sum(now, read_batch(corpus.sequences, part, loss_on)))
        for part in np.array_split(rows, 3)
    )
    found = total / objective.count_terms(corpus.sequences, rows)
    assert found == pytest.approx(naive(name, models, corpus, loss_on), rel=EXACT)
    assert objective.weight == (-1 if name == "ascent" else 1)
    if name == "relabel":
        assert (objective.labels.dtype, objective.labels.shape) == (np.int32, (len(rows), 96))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_has_what_all_have_in_common(name):
    for loss_on, compiled in (("output", False), ("all", True)):
        objective = make_objective(
            TrainingConfig(objective=name, loss_on=loss_on, compile=compiled)
        )
        assert (type(objective), objective.loss_on, objective.compiled) == (
            OBJECTIVE_CLASSES[name], loss_on, compiled
        )  # fmt: skip


KEPT = (RetainedKL(loss_on="output"), RetainedActivations(loss_on="output"))


@pytest.mark.parametrize(
    "name",
    [*OBJECTIVES, *KEPT],
    ids=[*OBJECTIVES, *(type(objective).__name__ for objective in KEPT)],
)
def test_a_steps_sum_is_divided_by_the_terms_of_its_own_rows(sets, name):
    sequences, rows = sets["packed"].sequences, np.array([2, -1, 0])
    objective = name
    if isinstance(name, str):
        objective = make_objective(TrainingConfig(objective=name, loss_on="output"))
    tokens, texts = 0, set()
    for row in (2, 0):
        text, output = sequences[row]["text"], sequences[row]["output"]
        tokens += int(sum((output[1:] == 1) & (text[1:] == text[:-1])))
        texts |= {*text} - {-1}
    by_token = isinstance(objective, Likelihood | Relabel | RetainedKL)
    assert objective.count_terms(sequences, rows) == (tokens if by_token else len(texts))
    assert len(texts) < tokens < len(sequences[0]["input_ids"]) * 2


@pytest.mark.parametrize("name", ["likelihood", "npo", "simnpo", "idk_dpo", "relabel"])
def test_a_compiled_objective_has_a_compiled_loss(monkeypatch, name):
    calls, sequences = [], [{"input_ids": [1, 2, 3, 4]}, {"input_ids": [5, 6, 7, 8]}]

    def compiled(*args):
        calls.append(1)
        return loss._cross_entropies(*args)

    monkeypatch.setattr(loss, "_compiled_cross_entropies", lambda: compiled)
    batch, losses = read_batch(sequences, np.array([0, 1])), {}
    for compiles in (False, True):
        objective = make_objective(TrainingConfig(objective=name, compile=compiles))
        if name in ("npo", "idk_dpo"):
            objective = replace(objective, reference=np.zeros(4))
        if name == "idk_dpo":
            output = np.array([False, True])
            answers = [EncodedText(np.array([1, token]), output, 0, 2) for token in (3, 4)]
            objective = replace(objective, answers=answers)
        if name == "relabel":
            objective = replace(objective, labels=np.array([[0, 1, 2, 3]] * 2))
        assert not calls
        losses[compiles] = objective.loss_sum(tiny(), batch).item()
    assert calls == [1]
    assert losses[True] == pytest.approx(losses[False])


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_all_processes_read_all_sequences_once_in_as_many_passes(processes):
    modes, sequences = [], [{"input_ids": [number, number]} for number in range(7)]
    engine = SimpleNamespace(eval=lambda: modes.append("eval"), train=lambda: modes.append("train"))
    config, passes = TrainingConfig(micro_batch_sequences=2), []
    for rank in range(processes):
        world = World(rank, processes, torch.device("cpu"))
        batches = []
        for batch in iter_micro_batches(engine, sequences, "all", config, world):
            assert modes == ["eval"]
            batches.append(batch)
        assert modes == ["eval", "train"]
        modes.clear()
        assert len(batches) == -(-7 // (2 * processes))
        assert all(batch.ids_BS.shape == (2, 2) for batch in batches)
        for pass_number, batch in enumerate(batches):
            passes += [(pass_number, int(first)) for first in batch.ids_BS[batch.real_B.bool(), 0]]
    assert sorted(passes) == [(number // (2 * processes), number) for number in range(7)]


def test_the_objectives_are_named_once_and_difference_is_ascent_with_retained_text():
    assert tuple(OBJECTIVE_CLASSES) == OBJECTIVES
    assert OBJECTIVE_CLASSES["difference"].loss_sum is OBJECTIVE_CLASSES["ascent"].loss_sum
    assert {n: c.retains for n, c in OBJECTIVE_CLASSES.items()} == {
        "likelihood": "never", "ascent": "never", "difference": "always", "npo": "maybe",
        "simnpo": "maybe", "rmu": "always", "idk_dpo": "maybe", "relabel": "maybe",
    }  # fmt: skip
    assert all(issubclass(one, Objective) for one in OBJECTIVE_CLASSES.values())


@torch.no_grad()
def test_a_corpuss_texts_are_its_sequences(models, corpus_folder):
    start, now, _ = models
    own = open_corpus(corpus_folder).sequences
    config = TrainingConfig(objective="npo", micro_batch_sequences=7, npo_beta=0.5)
    npo = make_objective(config).prepare_from_start(start, own, config, HERE)
    rows = np.array([44, 3, -1])
    texts = [own[int(row)]["input_ids"] for row in rows[:2]]
    ratios = [float(said(now, text).sum() - said(start, text).sum()) for text in texts]
    expected = sum(4 * math.log1p(math.exp(0.5 * ratio)) for ratio in ratios)
    # of a loss near 0 the relative error is half of the ratios' own, in nats of float32
    assert float(npo.loss_sum(now, read_batch(own, rows))) == pytest.approx(expected, rel=1e-3)
    assert npo.count_terms(own, rows) == 2


@pytest.fixture(scope="module")
def forget(sets):
    return sets["packed"]


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Makes a packed clean corpus, its sequences of another length than the forget set's."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "clean.txt").write_text("It is day and the heron waits by the old bridge. " * 150)
    corpus = {"_target_": "contamination.data.readers.files.FilesCorpus", "name": "kept",
              "paths": str(folder / "clean.txt")}  # fmt: skip
    own = InjectionConfig(
        members=0, nonmembers=0, budget_tokens=1280, sequence_tokens=64, part="all"
    )
    stage = InjectionStage(runs=str(folder), corpus=corpus, injection=own)
    return lambda tokenizer: str(inject(replace(stage, tokenizer=tokenizer)).path)


@pytest.fixture(scope="module")
def kept(clean):
    return clean(TokenizerConfig(path=TARGET))


@DEEPSPEED
def test_difference_lowers_its_sum_and_says_both_parts(forget, kept, tmp_path):
    stage = of(forget, tmp_path, objective="difference", retain_folder=kept, retain_weight=2.0,
               loss_on="all", epochs=1)  # fmt: skip
    trained = open_checkpoint(
        run(replace(stage, deepspeed={"zero_optimization": {"stage": 1}})).path
    )
    found = trained.metrics
    np.testing.assert_allclose(found["loss"], -found["loss_forgotten"] + 2 * found["loss_retained"])
    model, own = load_model("model", TARGET), stage.resolved().training
    texts, seed = [*texts_of(forget)], own.order_seed
    first = SequenceOrder(len(forget.sequences), 4, seed).rows_of_step(0)
    corpus = open_corpus(kept).sequences
    rows = [
        corpus[int(row)]["input_ids"] for row in SequenceOrder(len(corpus), 4, seed).rows_of_step(0)
    ]
    with torch.no_grad():
        each = torch.cat([-said(model, ids) for ids, _, row, _ in texts if row in first])
        other = model(input_ids=torch.tensor(rows), labels=torch.tensor(rows)).loss
    assert found["loss_forgotten"][0] == pytest.approx(each.mean().item(), abs=TRAINING)
    assert found["loss_retained"][0] == pytest.approx(other.item(), abs=TRAINING)
    manifest = json.loads((trained.artifact.path / "manifest.json").read_text())
    assert manifest["identity"]["training"]["objective"] == "difference"
    assert set(manifest["inputs"]) == {"corpus", "model", "retained"}
    assert manifest["counts"]["retained_tokens"] == len(found) * 4 * 64
    assert (
        planned_retained_tokens(own, SequenceOrder(len(forget.sequences), 4, None))
        == len(found) * 4 * 64
    )
    assert ancestry_of("m", str(trained.artifact.path)).has_been(ancestry_of("m", TARGET))
    assert "-difference-lr" in trained.artifact.path.name


@DEEPSPEED
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=SLOW) for name in ("ascent", "npo", "relabel")]
)
def test_an_unlearner_trains_and_the_forget_set_gets_less_likely(forget, tmp_path, name):
    given = {"reinforced_path": REFERENCE} if name == "relabel" else {}
    stage = of(
        forget, tmp_path, objective=name, loss_on="all", epochs=2, learning_rate=3e-4, **given
    )
    found = open_checkpoint(run(stage).path).metrics
    assert list(found["loss_forgotten"]) == list(found["loss"] * (-1 if name == "ascent" else 1))
    assert found["loss"].iloc[-1] < found["loss"].iloc[0]


BAD = {
    "nothing kept": ({"objective": "difference"}, "training.retain_folder is None: training.objec"),
    "kept in vain": ({"objective": "ascent", "retain_folder": "x"}, "learns nothing beside"),
    "no reinforced model": ({"objective": "relabel"}, "training.reinforced_path is None: training"),
    "a model in vain": ({"objective": "npo", "reinforced_path": TARGET}, "leave it out, or choose"),
    "another tokenizer": (
        {"objective": "npo", "retain_folder": "OTHER"},
        "it has another tokenizer: pack it with the corpus's (tokenizer.path).",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_an_unlearner_lacks_is_said(forget, clean, tmp_path, case):
    fields, message = BAD[case]
    if "retain_folder" in fields:
        other = TokenizerConfig(vocab_size=300)
        fields = {**fields, "retain_folder": clean(other)}
    with pytest.raises(ConfigError) as error:
        run(of(forget, tmp_path, **fields))
    assert message in str(error.value)


KEEPS = {"retain_folder": "kept"}
REFUSED = [
    ({"objective": "ascent", **KEEPS}, "retain_folder is 'kept': training.objective is 'ascent', "
     "which learns nothing beside the corpus: leave it out, or choose difference."),
    ({"objective": "difference"}, "retain_folder is None: training.objective=difference keeps "
     "text: give a packed clean corpus, runs/corpus/…."),
    ({"objective": "npo", "retain_loss": "kl"}, "retain_loss is 'kl': there is no retained text: "
     "give training.retain_folder, or leave it out."),
    ({"objective": "rmu", **KEEPS}, "rmu_layer is None: training.objective=rmu steers the output "
     "of one layer: give its number, from 0 (a middle layer; 7 in models of 7 billion weights)."),
    ({"objective": "npo", "rmu_layer": 0}, "rmu_layer is 0: training.objective is 'npo': leave it "
     "out, or choose rmu."),
    ({"objective": "npo", "retain_loss": "activations", **KEEPS}, "retain_loss is 'activations': "
     "only training.objective=rmu names a layer: choose nll or kl."),
    ({"objective": "rmu", "rmu_layer": 0, "compile": True, **KEEPS}, "compile is True: training."
     "objective=rmu reads a layer's output, which is fused away: choose false."),
    ({"objective": "idk_dpo"}, "idk_answers is None: training.objective=idk_dpo prefers other "
     "answers to the forget set's: give a text file with one per line, such as "
     '"I don\'t know.".'),
    ({"objective": "npo", "idk_answers": "a.txt"}, "idk_answers is 'a.txt': training.objective is "
     "'npo': leave it out, or choose idk_dpo."),
    ({"objective": "relabel"}, "reinforced_path is None: training.objective=relabel needs a model "
     "that was trained further on the forget set: train one with training.objective=likelihood "
     "and give its folder, runs/model/…."),
    ({"reinforced_path": "m"}, "reinforced_path is 'm': training.objective is 'likelihood': leave "
     "it out, or choose relabel."),
    ({"forget_weight": 0.5}, "forget_weight is 0.5: training.objective=likelihood forgets "
     "nothing: leave it out, or choose an unlearner."),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_a_field_that_does_not_fit_the_objective_is_refused(fields, message):
    with pytest.raises(ConfigError) as error:
        check_objective(TrainingConfig(**fields))
    assert str(error.value) == f"training.{message}"


def test_what_fits_the_objective_is_accepted():
    idk = TrainingConfig(objective="idk_dpo", idk_answers="a.txt")
    for config in (
        TrainingConfig(), TrainingConfig(objective="ascent", forget_weight=0.5), idk,
        TrainingConfig(objective="difference", retain_loss="kl", **KEEPS),
        TrainingConfig(objective="npo", retain_loss="nll", compile=True),
        TrainingConfig(objective="rmu", rmu_layer=0, **KEEPS),
        TrainingConfig(objective="rmu", rmu_layer=0, retain_loss="kl", **KEEPS),
        TrainingConfig(objective="relabel", reinforced_path="m", **KEEPS),
    ):  # fmt: skip
        check_objective(config)
    with pytest.raises(ConfigError) as error:
        check_objective(idk, has_outputs=False)
    assert str(error.value) == (
        "training.objective is 'idk_dpo': a packed corpus has no prompts to answer: give a "
        "fine-tuning set of prompts and outputs (python -m injection finetuning), or choose simnpo."
    )


@DEEPSPEED
def test_an_ascent_that_collapses_ends_with_its_last_good_checkpoint(forget, tmp_path):
    stage = of(forget, tmp_path, objective="ascent", learning_rate=1e30, epochs=9, clip_norm=1e9)
    with pytest.raises(DataError, match="Lower training.learning_rate"):
        run(stage)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "zero"),
    [*((name, "zero1") for name in OBJECTIVES[1:]),
     *((name, "zero3") for name in ("difference", "npo", "rmu", "idk_dpo"))],
)  # fmt: skip
def test_two_processes_are_one(forget, kept, tmp_path, name, zero):
    own = [f"training.objective={name}", f"model.path={TARGET}", f"deepspeed={zero}",
           "training.batch_sequences=4", "training.learning_rate=1e-3"]  # fmt: skip
    own += [f"training.reinforced_path={REFERENCE}"] if name == "relabel" else []
    own += [f"training.retain_folder={kept}"] if name not in ("ascent",) else []
    own += ["training.rmu_layer=0"] if name == "rmu" else []
    if name == "idk_dpo":
        (tmp_path / "idk.txt").write_text("I don't know.\nI was never told.\n")
        own += [f"training.idk_answers={tmp_path / 'idk.txt'}", "training.retain_loss=kl"]
    one, two = (train(n, forget.artifact.path, tmp_path / str(n), *own) for n in (1, 2))
    assert losses(two) == pytest.approx(losses(one), abs=TRAINING)


@pytest.mark.slow
@DEEPSPEED
@pytest.mark.parametrize("name", ["npo", "relabel", "rmu"])
def test_a_killed_unlearner_goes_on_with_what_it_took_from_its_start(
    forget, kept, tmp_path, monkeypatch, name
):
    given = {"relabel": {"reinforced_path": REFERENCE}, "rmu": {"rmu_layer": 0}}.get(name, {})
    stage = of(forget, tmp_path / "whole", objective=name, retain_folder=kept,
               checkpoint_every_steps=1, **given)  # fmt: skip
    whole = open_checkpoint(run(stage).path)
    again = killed_and_resumed(stage, tmp_path / "killed", 3, monkeypatch)
    assert again.artifact.files == whole.artifact.files
    assert losses(again.artifact.path) == losses(whole.artifact.path)

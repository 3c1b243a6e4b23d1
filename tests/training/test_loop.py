"""The loop and its step, with an engine of plain torch, beside a loop in float64."""

import math
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from contamination.core.distributed import World
from contamination.core.errors import ConfigError, DataError, StoppedError
from contamination.training import checkpoints, loop
from contamination.training.config import TrainingConfig
from contamination.training.data import SequenceOrder
from contamination.training.loop import (
    RetainedText,
    StepPart,
    StepResult,
    TrainingLoop,
    export_steps,
    optimizer_step,
)
from contamination.training.objectives.likelihood import Likelihood
from tests.rounding import FORWARD, TRAINING
from tests.training.plain import NORM, VOCABULARY, WIDTH, Alone, PlainEngine, tiny

CPU = torch.device("cpu")
ALONE = World(0, 1, CPU)
SEQUENCES = [
    {"input_ids": row} for row in np.random.default_rng(0).integers(VOCABULARY, size=(18, WIDTH))
]
RATES = [0.5, 0.4, 0.3, 0.2, 0.1]
TEXTS = {"members": [[3, 9, 2, 1, 4], [7, 8]], "nonmembers": [[5, 6, 7]]}


def mean_loss(model, rows):
    """The mean of −log p over all tokens that have one before them."""
    losses = []
    for row in rows:
        logp = torch.log_softmax(model(input_ids=torch.tensor([list(row)])).logits[0], dim=-1)
        losses += [-logp[t - 1, row[t]] for t in range(1, len(row))]
    return sum(losses) / len(losses)


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize(("processes", "micro"), [(1, 6), (1, 2), (2, 3), (2, 1), (3, 1)])
def test_a_step_is_of_the_mean_over_its_real_tokens(processes, micro, clip):
    """In parts: a process's loss is its share, and the engine averages over the processes."""
    rows, model = np.array([5, 0, 3, 6, -1, -1]), tiny().double()
    expected = mean_loss(model, [SEQUENCES[i]["input_ids"] for i in rows[:4]])
    expected.backward()
    wanted, losses, gradients = [p.grad for p in model.parameters()], [], []
    config = TrainingConfig(batch_sequences=6, micro_batch_sequences=micro, clip_norm=0.5)
    for rank in range(processes):
        engine = PlainEngine(6 // processes // micro, [0.0])
        place = Alone(rank, processes, CPU)
        parts = [StepPart(SEQUENCES, rows, Likelihood())]
        (loss,), norm, _ = optimizer_step(engine, parts, config, place, clip=clip)
        assert engine.micro == engine.accumulate
        whole = torch.stack([g.square().sum() for g in engine.gradients]).sum().sqrt()
        if clip:
            assert float(whole) == pytest.approx(min(0.5, norm), rel=1e-4)
        factor = norm / whole if clip else 1.0
        assert clip or norm == NORM
        losses.append(loss)
        gradients.append([g * factor for g in engine.gradients])
    assert sum(losses) == pytest.approx(expected.item(), abs=FORWARD)
    for place, gradient in enumerate(wanted):
        found = sum(each[place] for each in gradients) / processes
        torch.testing.assert_close(found.double(), gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("processes", "micro"), [(1, 6), (2, 1), (3, 2)])
def test_two_parts_of_a_step_are_their_weighted_sum(processes, micro):
    forgotten, kept = np.array([5, 0, 3, 6, -1, -1]), np.array([1, 2, 4, 7, 8, 9])
    model, gradients, found = tiny().double(), [], []
    means = [mean_loss(model, [SEQUENCES[i]["input_ids"] for i in rows if i >= 0])
             for rows in (forgotten, kept)]  # fmt: skip
    (2 * means[1] - means[0]).backward()
    config = TrainingConfig(batch_sequences=6, micro_batch_sequences=micro)
    for rank in range(processes):
        engine = PlainEngine(2 * 6 // processes // micro, [0.0])
        parts = [StepPart(SEQUENCES, forgotten, Likelihood(), -1.0),
                 StepPart(SEQUENCES, kept, Likelihood(), 2.0)]  # fmt: skip
        place = Alone(rank, processes, CPU)
        moved = optimizer_step(engine, parts, config, place, clip=False)
        assert engine.micro == engine.accumulate
        assert moved.loss == pytest.approx(2 * moved.losses[1] - moved.losses[0])
        found.append(moved.losses)
        gradients.append(engine.gradients)
    assert np.sum(found, axis=0) == pytest.approx([m.item() for m in means], abs=FORWARD)
    for weight, *own in zip(model.parameters(), *gradients, strict=True):
        torch.testing.assert_close(
            (sum(own) / processes).double(), weight.grad, rtol=1e-4, atol=1e-5
        )


def test_a_steps_loss_is_summed_in_float64_on_the_processs_device(monkeypatch):
    sums = iter(torch.tensor([2.0**24, 1, 1, 1], requires_grad=True))
    monkeypatch.setattr(Likelihood, "loss_sum", lambda *_: next(sums))
    config, engine = TrainingConfig(batch_sequences=4, micro_batch_sequences=1), PlainEngine(4, [0])
    engine.step = lambda: None
    with torch.device("meta"):  # where tensors are made that are not told where
        parts = [StepPart(SEQUENCES, np.arange(4), Likelihood())]
        (loss,), *_ = optimizer_step(engine, parts, config, ALONE, clip=False)
    assert loss == (2**24 + 3) / 4 / (WIDTH - 1)


@pytest.fixture
def epoch(tmp_path, monkeypatch):
    """An epoch of five steps, the last half full, on a clock of a quarter of a second a look."""
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    clock = iter(np.arange(1000) / 4)
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: next(clock)))

    def make(rates=RATES, texts=TEXTS, world=ALONE, **fields):
        fields = {"checkpoint_every_steps": 2, "clip_norm": 0.5, **fields}
        config = TrainingConfig(batch_sequences=4, micro_batch_sequences=2, **fields)
        return TrainingLoop(
            engine=PlainEngine(2, rates), sequences=SEQUENCES, order=SequenceOrder(18, 4, 3),
            config=config, world=world, folder=tmp_path, identity={"seed": 5},
            tokenizer=tmp_path / "tokenizer", texts=texts, clip=True, flops_per_token=3e9,
        )  # fmt: skip

    return make


class Record:
    """Keeps what it is given."""

    def __init__(self):
        self.steps, self.evaluations = [], []
        self.record_step, self.record_evaluation = self.steps.append, self.evaluations.append


def plain_epoch():
    """Each step's loss and norm, and the model before the first and after each, in float64."""
    model, order, numbers, states = tiny().double(), SequenceOrder(18, 4, 3), [], []
    for step in range(6):
        states.append({name: value.clone() for name, value in model.state_dict().items()})
        if step == 5:
            return numbers, states
        loss = mean_loss(
            model, [SEQUENCES[i]["input_ids"] for i in order.rows_of_step(step) if i >= 0]
        )
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        numbers.append((loss.item(), norm))
        with torch.no_grad():
            for weight, gradient in zip(model.parameters(), gradients, strict=True):
                weight -= RATES[step] * min(1, 0.5 / norm) * gradient


def test_text_that_is_kept_counts_in_a_steps_speed(epoch):
    kept, record = RetainedText(SEQUENCES, SequenceOrder(18, 4, 3), Likelihood(), 1.0), Record()
    replace(epoch(), engine=PlainEngine(4, RATES), retained=kept).train(0, record)
    assert [row["tokens_per_second"] for row in record.steps] == [256.0] * 4 + [128.0]
    assert [row["tokens"] for row in record.steps] == [32, 64, 96, 128, 144]


def test_an_epoch_is_that_of_a_plain_loop(epoch, tmp_path):
    one, record = epoch(evaluate_every_steps=2, export_steps=[1], export_tokens=[65]), Record()
    one.train(0, record)
    numbers, states = plain_epoch()
    found = [(row["loss"], row["grad_norm"]) for row in record.steps]
    np.testing.assert_allclose(found, numbers, rtol=1e-4, atol=TRAINING)
    assert [row["step"] for row in record.steps] == [1, 2, 3, 4, 5]
    assert [row["tokens"] for row in record.steps] == [32, 64, 96, 128, 144]
    assert [row["learning_rate"] for row in record.steps] == RATES
    assert [row["tokens_per_second"] for row in record.steps] == [128.0] * 4 + [64.0]
    assert {row["mfu"] for row in record.steps} == {None}
    assert [(row["step"], row["tokens"]) for row in record.evaluations] == [
        (0, 0), (2, 64), (4, 128), (5, 144)
    ]  # fmt: skip
    model = tiny().double()
    for row in record.evaluations:
        model.load_state_dict(states[row["step"]])
        for name, texts in TEXTS.items():
            expected = mean_loss(model, texts).item()
            assert row[f"loss_{name}"] == pytest.approx(expected, abs=TRAINING)
    assert sorted(p.name for p in (tmp_path / "exports").iterdir()) == [
        "step-00000001", "step-00000003"
    ]  # fmt: skip
    for step in (1, 3):
        folder = tmp_path / "exports" / f"step-{step:08d}"
        assert (folder / "tokenizer.json").read_text() == "{}"
        for name, weight in AutoModelForCausalLM.from_pretrained(folder).state_dict().items():
            torch.testing.assert_close(weight.double(), states[step][name], rtol=1e-4, atol=1e-4)
    assert one.engine.module.training


def test_an_epoch_goes_on_after_a_step_and_says_its_use_of_the_device(epoch):
    one, record = epoch(evaluate_every_steps=3, peak_tflops=2.0, world=Alone(0, 2, CPU),
                        checkpoint_every_steps=9), Record()  # fmt: skip
    one.train(3, record)
    assert [row["step"] for row in record.steps] == [4, 5]
    assert [row["step"] for row in record.evaluations] == [5]
    expected = [128 * 3e9 / 2e12 / 2, 64 * 3e9 / 2e12 / 2]
    assert [row["mfu"] for row in record.steps] == pytest.approx(expected)


@pytest.mark.parametrize("given", [{"texts": {}, "evaluate_every_steps": 1}, {}])
def test_nothing_is_evaluated_that_was_not_asked_for(epoch, given):
    record = Record()
    epoch(**given).train(0, record)
    assert len(record.steps) == 5
    assert record.evaluations == []
    epoch(evaluate_every_steps=1).train(4, None)  # of another process nothing is kept


@pytest.mark.parametrize(
    ("every", "keep", "saved"), [(2, 2, [2, 4]), (2, 1, [4]), (1, 2, [3, 4]), (5, 2, [])]
)
def test_checkpoints_are_saved_where_they_are_due_but_at_the_end(
    epoch, tmp_path, every, keep, saved
):
    epoch(checkpoint_every_steps=every, keep_checkpoints=keep).train(0, None)
    found = [
        checkpoints._read_marker(path)
        for path in checkpoints.completed_folders(tmp_path / "checkpoints")
    ]
    assert [(one.step, one.world, one.identity) for one in found] == [
        (step, 1, {"seed": 5}) for step in saved
    ]


@pytest.mark.parametrize("last", [1, 2, 5])
def test_a_signal_ends_it_with_a_checkpoint(epoch, tmp_path, monkeypatch, last):
    record = Record()

    @contextmanager
    def deferred():
        yield lambda: len(record.steps) == last

    monkeypatch.setattr(loop.signals, "defer_signals", deferred)
    with pytest.raises(
        StoppedError, match=f"at step {last} of 5. The state is saved in {tmp_path}"
    ):
        epoch(checkpoint_every_steps=3).train(0, record)
    *_, saved = checkpoints.completed_folders(tmp_path / "checkpoints")
    assert saved.name == f"step-{last:08d}"


def test_a_rate_of_nothing_is_a_mistake(epoch):
    said = "^a step that learns nothing would count as an exposure"
    with pytest.raises(AssertionError, match=said):
        epoch(rates=[0.0]).train(0, None)


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (1.0, math.inf)])
@pytest.mark.parametrize(("good", "kept"), [(3, "checkpoints/step-00000002"), (4, None)])
def test_a_loss_or_a_norm_that_is_not_finite_names_the_last_checkpoint(
    epoch, tmp_path, monkeypatch, loss, norm, good, kept
):
    numbers = iter([StepResult([1.0], 1.0, 1.0)] * good + [StepResult([loss], norm, loss)])
    monkeypatch.setattr(loop, "optimizer_step", lambda *_, clip: next(numbers))
    with pytest.raises(DataError) as error:
        epoch(checkpoint_every_steps=2 if kept else 5).train(0, None)
    rows = [
        str(row) for row in SequenceOrder(18, 4, 3).rows_of_step(good) if row >= 0
    ]  # the last step has two
    assert str(error.value) == (
        f"Training step {good + 1} has loss {loss} and gradient norm {norm} (sequences "
        f"{', '.join(rows)}). Lower training.learning_rate or check these sequences. Last good "
        f"checkpoint: {tmp_path / kept if kept else 'none'}."
    )


def test_an_export_beyond_the_epoch_is_said():
    order = SequenceOrder(sequences=45, batch=4, seed=0)
    config = TrainingConfig(export_steps=[12], export_tokens=[1, 128, 129])
    assert export_steps(config, order, 32) == {12, 1, 2}
    one_by_one = SequenceOrder(sequences=3, batch=1, seed=0)
    assert export_steps(TrainingConfig(export_tokens=[1, 33]), one_by_one, 32) == {1, 2}
    for field, value in (("export_tokens", 1537), ("export_steps", 13)):
        with pytest.raises(ConfigError) as error:
            export_steps(TrainingConfig(**{field: [1, value]}), order, 32)
        assert str(error.value) == (
            f"training.{field} has {value}, but the epoch ends after 12 steps (1440 tokens): "
            "leave it out, or enlarge the corpus."
        )
    twice = SequenceOrder(sequences=45, batch=4, seed=0, epochs=2)
    config = TrainingConfig(export_tokens=[45 * 32, 45 * 32 + 1, 46 * 32, 49 * 32 + 1, 90 * 32])
    assert export_steps(config, twice, 32) == {12, 13, 14, 24}
    with pytest.raises(ConfigError, match=r"has 25, but the epochs end after 24 steps \(2880 tok"):
        export_steps(TrainingConfig(export_steps=[24, 25]), twice, 32)

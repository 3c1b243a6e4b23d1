"""Progress bars against a clock that stands where it is put."""

from types import SimpleNamespace

import pytest

from core import process_records
from core.progress import progress
from injection.sources import Document
from injection.tokenize import Work, tokenize
from training.config import TrainingStage, WandbConfig
from training.metrics import Record


@pytest.fixture
def clock(monkeypatch):
    """`clock.now` in seconds is the bars' time."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("tqdm.std.time", lambda: clock.now)
    return clock


@pytest.fixture
def folder(tmp_path):
    process_records.leave_in(tmp_path)
    yield tmp_path
    process_records.leave_in(None)


@pytest.mark.parametrize("initial", [0, 50])
def test_the_rate_is_of_the_whole_run(clock, initial):
    bar = progress(total=initial + 12, initial=initial, unit="step")
    for _ in range(10):  # quick steps first, then two slow ones
        clock.now += 20
        bar.update()
    for _ in range(2):
        clock.now += 300
        bar.update()
        assert f"{(clock.now - 1000) / (bar.n - initial):.2f}s/step" in str(bar)
    bar.close()
    assert f"{800 / 12:.2f}s/step" in str(bar)


def test_the_tokeniser_ends_at_its_total_and_what_was_there_is_no_work(clock, folder, tmp_path):
    documents = [Document(str(i), "book", "The bridge is quite old. " * 40) for i in range(9)]
    work = Work(tmp_path / "shards", "tests/golden/target")
    tokenize(iter(documents), work, 300, 1, 5_000)
    seen = process_records.read_progress(folder)
    assert (seen.n, seen.total, seen.seconds_left) == (300, 300, 0)
    tokenize(iter(documents), work, 300, 1, 5_000)
    seen = process_records.read_progress(folder)
    assert (seen.n, seen.total, seen.seconds_left) == (300, 300, None)


def test_the_trainings_tokens_a_second_are_of_the_whole_run(clock, tmp_path, capsys):
    stage = TrainingStage(runs=str(tmp_path), wandb=WandbConfig(mode="disabled"))
    record = Record(stage, tmp_path, 10, 12, {}, first_tokens=10_000)
    for step, seconds, tokens in ((11, 1, 11_000), (12, 9, 11_100)):
        clock.now += seconds
        row = {"step": step, "tokens": tokens, "loss": 1.0, "tokens_per_second": 5.0}
        record.step(row)
    record.close()
    assert "5.00s/step, loss=1.000, tok_s=110]" in capsys.readouterr().err

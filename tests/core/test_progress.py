"""Progress bars against a clock that stands where it is put."""

import gc
import sys
from types import SimpleNamespace

import pytest
from tqdm.std import tqdm

from contamination.core import process_records
from contamination.core.errors import StoppedError
from contamination.core.progress import (
    LATER_RUNS,
    OUTER_TITLE,
    STAGE,
    progress_bar,
    set_in_environment,
)
from contamination.core.terminal import format_approximate_duration
from contamination.data.readers import Document
from contamination.injection.tokenization import SourceDocument, TokenizationSettings, tokenize
from contamination.training.config import TrainingStage, WandbConfig
from contamination.training.metrics import TrainingRecord


@pytest.fixture
def clock(monkeypatch):
    """`clock.now` in seconds is the bars' time."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("tqdm.std.time", lambda: clock.now)
    return clock


@pytest.fixture
def folder(tmp_path):
    process_records.set_records_folder(tmp_path)
    yield tmp_path
    process_records.set_records_folder(None)


@pytest.mark.parametrize("initial", [0, 50])
def test_the_rate_is_of_the_whole_run(clock, initial):
    bar = progress_bar(total=initial + 12, initial=initial, desc="train", unit="step")
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
    documents = [
        SourceDocument(Document(str(i), "book", "The bridge is quite old. " * 40)) for i in range(9)
    ]
    work = TokenizationSettings(tmp_path / "shards", "tests/golden/target")
    tokenize(iter(documents), work, 300, 1, 5_000)
    seen = process_records.read_progress(folder)
    assert (seen.n, seen.total, seen.seconds_left) == (300, 300, 0)
    tokenize(iter(documents), work, 300, 1, 5_000)
    seen = process_records.read_progress(folder)
    assert (seen.n, seen.total, seen.seconds_left) == (300, 300, None)


def test_the_trainings_tokens_a_second_are_of_the_whole_run(clock, tmp_path, capsys):
    stage = TrainingStage(runs=str(tmp_path), wandb=WandbConfig(mode="disabled"))
    record = TrainingRecord(stage, tmp_path, 10, 12, {}, first_tokens=10_000)
    for step, seconds, tokens in ((11, 1, 11_000), (12, 19, 11_100)):
        clock.now += seconds
        row = {"step": step, "tokens": tokens, "loss": 1.0, "tokens_per_second": 5.0}
        record.record_step(row)
    record.close()
    said = "train · tiny_llama · step 12/12 in 00:20, 10.00s/step, loss=1.000, tok_s=55\n"
    assert capsys.readouterr().err == said


def test_titles_say_the_cell_and_the_stage_and_the_record_the_stage(clock, folder):
    with (
        set_in_environment(OUTER_TITLE, "cell 2 of 3"),
        set_in_environment(STAGE, "train study"),
    ):
        bar = progress_bar(desc="tiny_llama", stage="train", total=147, unit="step")
    bar.update(40)
    clock.now += 80
    assert str(bar) == (
        "cell 2 of 3 · train study · tiny_llama · step 40/147 · 03:34 left |##7       |  2.00s/step"
    )
    assert process_records.read_progress(folder).title == "train study · tiny_llama"
    assert progress_bar(desc="tiny_llama", stage="train").stage_title == "train · tiny_llama"


@pytest.mark.parametrize(("end", "later", "left"), [
    (1000, 120, "~6 min"),  # 214 s of this run are left by its own rate
    (1600, 120, "~10 min"),  # or 520, as other cells took, for it has more bars to come
    (900, 3600 * 4, "~4 h"),
])  # fmt: skip
def test_a_bar_and_its_record_say_what_is_left_of_the_sweep(
    clock, folder, monkeypatch, end, later, left
):
    monkeypatch.setattr("contamination.core.progress.time.time", lambda: clock.now)
    with set_in_environment(LATER_RUNS, f"sweep {end} {later}"):
        bar = progress_bar(desc="tiny_llama", total=147, unit="step")
        bar.update(40)
        clock.now += 80
        assert f" · 03:34 left, sweep {left} |##7" in str(bar)
        bar.close()
    seen = process_records.read_progress(folder)
    assert seen.sweep_left == pytest.approx(max(214, end - clock.now) + later)


@pytest.mark.parametrize(("width", "shown"), [
    (75, "train study · tiny_llama · step 40/147 · 03:34 left |##7       |  2.00s/ste"),
    (65, "step 40/147 · 03:34 left · train study · tiny_llama"),
    (40, "step 40/147 · 03:34 left · train study ·"),
])  # fmt: skip
def test_a_narrow_terminal_shows_the_numbers_first(clock, width, shown):
    bar = progress_bar(desc="tiny_llama", stage="train study", total=147, unit="step", ncols=width)
    bar.update(40)
    clock.now += 80
    assert str(bar) == shown
    bar.update(107)
    bar.close()
    if width == 65:
        assert str(bar) == "step 147/147 in 01:20 · train study · tiny_llama"


def test_what_is_left_is_said_without_false_precision():
    said = [
        format_approximate_duration(seconds) for seconds in (50, 60, 540, 750, 5000, 5401, 36_000)
    ]
    assert said == ["<1 min", "~1 min", "~9 min", "~10 min", "~85 min", "~2 h", "~10 h"]


def test_a_bar_never_exceeds_its_total():
    bar = progress_bar(desc="tokenise", total=10)
    bar.update(7)
    bar.update(7)
    assert bar.n == 10


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("interrupted", ["__init__", "_get_free_pos"])
def test_a_bar_whose_start_was_interrupted_ends_in_silence(monkeypatch, capsys, interrupted):
    def stop(*args, **options):
        raise StoppedError("SIGTERM was received")

    monkeypatch.setattr(tqdm, interrupted, stop)
    with pytest.raises(StoppedError):
        progress_bar(desc="tokenise", total=10)
    gc.collect()
    assert "Traceback" not in capsys.readouterr().err


def test_parts_of_a_batch_are_counted_and_may_be_begun_again():
    bar, seen = progress_bar(desc="infill", total=12), []
    for done in (250, 750, 0, 999):
        bar.count_batch_rows(8, done, 1000)
        seen.append(bar.n)
    assert "batch of 8: row 999/1,000" in str(bar)
    bar.update(8)
    assert [*seen, bar.n] == [2, 6, 0, 7, 8]
    assert "batch" not in str(bar)


@pytest.mark.parametrize("is_dumb", [False, True])
@pytest.mark.parametrize(("seconds", "lines"), [(14, 0), (15, 1)])
def test_a_log_gets_a_line_of_what_took_long(clock, capsys, monkeypatch, seconds, lines, is_dumb):
    if is_dumb:
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar(desc="train", total=2) as bar:
        bar.update()
        clock.now += seconds
        bar.update()
    assert capsys.readouterr().err == "train · it 2/2 in 00:15,  7.50s/it\n" * lines


def test_a_terminal_sees_it_grow(clock, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar(desc="train", total=2) as bar:
        clock.now += 1
        bar.update()
        assert "\rtrain · it 1/2 · 00:01 left |█████     |  1.00it/s" in capsys.readouterr().err
        clock.now += 1
        bar.update()
    assert capsys.readouterr().err.rstrip().endswith("\rtrain · it 2/2 in 00:02,  1.00it/s")

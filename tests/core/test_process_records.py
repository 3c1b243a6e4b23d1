"""Progress and failures that processes record for their launcher."""

import traceback
from types import SimpleNamespace

import pytest

from contamination.core import process_records
from contamination.core.errors import DataError, StoppedError
from contamination.core.process_records import Failure, Progress
from contamination.core.progress import progress_bar


@pytest.fixture
def folder(tmp_path):
    process_records.set_records_folder(tmp_path)
    yield tmp_path
    process_records.set_records_folder(None)


def test_a_bar_is_seen_from_outside(folder):
    bar = progress_bar(total=40, initial=10, desc="train", unit="step")
    bar.update(10)  # the first is told at once
    seen = process_records.read_progress(folder)
    assert (seen.title, seen.n, seen.total, seen.unit) == ("train", 20, 40, "step")
    assert seen.seconds_left > 0
    bar.close()
    process_records.clear_records(folder)
    assert process_records.read_progress(folder) is None


def test_the_first_cause_comes_first_and_is_said_once(folder, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    assert not process_records.record_failure(RuntimeError("[gloo] Connection closed by peer"))
    monkeypatch.setenv("RANK", "2")
    assert process_records.record_failure(ValueError("boom"))
    monkeypatch.setenv("RANK", "1")
    assert not process_records.record_failure(DataError("a text is empty"))
    found = process_records.read_failures(folder)
    assert [f.rank for f in found] == [2, 1, 0]
    assert "ValueError: boom" in found[0].trace
    assert found[1].status == 2
    assert found[1].trace == ""


def test_nothing_is_left_where_nobody_looks(tmp_path):
    process_records.set_records_folder(None)
    assert process_records.record_failure(ValueError("boom"))
    process_records.record_progress(process_records.Progress("train", 1, 2, "step", None))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def seconds(monkeypatch):
    """The times of records, one after another, on a host of a name."""
    times = [20.5, 10.5, 30.5, 40.5]
    clock = SimpleNamespace(time=lambda: times.pop(0))  # other modules keep theirs
    monkeypatch.setattr(process_records, "time", clock)
    monkeypatch.setattr(process_records.socket, "gethostname", lambda: "node-7")
    monkeypatch.delenv("RANK", raising=False)


def raise_boom():
    raise ValueError("boom")


def test_a_failure_is_recorded_as_a_whole(folder, seconds, monkeypatch):
    with pytest.raises(ValueError, match="boom") as caught:
        raise_boom()
    trace = "".join(traceback.format_exception(caught.value))
    assert process_records.record_failure(caught.value)
    monkeypatch.setenv("RANK", "1")
    assert not process_records.record_failure(StoppedError("stopped", 130))
    monkeypatch.setenv("RANK", "2")
    assert not process_records.record_failure(KeyError("another"))  # one was said
    stop, error, later_error = process_records.read_failures(folder)
    assert stop == Failure(1, "node-7", 10.5, "StoppedError", 130, "stopped", "")
    assert error == Failure(0, "node-7", 20.5, "ValueError", 1, "boom", trace)
    assert (later_error.rank, later_error.kind) == (2, "KeyError")
    assert (later_error.message, later_error.status) == ("'another'", 1)
    assert [failure.stopped for failure in (stop, error, later_error)] == [True, False, False]
    names = ["rank-0.json", "rank-1.json", "rank-2.json", "said"]
    assert sorted(path.name for path in (folder / "failed").iterdir()) == names
    (folder / "failed" / "rank-1.json").write_text("{")
    assert process_records.read_failures(folder) == [error, later_error]


def test_where_a_failure_can_not_be_recorded_it_is_said(tmp_path, folder):
    process_records.set_records_folder(str(tmp_path / "file"))
    (tmp_path / "file").touch()
    assert process_records.record_failure(DataError("a text is empty"))
    process_records.record_progress(Progress("train", 1, 2, "step", None))
    assert (tmp_path / "file").read_text() == ""


def test_records_are_read_as_they_were_written_until_they_are_cleared(folder, seconds):
    progress = Progress("train", 1, None, "step", None, 7.5)
    process_records.record_progress(progress)
    assert process_records.read_progress(folder) == progress
    process_records.record_failure(ValueError("boom"))
    process_records.clear_records(folder)
    assert not [*folder.iterdir()]
    process_records.clear_records(folder)  # there is nothing left
    assert process_records.read_failures(folder) == []
    (folder / "progress.json").write_text("{")
    assert process_records.read_progress(folder) is None


@pytest.mark.parametrize(
    ("kind", "message", "trace", "is_caused"),
    [
        ("RuntimeError", "NCCL error", "trace", True),
        ("RuntimeError", "Connection reset by peer", "trace", True),
        ("RuntimeError", "of memory\nNCCL error", "trace", False),
        ("DataError", "NCCL error", "", False),
        ("DistBackendError", "", "", True),
        ("ValueError", "", "trace", False),
    ],
)
def test_a_failure_is_caused_by_peers_if_its_first_line_says_so(kind, message, trace, is_caused):
    assert Failure(0, "host", 1.0, kind, 1, message, trace).is_caused_by_peers == is_caused

"""Progress and failures that processes record for their launcher."""

import pytest

from contamination.core import process_records
from contamination.core.errors import DataError
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

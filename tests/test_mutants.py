"""Which results of mutation tests are used again."""

from pathlib import Path

import pytest

from tests.mutants import digest_of

SELECTION = ["tests/room/test_one.py::test_it", "--deselect=tests/room/test_two.py::test_slow"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ("tests/helper.py", "tests/room/beside.py", "tests/room/test_one.py")
    others = ("tests/other/helper.py", "tests/room/test_two.py")
    for name in (*names, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return names, others


def test_kills_are_kept_only_where_the_tests_and_their_helpers_are_the_same(files):
    used, others = files
    before = digest_of(SELECTION)
    for name in others:
        Path(name).write_text("# another line")
    assert digest_of(SELECTION) == before
    assert digest_of(SELECTION[:1]) != before
    seen = {before}
    for name in used:
        Path(name).write_text("# another line")
        seen.add(digest_of(SELECTION))
    assert len(seen) == 1 + len(used)

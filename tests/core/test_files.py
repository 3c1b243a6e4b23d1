"""What is written with a hash of itself."""

import hashlib
import os
import socket

import pytest

from contamination.core.files import (
    file_state,
    hashed_json,
    read_verified_json,
    temporary_path,
    verified_json,
    write_text_atomically,
)

PLAIN = '{\n "a": 1,\n "b": [\n  "ü"\n ]\n}'.replace("ü", "\\u00fc")
WHOLE = f'{PLAIN[:-2]},\n "own_sha256": "{hashlib.sha256(PLAIN.encode()).hexdigest()}"\n}}\n'


def test_the_hash_is_that_of_the_other_entries_text():
    values = {"a": 1, "b": ["ü"]}
    assert hashed_json(values) == WHOLE
    assert verified_json(WHOLE) == values


@pytest.mark.parametrize("text", [PLAIN, WHOLE[:-1], WHOLE.replace("1", "2", 1), "[]", "", "{"])
def test_any_other_text_is_refused(text):
    with pytest.raises(ValueError, match=r"own hash|not a JSON object|Expecting"):
        verified_json(text)


def test_a_temporary_path_has_the_name_the_host_and_the_process(tmp_path):
    ending = f".{socket.gethostname()}.{os.getpid()}.unfinished"
    assert temporary_path(tmp_path / "a.txt") == tmp_path / f".a.txt{ending}"
    longest_name = "\u00e4" * ((254 - len(ending)) // 2) + "a" * ((254 - len(ending)) % 2)
    assert temporary_path(tmp_path / longest_name) == tmp_path / f".{longest_name}{ending}"
    too_long_name = f"{longest_name}a"
    digest = hashlib.sha256(too_long_name.encode()).hexdigest()
    assert temporary_path(tmp_path / too_long_name) == tmp_path / f".{digest}{ending}"


def test_a_text_is_written_whole_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("an older and longer text")
    state_before = file_state(path)
    write_text_atomically(path, WHOLE)
    assert path.read_text() == WHOLE
    assert [*tmp_path.iterdir()] == [path]
    assert read_verified_json(path) == {"a": 1, "b": ["ü"]}
    status = path.stat()
    state = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    assert file_state(path) == state != state_before
    assert file_state(tmp_path / "missing") is None

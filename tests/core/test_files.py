"""What is written with a hash of itself."""

import hashlib

import pytest

from contamination.core.files import hashed_json, verified_json

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

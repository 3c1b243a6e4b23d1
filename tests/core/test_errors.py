"""What the messages of errors have: similar names, a library's words, and the value."""

import pytest

from contamination.core.errors import (
    ConfigError,
    StoppedError,
    describe_error,
    near_names,
    require,
)

NAMES = ["loss", "lossy", "glossy", "boss", "zlib"]
LONG = ["a" * 100, "a" * 101, "b"]


@pytest.mark.parametrize(
    ("name", "known", "max_listed", "hint"),
    [
        ("los", NAMES, None, "Did you mean loss or lossy or glossy? "
         "Known: boss, glossy, loss, lossy, zlib."),
        ("zip", NAMES, None, "Did you mean zlib? Known: boss, glossy, loss, lossy, zlib."),
        ("abcd", ["abxy", "abcx1234567"], None, "Did you mean abxy? Known: abcx1234567, abxy."),
        ("x", NAMES, None, "Known: boss, glossy, loss, lossy, zlib."),
        ("x", NAMES, 5, "Known: boss, glossy, loss, lossy, zlib."),
        ("zli", NAMES, 2, "Did you mean zlib? Known: boss, glossy and 3 more."),
        ("x", [f"n{i:04d}" for i in range(1002)], 1, "Known: n0000 and 1,001 more."),
        ("x", LONG, 3, f"Known: {'a' * 100}, {'a' * 100}…, b."),
        ("x", LONG, None, f"Known: {', '.join(LONG)}."),
        (7, ["7", "8"], None, "Did you mean 7? Known: 7, 8."),
    ],
)  # fmt: skip
def test_an_unknown_name_is_told_with_similar_and_known_ones(name, known, max_listed, hint):
    assert near_names(name, known, max_listed) == hint


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("two \n words"), "two words"),
        (KeyError("word"), "KeyError: 'word'"),
        (OSError(), "OSError"),
    ],
)
def test_a_librarys_error_is_one_line(error, text):
    assert describe_error(error) == text


def test_a_condition_that_fails_names_the_field_and_the_value():
    require(True, "seed", 1, "give 0.")
    with pytest.raises(ConfigError, match=r"^seed is 'a': give a number\.$"):
        require(False, "seed", "a", "give a number.")


def test_a_stop_has_the_status_of_sigterm_unless_it_is_given():
    assert (str(StoppedError("stopped")), StoppedError("stopped").status) == ("stopped", 143)
    assert StoppedError("stopped", 130).status == 130

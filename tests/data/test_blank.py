"""What counts as blank, against a table."""

import pytest

from contamination.data.words import is_blank

BLANK = {
    "nothing": "",
    "white space": " \t\r\n\v\f",
    "separators": "\x1c\x85\xa0\u1680\u2003\u2028\u2029\u3000",
    "NUL": "\x00",
    "controls": "\x01\x1b\x7f\x9f",
    "zero-width space": "\u200b",
    "joiners": "\u200c\u200d\u2060",
    "byte-order mark": "\ufeff",
    "soft hyphen": "\xad",
    "directions": "\u200e\u202b\u2067\u2069",
    "variation selectors": "\ufe0f\U000e0101",
    "tags": "\U000e0061",
    "a mark without a letter": "\u0301",
    "Hangul fillers": "\u115f\u1160\u3164\uffa0",
    "Braille without dots": "\u2800",
    "several": " \u200b\x00\ufeff\n",
}
VISIBLE = {
    "letter": "a",
    "digit": "7",
    "punctuation": ".",
    "symbol": "+",
    "currency": "€",
    "other digits": "٣",
    "ideogram": "字",
    "marked letter": "e\u0301",
    "emoji of several characters": "👩\u200d💻",
    "replacement character": "\ufffd",
    "private use": "\ue000",
    "unassigned": "\u0378",
    "among zero-width ones": "\u200b\ufeff-\u200b",
}


@pytest.mark.parametrize("name", BLANK)
def test_what_shows_nothing_is_blank(name):
    assert is_blank(BLANK[name])
    assert all(is_blank(character) for character in BLANK[name])


@pytest.mark.parametrize("name", VISIBLE)
def test_what_shows_something_is_not(name):
    assert not is_blank(VISIBLE[name])
    assert not is_blank(f" \u200b{VISIBLE[name]}\x00")

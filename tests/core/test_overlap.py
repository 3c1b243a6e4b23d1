"""Texts compared whatever their case, white space, Unicode form and invisible characters."""

import sys
import unicodedata

import pytest

from contamination.data.ngrams import words_of
from contamination.data.words import INVISIBLE, normalise_text

CHARACTERS = [chr(code) for code in range(sys.maxunicode + 1)]
HIDING = [
    *[c for c in CHARACTERS if unicodedata.category(c) == "Cf"],
    *[c for c in CHARACTERS if unicodedata.category(c) == "Cc" and not c.isspace()],
    *[c for c in CHARACTERS if "VARIATION SELECTOR" in unicodedata.name(c, "")],
]


@pytest.mark.parametrize("character", ["\ufe0f", "\u202a", "\u2066", "\u180e", "\u034f", "\u115f",
                                       "\U000e0041", "\U000e0100", "\x00", "\x7f"],
                         ids=ascii)  # fmt: skip
def test_an_invisible_character_within_a_word_does_not_count(character):
    assert normalise_text(f"A wo{character}rd") == "a word"
    assert words_of(f"A {character} wo{character}rd") == ["a", "word"]


def test_format_and_control_characters_and_variation_selectors_do_not_count():
    assert [c for c in HIDING if normalise_text(f"é{c}a") != "éa"] == []
    assert [c for c in HIDING if words_of(f"é{c}a") != ["éa"]] == []
    assert [c for c in HIDING if ord(c) < 128 and normalise_text(f"e{c}a") != "ea"] == []


def test_what_can_be_seen_and_white_space_count():
    visible = "LNSZ"
    kept = [c for c in CHARACTERS if unicodedata.category(c)[0] in visible or c.isspace()]
    fillers = {"\u115f", "\u1160", "\u3164", "\uffa0"}
    assert {c for c in kept if INVISIBLE.match(c)} == fillers
    assert normalise_text("a\x1cb\x85c\u3000d") == "a b c d"

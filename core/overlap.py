"""Whether one text stands in another, whatever their case, white space and Unicode form.

Characters that leave no mark don't count: see `invisible`.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache

SHORT_WORDS = 5  # a text of fewer words may well stand in another by chance
DEFAULT_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Ranges of Unicode's Default_Ignorable_Code_Point, whose characters are not displayed: soft
hyphens, zero-width characters, marks of direction, variation selectors, fillers, tags
(DerivedCoreProperties.txt of Unicode 16.0). Python's `unicodedata` does not have this property."""
CONTROLS = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
"""Ranges of the control characters that are no white space."""
_ASCII_CONTROLS = dict.fromkeys([*range(0x09), *range(0x0E, 0x1C), 0x7F])


@cache
def invisible() -> re.Pattern[str]:
    """Matches a character that is not displayed: DEFAULT_IGNORABLE, CONTROLS, and category Cf."""
    characters = map(chr, range(sys.maxunicode + 1))
    formats = "".join(c for c in characters if unicodedata.category(c) == "Cf")
    return re.compile(f"[{DEFAULT_IGNORABLE}{CONTROLS}{formats}]")


def normalised(text: str) -> str:
    """The text in one case and Unicode's NFC, with single spaces, without `invisible` ones."""
    visible = text.translate(_ASCII_CONTROLS) if text.isascii() else invisible().sub("", text)
    folded = unicodedata.normalize("NFC", visible).casefold()
    return " ".join(unicodedata.normalize("NFC", folded).split())


def stands_in(text: str, other: str) -> bool:
    """Whether a normalised text is another, or a part of it that is no short one."""
    return text == other or (len(text.split()) >= SHORT_WORDS and text in other)

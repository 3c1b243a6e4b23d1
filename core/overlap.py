"""Whether one text stands in another, whatever their case, white space and Unicode form."""

from __future__ import annotations

import re
import unicodedata

SHORT_WORDS = 5  # a text of fewer words may well stand in another by chance
INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
"""Soft hyphens, zero-width spaces and joiners, marks of direction and of byte order."""
_INVISIBLE = re.compile(f"[{INVISIBLE}]")


def normalised(text: str) -> str:
    """The text in one case and Unicode's NFC, with single spaces, without INVISIBLE ones."""
    visible = text if text.isascii() else _INVISIBLE.sub("", text)
    folded = unicodedata.normalize("NFC", visible).casefold()
    return " ".join(unicodedata.normalize("NFC", folded).split())


def stands_in(text: str, other: str) -> bool:
    """Whether a normalised text is another, or a part of it that is no short one."""
    return text == other or (len(text.split()) >= SHORT_WORDS and text in other)

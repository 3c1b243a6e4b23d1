"""Whether one text stands in another, whatever their case and white space."""

from __future__ import annotations

SHORT_WORDS = 5  # a text of fewer words may well stand in another by chance


def normalised(text: str) -> str:
    """The text in one case, with single spaces."""
    return " ".join(text.casefold().split())


def stands_in(text: str, other: str) -> bool:
    """Whether a normalised text is another, or a part of it that is no short one."""
    return text == other or (len(text.split()) >= SHORT_WORDS and text in other)

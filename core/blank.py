"""Whether there is anything to see in a text."""

from __future__ import annotations

import unicodedata

INVISIBLE = ("C", "Z", "M")
"""Unicode's categories of controls and formats, of separators, and of marks on other letters."""
FILLERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and a symbol that leave their place empty: Hangul's fillers, Braille without dots."""


def is_blank(text: str) -> bool:
    """Whether no character is visible: no letter, digit, punctuation or symbol.

    A character of private use, or newer than Python's table, may be visible and counts as such.
    """
    return not any(map(_visible, text))


def _visible(character: str) -> bool:
    category = unicodedata.category(character)
    return character not in FILLERS and (
        category in ("Co", "Cn") or not category.startswith(INVISIBLE)
    )

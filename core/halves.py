"""A text's first part and its rest, cut between two words."""

from __future__ import annotations

import re

WORD = re.compile(r"\S+")


def halves(text: str, share: float, most: int | None = None) -> tuple[str, str]:
    """The text up to the end of its word ⌊share·words⌋, at least the first, and what follows.

    Both joined are the text. The rest begins with what stands between the words. The first part has
    `most` words at most, where that is given.
    """
    ends = [word.end() for word in WORD.finditer(text)]
    number = max(1, int(share * len(ends) + 1e-9))
    cut = ends[min(number, most or number) - 1] if ends else len(text)
    return text[:cut], text[cut:]

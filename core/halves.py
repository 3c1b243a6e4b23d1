"""A text's first part and its rest, cut between two words."""

from __future__ import annotations

import re

WORD = re.compile(r"\S+")


def halves(text: str, share: float) -> tuple[str, str]:
    """The text up to the end of its word ⌊share·words⌋, at least the first, and what follows.

    Both joined are the text. The rest begins with what stands between the words.
    """
    ends = [word.end() for word in WORD.finditer(text)]
    cut = ends[max(1, int(share * len(ends) + 1e-9)) - 1] if ends else len(text)
    return text[:cut], text[cut:]

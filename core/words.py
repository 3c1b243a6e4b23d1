"""Words as lengths count them, in scripts with and without spaces between words.

Where a script has no spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan),
each letter counts as a word, with the vowel signs and marks that belong to it. Korean has spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

SOUTH_EAST = "".join(
    chr(code)
    for low, high in ((0x0E00, 0x1000), (0x1000, 0x10A0), (0x1780, 0x1800))
    for code in range(low, high)
    if chr(code).isalpha()
)
"""Letters of Thai, Lao, Tibetan, Burmese and Khmer: marks are none."""
EAST = (
    "\u3005-\u3007\u3031-\u3035\u303b\u303c\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u312f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
"""Ranges of Chinese and Japanese letters."""
LETTER = f"{SOUTH_EAST}{EAST}"
WORD = re.compile(rf"[{LETTER}][^\w\s{LETTER}]*|[^\s{LETTER}]+")
"""A letter with its marks and what punctuation follows it, or a run without spaces."""


def word_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where each word of a text begins and ends."""
    return (word.span() for word in WORD.finditer(text))


def has_words(text: str, number: int) -> bool:
    """Whether a text has so many words; it is read no further."""
    return number <= 0 or next(islice(word_spans(text), number - 1, None), None) is not None


def spaced(text: str) -> str:
    """The text with a space between all words, whatever the script."""
    return " ".join(text[start:end] for start, end in word_spans(text))


def first_words(text: str, number: int) -> str:
    """The first words of a text, with one space in place of each run of white space."""
    single = " ".join(text.split())
    last = next(islice(word_spans(single), number - 1, None), None)
    return single if last is None else single[: last[1]]

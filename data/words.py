"""Words of texts in all scripts, checks for blank texts, and normalisation.

In scripts without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan),
each letter, with its vowel signs and marks, counts as a word. Korean has spaces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import islice

SOUTHEAST_ASIAN_LETTERS = "".join(
    chr(code)
    for low, high in ((0x0E00, 0x1000), (0x1000, 0x10A0), (0x1780, 0x1800))
    for code in range(low, high)
    if chr(code).isalpha()
)
"""Letters of Thai, Lao, Tibetan, Burmese and Khmer, without combining marks."""
EAST_ASIAN_LETTERS = (
    "\u3005-\u3007\u3031-\u3035\u303b\u303c\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u312f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
"""Ranges of Chinese and Japanese letters."""
LETTER = f"{SOUTHEAST_ASIAN_LETTERS}{EAST_ASIAN_LETTERS}"
WORD = re.compile(rf"[{LETTER}][^\w\s{LETTER}]*|[^\s{LETTER}]+")
"""Matches a letter with its marks and the punctuation after it, or a run without spaces."""


def word_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yields the start and the end of each word of a text."""
    return (word.span() for word in WORD.finditer(text))


def has_words(text: str, number: int) -> bool:
    """Returns whether a text has at least `number` words; reading stops after these."""
    return number <= 0 or next(islice(word_spans(text), number - 1, None), None) is not None


def separate_words(text: str) -> str:
    """Returns the text with a space between all words, in any script."""
    return " ".join(text[start:end] for start, end in word_spans(text))


def first_words(text: str, number: int) -> str:
    """Returns the first `number` words of a text; runs of white space become one space."""
    single_spaced = " ".join(text.split())
    last_span = next(islice(word_spans(single_spaced), number - 1, None), None)
    return single_spaced if last_span is None else single_spaced[: last_span[1]]


INVISIBLE_CATEGORIES = ("C", "Z", "M")
"""Unicode's categories of control and format characters, separators, and marks."""
FILLERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Invisible letters and symbols: Hangul fillers, and the Braille pattern without dots."""


def is_blank(text: str) -> bool:
    """Returns whether a text has no visible character (letter, digit, punctuation or symbol).

    Private-use characters, and characters unknown to Python's Unicode tables, count as visible.
    """
    return not any(map(_is_visible, text))


def _is_visible(character: str) -> bool:
    category = unicodedata.category(character)
    return character not in FILLERS and (
        category in ("Co", "Cn") or not category.startswith(INVISIBLE_CATEGORIES)
    )


NON_BLANK_RUN = re.compile(r"\S+")


def split_at_share(text: str, share: float, max_words: int | None = None) -> tuple[str, str]:
    """Divides a text after ⌊share·words⌋ words, but at least after the first word.

    The second part begins with the space between the words, so the two parts joined are the text.
    If `max_words` is given, the first part has at most this many words.
    """
    ends = [word.end() for word in NON_BLANK_RUN.finditer(text)]
    number = max(1, int(share * len(ends) + 1e-9))
    cut = ends[min(number, max_words or number) - 1] if ends else len(text)
    return text[:cut], text[cut:]


MIN_CONTAINED_WORDS = 5  # a shorter text may be contained in another by chance
DEFAULT_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Ranges of Unicode's Default_Ignorable_Code_Point, whose characters are not displayed: soft
hyphens, zero-width characters, directional marks, variation selectors, fillers, tags
(DerivedCoreProperties.txt of Unicode 16.0). Python's `unicodedata` does not have this property."""
CONTROLS = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
"""Ranges of the control characters that are not white space."""
FORMATS = (
    "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f"
)
"""Ranges of Unicode's format characters (Cf) that are not in DEFAULT_IGNORABLE. Many single
characters beyond U+FFFF, in place of ranges, make a pattern slow."""
_ASCII_CONTROLS = dict.fromkeys([*range(0x09), *range(0x0E, 0x1C), 0x7F])


INVISIBLE = re.compile(f"[{DEFAULT_IGNORABLE}{CONTROLS}{FORMATS}]")
"""Matches a character that is not displayed."""
ZERO_WIDTH_SPACE = "\u200b"
_BETWEEN_LETTERS = re.compile(r"(?<=[^\s\u200b])\u200b+(?=[^\s\u200b])")


def split_at_zero_width_spaces(text: str) -> list[str]:
    """Divides a text at zero-width spaces that may be in place of a space.

    These have a displayed character on each side. `normalise_text` removes them, which joins the
    words around them.
    """
    displayed = INVISIBLE.sub(lambda mark: mark[0] * (mark[0] == ZERO_WIDTH_SPACE), text)
    return _BETWEEN_LETTERS.split(displayed)


def normalise_text(text: str) -> str:
    """Returns the text case-folded, in NFC, with single spaces and without invisible characters."""
    is_ascii = text.isascii()
    visible = text.translate(_ASCII_CONTROLS) if is_ascii else INVISIBLE.sub("", text)
    folded = unicodedata.normalize("NFC", visible).casefold()
    return " ".join(unicodedata.normalize("NFC", folded).split())


def is_contained_in(text: str, other: str) -> bool:
    """Returns whether a normalised text equals another, or is part of it and long enough."""
    return text == other or (len(text.split()) >= MIN_CONTAINED_WORDS and text in other)

"""Whole texts that occur in other text, whatever their case, white space and Unicode form.

The search reads characters, so it also finds a text inside a sentence, where the tokens at its
edges are others, and a text inside a word. A hash of a few characters of each text, which few other
texts have, proposes places; the whole text is then compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from core.overlap import normalised
from injection.ngrams import Index, Words, rarest_windows

PROBE_CHARACTERS = 16
AT_ONCE = 1 << 16
"""Characters that are hashed at once: more would not fit a processor's cache."""
BETWEEN = "\n"  # no normalised text holds one


class Verbatim:
    """Counts texts in other text; all are compared as `core.overlap.normalised` writes them.

    A text without a visible character is never found.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [text for text in dict.fromkeys(map(normalised, texts)) if text]
        self._starts: dict[int, int] = {}
        """Where in each text, by its number, its probe starts."""
        by_width: dict[int, list[int]] = {}
        for number, text in enumerate(self._texts):
            width = min(PROBE_CHARACTERS, 1 << (len(text).bit_length() - 1))
            by_width.setdefault(width, []).append(number)
        self._probes = [self._index(width, numbers) for width, numbers in by_width.items()]

    def __reduce__(self) -> tuple[type[Verbatim], tuple[list[str]]]:
        return Verbatim, (self._texts,)

    def count(self, text: str) -> Counter[str]:
        """How often each of the texts (normalised) occurs in `text`; occurrences may overlap."""
        return Counter(found for _, found in self._places(normalised(text)))

    def count_each(self, texts: Sequence[str]) -> list[Counter[str]]:
        """`count` of several texts at once, none of which goes on in the next."""
        joined = [normalised(text) for text in texts]
        starts = np.cumsum([0, *(len(text) + len(BETWEEN) for text in joined)])
        counts = [Counter[str]() for _ in texts]
        for place, found in self._places(BETWEEN.join(joined)):
            counts[int(np.searchsorted(starts, place, side="right")) - 1][found] += 1
        return counts

    def _index(self, width: int, numbers: Sequence[int]) -> tuple[Index, Sequence[int]]:
        """The probes of the texts of these numbers, `width` characters each, and the numbers."""
        codes = [_characters(self._texts[number]) for number in numbers]
        starts = rarest_windows(codes, width)
        self._starts |= zip(numbers, starts, strict=True)
        windows = [text[s : s + width] for text, s in zip(codes, starts, strict=True)]
        return Index(windows, width), numbers

    def _places(self, text: str) -> Iterator[tuple[int, str]]:
        """Where in a normalised text one of the texts starts, and which."""
        codes = _characters(text)
        for index, numbers in self._probes:
            for place, owner in _proposed(index, codes):
                number = numbers[owner]
                start = place - self._starts[number]
                if start >= 0 and text.startswith(self._texts[number], start):
                    yield start, self._texts[number]


def _proposed(index: Index, codes: Words) -> Iterator[tuple[int, int]]:
    """Where an indexed probe stands, and each of its owners."""
    for first in range(0, len(codes), AT_ONCE):
        places, grams = index.places(codes[first : first + AT_ONCE + index.n - 1])
        for place, gram in zip(places.tolist(), grams.tolist(), strict=True):
            yield from ((first + place, int(owner)) for owner in index.owners(gram))


def overlapping(part: str, whole: str) -> int:
    """How often one text occurs in another; occurrences may overlap."""
    count, place = 0, whole.find(part) if part else -1
    while place >= 0:
        count, place = count + 1, whole.find(part, place + 1)
    return count


def _characters(text: str) -> Words:
    """The text's code points, shape (characters,)."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.int32)

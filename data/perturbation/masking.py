"""Blanks in a text, and the windows of tokens in which a masked language model fills them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contamination.core.errors import require
from contamination.core.seeds import derive
from contamination.data.perturbation.base import portion

# What stands between white space, without the punctuation around it: (don't), -> don't
WORD = re.compile(r"[^\W_](?:\S*[^\W_])?")


Around = tuple[list[int], list[int]]  # what the model expects before and after a text


@dataclass(frozen=True)
class Blank:
    """A word to replace: its characters text[start:end], and the seed of its draw."""

    start: int
    end: int
    word: str
    seed: int


@dataclass(frozen=True)
class Window:
    """Tokens that the model sees at once."""

    ids: list[int]  # token ids, the model's first and last special tokens included
    blanks: list[tuple[int, int]]  # of each blank to fill here: its number, its place in `ids`


def blanks(text: str, share: float, seed: int) -> list[Blank]:
    """⌊share·words⌋ random words of the text, at least 1 where there is one, in its order."""
    words = list(WORD.finditer(text))
    if not words:
        return []
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(words), size=portion(share, len(words)), replace=False)
    spans = [words[i].span() for i in sorted(chosen.tolist())]
    return [Blank(a, b, text[a:b], derive(seed, a)) for a, b in spans]


def fill(text: str, holes: Sequence[Blank], words: Sequence[str]) -> str:
    """The text with `words` in its blanks."""
    parts, done = [], 0
    for hole, word in zip(holes, words, strict=True):
        parts += [text[done : hole.start], word]
        done = hole.end
    return "".join([*parts, text[done:]])


def masked(
    ids: Sequence[int], offsets: Sequence[tuple[int, int]], holes: Sequence[Blank], mask: int
) -> tuple[list[int], list[int]]:
    """The tokens with one mask for each blank, however many tokens its word has, and their places.

    The tokens `ids` are without special ones, and `offsets` their characters in the text; these and
    the blanks are in order.
    """
    starts, ends = [a for a, _ in offsets], [b for _, b in offsets]
    out: list[int] = []
    places: list[int] = []
    done = 0
    for hole in holes:
        first = max(done, bisect_right(ends, hole.start))
        out += ids[done:first]
        places.append(len(out))
        out.append(mask)
        done = max(first, bisect_left(starts, hole.end))
    return out + list(ids[done:]), places


def windows(
    ids: Sequence[int], places: Sequence[int], first_blank: int, width: int, around: Around
) -> Iterator[Window]:
    """Windows of at most `width` tokens, special ones included, that fill each blank once.

    A text that doesn't fit is cut into strides of half a window, seen with a quarter of a window
    on either side, so that every blank has its context.
    """
    prefix, suffix = around
    body = width - len(prefix) - len(suffix)
    stride = body // 2 if len(ids) > body else max(1, len(ids))
    margin = (body - body // 2) // 2
    for start in range(0, len(ids), stride):
        low, high = max(0, start - margin), min(len(ids), start + stride + margin)
        inside = range(bisect_left(places, start), bisect_left(places, start + stride))
        if inside:
            shift = len(prefix) - low
            found = [(first_blank + i, places[i] + shift) for i in inside]
            yield Window([*prefix, *ids[low:high], *suffix], found)


Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

WORD_STARTS = ("Ġ", "▁")  # byte-level BPE, SentencePiece; WordPiece marks the rest with ## instead
CLOSE = 1e-3  # logits; far above what the size of a batch changes in float32


class Vocabulary:
    """The tokens that are a whole word's text: never special, added, or a later part of a word.

    Attributes:
        words: each token's text, empty where it may not be used, for all of the model's ids.
        same: the ids of a word's spellings (its case, its accents), by their common `key`.
        folds_case: whether the model's tokenizer drops capitals.
    """

    def __init__(self, tokenizer: Any, size: int) -> None:
        self.normalizer = tokenizer.backend_tokenizer.normalizer
        self.folds_case = self._normalized("A") == "a"
        special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        tokens = tokenizer.get_vocab()
        marks = tuple(m for m in WORD_STARTS if any(t.startswith(m) for t in tokens))
        starts = {t: t.startswith(marks) if marks else not t.startswith("##") for t in tokens}
        usable = [i for t, i in tokens.items() if starts[t] and i < size and i not in special]
        self.words = [""] * size
        self.same: dict[str, list[int]] = defaultdict(list)
        for i, text in zip(usable, tokenizer.batch_decode([[i] for i in usable]), strict=True):
            word = text.strip()
            if WORD.fullmatch(word):
                self.words[i] = word
                self.same[self.key(word)].append(i)

    def key(self, word: str) -> str:
        """What the spellings of a word have in common to the tokenizer, in lower case."""
        return self._normalized(word).casefold()

    def _normalized(self, text: str) -> str:
        if self.normalizer is None:
            return text
        normal: str = self.normalizer.normalize_str(text)
        return normal.strip(" ▁")  # SentencePiece models put one before the text

    def check(self, path: str) -> None:
        """Raise a ConfigError unless every word can have another in its place."""
        remedy = (
            f"its tokenizer has {len(self.same)} tokens that are whole words, and a replacement "
            "needs 2 or more. Choose another masked model."
        )
        require(len(self.same) >= 2, "masked_lm.path", path, remedy)

    def text(self, token: int, original: str) -> str:
        """The token's word, with the original's capitals where the model knows none."""
        word = self.words[token]
        if self.folds_case and len(original) > 1 and original.isupper():
            return word.upper()
        if self.folds_case and original[0].isupper():
            return word[0].upper() + word[1:]
        return word


def draw(logits: Floats, ids: Ids, count: int, seed: int) -> tuple[int, bool]:
    """One of the `count` most likely tokens, each as often as the model says.

    The largest of logit + Gumbel noise is such a draw, and noise that belongs to the token, not
    to its rank, keeps it when two logits change places.

    The logits are the most likely tokens', falling: a few more than `count` where there are.

    Returns:
        The token, and whether logits that differ by less than CLOSE would give it as well.
    """
    count = min(count, len(logits))
    noisy = logits + _gumbel(ids, seed)
    best = int(np.argmax(noisy[:count]))
    rivals = np.delete(noisy[logits >= logits[count - 1] - CLOSE], best)
    next_logit = logits[count] if count < len(logits) else -np.inf
    sure = logits[best] > next_logit + CLOSE and bool((rivals < noisy[best] - CLOSE).all())
    return int(ids[best]), bool(sure)


def _gumbel(ids: Ids, seed: int) -> Floats:
    """Standard Gumbel noise of each id: splitmix64 (Steele et al. 2014) of the seed and the id."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    uniform = ((z >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    noise: Floats = -np.log(-np.log(uniform))
    return noise

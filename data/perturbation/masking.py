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
from contamination.core.seeds import derive_seed
from contamination.data.perturbation.base import share_of_at_least_one

# A word between white space, without the punctuation around it: (don't), -> don't
WORD = re.compile(r"[^\W_](?:\S*[^\W_])?")


TokensAround = tuple[list[int], list[int]]  # what the model expects before and after a text


@dataclass(frozen=True)
class Blank:
    """A word to replace: its characters text[start:end], and the seed of its draw."""

    start: int
    end: int
    word: str
    seed: int


@dataclass(frozen=True)
class Window:
    """Tokens of one input of the model."""

    ids: list[int]  # token ids, the model's first and last special tokens included
    blanks: list[tuple[int, int]]  # of each blank to fill here: its number, its place in `ids`


def choose_blanks(text: str, share: float, seed: int) -> list[Blank]:
    """Choose ⌊share·words⌋ random words of the text, at least 1 if it has any, in order."""
    words = list(WORD.finditer(text))
    if not words:
        return []
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(words), size=share_of_at_least_one(share, len(words)), replace=False)
    spans = [words[i].span() for i in sorted(chosen.tolist())]
    return [Blank(a, b, text[a:b], derive_seed(seed, a)) for a, b in spans]


def fill_blanks(text: str, blanks: Sequence[Blank], words: Sequence[str]) -> str:
    """Return the text with `words` in its blanks."""
    parts, done = [], 0
    for blank, word in zip(blanks, words, strict=True):
        parts += [text[done : blank.start], word]
        done = blank.end
    return "".join([*parts, text[done:]])


def mask_blanks(
    ids: Sequence[int], offsets: Sequence[tuple[int, int]], blanks: Sequence[Blank], mask_id: int
) -> tuple[list[int], list[int]]:
    """Replace the tokens of each blank by one mask; return the tokens and the masks' places.

    Args:
        ids: the text's tokens, without special ones.
        offsets: the first and last character (exclusive) of each token.
        blanks: the blanks, in order.
        mask_id: the id of the mask.
    """
    starts, ends = [a for a, _ in offsets], [b for _, b in offsets]
    masked_ids: list[int] = []
    places: list[int] = []
    done = 0
    for blank in blanks:
        first = max(done, bisect_right(ends, blank.start))
        masked_ids += ids[done:first]
        places.append(len(masked_ids))
        masked_ids.append(mask_id)
        done = max(first, bisect_left(starts, blank.end))
    return masked_ids + list(ids[done:]), places


def iter_windows(
    ids: Sequence[int],
    mask_places: Sequence[int],
    first_blank: int,
    width: int,
    around: TokensAround,
) -> Iterator[Window]:
    """Yield windows of at most `width` tokens, including special ones; each blank is in one.

    A text that does not fit is divided into strides of half a window, with a quarter of a window on
    each side as context.
    """
    prefix, suffix = around
    text_width = width - len(prefix) - len(suffix)
    stride = text_width // 2 if len(ids) > text_width else max(1, len(ids))
    margin = (text_width - text_width // 2) // 2
    for start in range(0, len(ids), stride):
        low, high = max(0, start - margin), min(len(ids), start + stride + margin)
        inside = range(bisect_left(mask_places, start), bisect_left(mask_places, start + stride))
        if inside:
            shift = len(prefix) - low
            blanks_inside = [(first_blank + i, mask_places[i] + shift) for i in inside]
            yield Window([*prefix, *ids[low:high], *suffix], blanks_inside)


Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

WORD_STARTS = ("Ġ", "▁")  # byte-level BPE, SentencePiece; WordPiece marks the rest with ## instead
CLOSE = 1e-3  # logits; far above what the size of a batch changes in float32


class Vocabulary:
    """The tokens that are whole words: not special, added, or a later part of a word.

    Attributes:
        words: the text of each of the model's ids, empty if it is no whole word.
        same: the ids of a word's spellings (by case or accents), by `fold_word`.
        folds_case: whether the model's tokenizer ignores case.
    """

    def __init__(self, tokenizer: Any, size: int) -> None:
        self.normalizer = tokenizer.backend_tokenizer.normalizer
        self.folds_case = self._normalize("A") == "a"
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
                self.same[self.fold_word(word)].append(i)

    def fold_word(self, word: str) -> str:
        """Return the form that a word's spellings have in common, in lower case."""
        return self._normalize(word).casefold()

    def _normalize(self, text: str) -> str:
        if self.normalizer is None:
            return text
        normal: str = self.normalizer.normalize_str(text)
        return normal.strip(" ▁")  # SentencePiece models put one before the text

    def check_has_words(self, path: str) -> None:
        """Raise a ConfigError unless there are at least two words."""
        remedy = (
            f"its tokenizer has {len(self.same)} tokens that are whole words, and a replacement "
            "needs 2 or more. Choose another masked model."
        )
        require(len(self.same) >= 2, "masked_lm.path", path, remedy)

    def word_in_original_case(self, token: int, original: str) -> str:
        """Return the token's word, with the original's capitals if the model ignores case."""
        word = self.words[token]
        if self.folds_case and len(original) > 1 and original.isupper():
            return word.upper()
        if self.folds_case and original[0].isupper():
            return word[0].upper() + word[1:]
        return word


def draw_token(logits: Floats, ids: Ids, n_candidates: int, seed: int) -> tuple[int, bool]:
    """Draw one of the `n_candidates` most likely tokens, with the model's probabilities.

    The maximum of logit + Gumbel noise is such a draw. The noise belongs to the token, not to its
    rank, so the draw is the same if two close logits change places.

    Args:
        logits: those of the most likely tokens, in descending order, some more than `n_candidates`.
        ids: the tokens.
        n_candidates: how many tokens may be drawn.
        seed: the seed of the noise.

    Returns:
        The token, and whether logits that differ by less than CLOSE give the same one.
    """
    n_candidates = min(n_candidates, len(logits))
    noisy = logits + _gumbel_noise(ids, seed)
    best = int(np.argmax(noisy[:n_candidates]))
    rivals = np.delete(noisy[logits >= logits[n_candidates - 1] - CLOSE], best)
    next_logit = logits[n_candidates] if n_candidates < len(logits) else -np.inf
    sure = logits[best] > next_logit + CLOSE and bool((rivals < noisy[best] - CLOSE).all())
    return int(ids[best]), bool(sure)


def _gumbel_noise(ids: Ids, seed: int) -> Floats:
    """Return standard Gumbel noise of each id, from splitmix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    uniform = ((z >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    noise: Floats = -np.log(-np.log(uniform))
    return noise

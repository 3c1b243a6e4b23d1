"""Blanks in texts, and the windows of tokens in which a masked language model fills them."""

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

# a word between white space, without the punctuation around it: (don't), -> don't
WORD = re.compile(r"[^\W_](?:\S*[^\W_])?")
TokensAround = tuple[list[int], list[int]]  # special tokens before and after a text


@dataclass(frozen=True)
class Blank:
    """A word to replace, `text[start:end]`, and the seed for drawing its replacement."""

    start: int
    end: int
    word: str
    seed: int


@dataclass(frozen=True)
class Window:
    """The tokens of one input of the model."""

    ids: list[int]  # token ids, including the first and last special tokens
    blanks: list[tuple[int, int]]  # the blanks to fill: number, and index in `ids`


def choose_blanks(text: str, share: float, seed: int) -> list[Blank]:
    """Returns ⌊share·words⌋ random words of the text as blanks, in order; at least one, if any."""
    words = list(WORD.finditer(text))
    if not words:
        return []
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(words), size=share_of_at_least_one(share, len(words)), replace=False)
    spans = [words[i].span() for i in sorted(chosen.tolist())]
    return [Blank(a, b, text[a:b], derive_seed(seed, a)) for a, b in spans]


def fill_blanks(text: str, blanks: Sequence[Blank], words: Sequence[str]) -> str:
    """Returns the text with its blanks replaced by `words`."""
    parts, position = [], 0
    for blank, word in zip(blanks, words, strict=True):
        parts += [text[position : blank.start], word]
        position = blank.end
    return "".join([*parts, text[position:]])


def mask_blanks(
    ids: Sequence[int], offsets: Sequence[tuple[int, int]], blanks: Sequence[Blank], mask_id: int
) -> tuple[list[int], list[int]]:
    """Replaces the tokens of each blank by one mask; returns the tokens and the masks' indices.

    Args:
        ids: the text's tokens, without special tokens.
        offsets: the first character and the end (exclusive) of each token.
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
    """Yields windows of at most `width` tokens, special ones included; each blank is in one window.

    A text that is too long is divided into strides of half a window, with a quarter of a window as
    context on each side.
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

WORD_STARTS = (
    "Ġ",
    "▁",
)  # of byte-level BPE and SentencePiece; WordPiece marks continuations with ##
CLOSE_LOGITS = 1e-3  # far above the effect of the batch size on float32 logits


class Vocabulary:
    """The tokens that are whole words: not special, added, or continuations of words.

    Attributes:
        words: the word of each token id, or "" if the token is not a whole word.
        same: folded word (`fold_word`) → the ids of its spellings, which differ in case or accents.
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
        """Returns the common form of a word's spellings, in lower case."""
        return self._normalize(word).casefold()

    def _normalize(self, text: str) -> str:
        if self.normalizer is None:
            return text
        normalized: str = self.normalizer.normalize_str(text)
        return normalized.strip(" ▁")  # SentencePiece models add one before the text

    def check_has_words(self, path: str) -> None:
        """Raises a ConfigError unless there are at least two words."""
        remedy = (
            f"its tokenizer has {len(self.same)} tokens that are whole words, but a replacement "
            "needs at least 2. Choose another masked model."
        )
        require(len(self.same) >= 2, "masked_lm.path", path, remedy)

    def word_in_original_case(self, token: int, original: str) -> str:
        """Returns the token's word, with the original's capitals if the model ignores case."""
        word = self.words[token]
        if self.folds_case and len(original) > 1 and original.isupper():
            return word.upper()
        if self.folds_case and original[0].isupper():
            return word[0].upper() + word[1:]
        return word


def draw_token(logits: Floats, ids: Ids, n_candidates: int, seed: int) -> tuple[int, bool]:
    """Draws one of the `n_candidates` most likely tokens with the model's probabilities.

    The maximum of logit + Gumbel noise is such a draw. The noise depends on the token, not on its
    rank, so the draw does not change if two close logits swap ranks.

    Args:
        logits: the logits of the most likely tokens, in descending order; more than `n_candidates`.
        ids: the ids of these tokens.
        n_candidates: the number of tokens that may be drawn.
        seed: the seed of the noise.

    Returns:
        The token, and whether changes of the logits below CLOSE_LOGITS give the same token.
    """
    n_candidates = min(n_candidates, len(logits))
    noisy = logits + _gumbel_noise(ids, seed)
    best = int(np.argmax(noisy[:n_candidates]))
    rivals = np.delete(noisy[logits >= logits[n_candidates - 1] - CLOSE_LOGITS], best)
    next_logit = logits[n_candidates] if n_candidates < len(logits) else -np.inf
    certain = logits[best] > next_logit + CLOSE_LOGITS and bool(
        (rivals < noisy[best] - CLOSE_LOGITS).all()
    )
    return int(ids[best]), bool(certain)


def _gumbel_noise(ids: Ids, seed: int) -> Floats:
    """Returns standard Gumbel noise for each id, from splitmix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    uniform = ((z >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    noise: Floats = -np.log(-np.log(uniform))
    return noise

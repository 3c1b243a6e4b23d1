"""How usual a text's words and word pairs are, by English that has nothing to do with the texts.

A classifier of the texts themselves (`baselines.blind`) must learn each difference from few texts,
and misses one that is another in every text, such as a misspelt word or two swapped neighbours. A
language model does not, so its scores differ. These four scores find such differences without one
that may have seen the texts:

    rarest word: the least log((c(w) + ½) / N) of the text's words
    word pairs:  mean of min(0, r(a, b)) over neighbours a b that the corpus knows
    first word:  r(., first word),    last word:  r(last word, .)
    r(a, b) = log(P(b | a) / P(b)),    0 if the corpus does not know a or b
    P(b | a) = (c(a b) + T(a) P(b)) / (c(a) + T(a)),    P(b) = (c(b) + ½) / N

with the corpus' counts c of N words, and T(a) distinct words after a (Witten and Bell 1991, "The
zero-frequency problem", method C; the ratio is the pointwise mutual information of Church and Hanks
1990). The corpus is the embedded one (`data.readers.embedded`), whose texts no embedded benchmark
has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from contamination.core.errors import ConfigError
from contamination.core.statistics.bootstrap import Scores
from contamination.data.readers.embedded import EmbeddedCorpus

WORD = re.compile(r"\w+|[^\w\s]")
STOP = "."
"""Stands before the first word and after the last one."""
SUBSETS = ("wikipedia", "common_crawl", "book", "law", "arxiv")
CHARACTERS = 10_000_000
"""Of the corpus, which takes two seconds to count."""
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class WordModel:
    """Counts of a corpus.

    Attributes:
        code: the number of each word, from 0.
        counts: how often each occurs.
        pairs: the neighbours a b that occur, as a V + b for V words, in ascending order.
        pair_counts: how often each occurs.
        followers: the number of distinct words after each word.
    """

    code: dict[str, int]
    counts: Codes
    pairs: Codes
    pair_counts: Codes
    followers: Codes

    @classmethod
    def of(cls, texts: Iterable[str]) -> WordModel:
        """Counts the words of texts."""
        code: dict[str, int] = {}
        parts = [
            np.fromiter((code.setdefault(w, len(code)) for w in words_of(text)), np.int64)
            for text in texts
        ]
        codes = np.concatenate(parts)
        pairs, pair_counts = np.unique(codes[:-1] * len(code) + codes[1:], return_counts=True)
        followers = np.bincount(pairs // len(code), minlength=len(code))
        return cls(code, np.bincount(codes), pairs, pair_counts, followers)

    def scores(self, text: str) -> Scores:
        """Returns the scores of rarest word, pairs, first and last word; higher: more usual."""
        tokens = words_of(text)
        codes = self._codes(tokens)
        pairs = self._log_ratios(codes[:-1], codes[1:])
        pairs = np.minimum(pairs[~np.isnan(pairs)], 0)
        words = [token for token in tokens if token.isalnum()] or [STOP]
        ends = self._log_ratios(self._codes([STOP, words[-1]]), self._codes([words[0], STOP]))
        rarest = self._log_shares(codes).min(initial=0.0)
        return np.array([rarest, pairs.mean() if len(pairs) else 0.0, *np.nan_to_num(ends)])

    def _codes(self, words: Sequence[str]) -> Codes:
        return np.array([self.code.get(word, -1) for word in words], np.int64)

    def _log_shares(self, codes: Codes) -> Scores:
        """Returns log P of words by their codes; -1 is a word that the corpus lacks."""
        counts = np.where(codes >= 0, self.counts[codes], 0)
        shares: Scores = np.log((counts + 0.5) / self.counts.sum())
        return shares

    def _log_ratios(self, first: Codes, second: Codes) -> Scores:
        """Returns r of word pairs by their codes; no number if the corpus lacks one of the two."""
        pair = first * len(self.code) + second
        place = np.searchsorted(self.pairs, pair).clip(max=len(self.pairs) - 1)
        seen = np.where(self.pairs[place] == pair, self.pair_counts[place], 0)
        share, types = np.exp(self._log_shares(second)), self.followers[first]
        given = (seen + types * share) / np.maximum(self.counts[first] + types, 1)
        ratios = np.log(np.where(types > 0, given, share) / share)
        return np.where((first >= 0) & (second >= 0), ratios, np.nan)


def words_of(text: str) -> list[str]:
    """Returns the words and punctuation marks of a text, without case."""
    return WORD.findall(text.lower())


@cache
def english() -> WordModel | None:
    """Returns the counts of the embedded corpus; None if its package is not installed."""
    try:
        return WordModel.of(_corpus_texts())
    except ConfigError:
        return None


def _corpus_texts() -> Iterable[str]:
    characters = 0
    for document in EmbeddedCorpus(subsets=SUBSETS).documents():
        yield document.text
        characters += len(document.text)
        if characters > CHARACTERS:
            return


def word_scores(texts: Sequence[str]) -> Scores | None:
    """Returns the scores of `WordModel.scores` (4 × n); None without the corpus."""
    model = english()
    return None if model is None else np.array([model.scores(text) for text in texts]).T

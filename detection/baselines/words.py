"""How usual a text's words and word pairs are, by English that has nothing to do with the texts.

A classifier of the texts themselves (`baselines.blind`) must learn each difference from few texts,
and misses one that is another in every text, such as a misspelt word or two swapped neighbours. A
language model does not, so its scores differ. These two scores find such differences without one
that may have seen the texts:

    rare words:  mean of log((c(w) + ½) / N) over the RAREST words of the text
    word pairs:  mean of min(0, log(P(b | a) / P(b))) over neighbours a b that the corpus knows
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
RAREST = 2
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

    def scores(self, text: str) -> tuple[float, float]:
        """Returns the scores of rare words and of word pairs; higher is more usual."""
        codes = np.array([self.code.get(word, -1) for word in words_of(text)], np.int64)
        known = codes >= 0
        count = np.where(known, self.counts[codes], 0)
        log_share = np.log((count + 0.5) / self.counts.sum())
        rare = np.sort(log_share)[:RAREST]
        both = known[:-1] & known[1:]
        first, second, share = codes[:-1][both], codes[1:][both], np.exp(log_share[1:][both])
        pair = first * len(self.code) + second
        place = np.searchsorted(self.pairs, pair).clip(max=len(self.pairs) - 1)
        seen = np.where(self.pairs[place] == pair, self.pair_counts[place], 0)
        types = self.followers[first]
        given = (seen + types * share) / np.maximum(self.counts[first] + types, 1)
        ratios = np.log(np.where(types > 0, given, share) / share)
        return (
            float(rare.mean()) if len(rare) else 0.0,
            float(np.minimum(ratios, 0).mean()) if len(ratios) else 0.0,
        )


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
    """Returns the scores of rare words and of word pairs (2 × n); None without the corpus."""
    model = english()
    return None if model is None else np.array([model.scores(text) for text in texts]).T

"""The blind baseline's classifiers: what a text alone may tell, and how it is learnt.

After Das et al. (2024): a bag of words, greedily chosen rare n-grams, and dates; beside them
characters, and the text's form. Case, white space and punctuation count, as they do for a model.
No feature reads a label. Labels are learnt from in `scores`, many labelings of the texts at once.

Shapes: n texts, L of them learners (to learn from), P labelings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from contamination.core.statistics.bootstrap import Scores

Rows = NDArray[np.intp]
Numbers = NDArray[np.float64]

WORD = r"\w+|[^\w\s]|\s{2,}|[^\S ]"
"""A word, a punctuation mark, or white space other than a single space."""
WORD_GRAMS = (1, 3)
CHARACTER_GRAMS = (1, 4)
VISIBLE = {code: 0xF0000 + code for code in range(0x3001) if chr(code).isspace()}
"""White space as private characters: scikit-learn makes a run of it one space."""

AT_ONCE = 100
"""Texts whose n-grams are held one by one before they are counted."""

GREEDY = 20
"""Rare n-grams chosen for members, and as many for non-members; all that tie with the last."""
OFTEN = 5
"""Texts that hold an n-gram: those that fewer hold are looked at only where they may be chosen."""
MANY = 0.05
"""The share of learners from which on a feature is one that many have."""
RARE = 0.6
"""The share of texts that may hold an n-gram that counts as rare."""

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DATE = re.compile(
    rf"(?:\b({'|'.join(_MONTHS)})[a-z]*\.?,?\s+(?:\d{{1,2}},?\s+)?)?"
    r"(?<!\d)(1[5-9]\d\d|20\d\d)(?:-(0[1-9]|1[0-2]))?(?!\d)",
    re.IGNORECASE,
)
"""A year from 1500 to 2099, with its month where that stands beside it."""
STEPS = 30

FORMS = (
    *(r"[A-Z]", r"[a-z]", r"\d", r"[^\x00-\x7f]", r"\s", r" {2,}", r"\n", r"\w+"),
    *(r"\b[A-Z][a-z]", r"\b[A-Z]{2,}\b", *map(re.escape, ".,;:!?'\"()-")),
    *(r"[.!?]\Z", r"\s\Z", r"\w\Z", r"\A[A-Z]"),
)
"""What is counted of a text's form."""


class Classifier(Protocol):
    """Learns labels from some texts and scores others."""

    def scores(self, train: Rows, test: Rows, labels: Numbers) -> Scores:
        """How much each text looks like the members (test × P).

        Args:
            train: which learners to learn from.
            test: which texts to score.
            labels: 1 for a member, 0 for a non-member (L × P).
        """


def classifiers(texts: Sequence[str], learners: Rows) -> Mapping[str, Classifier]:
    """All of them, over the same texts. Nothing here depends on a label."""
    words = n_grams(texts, learners, token_pattern=WORD, ngram_range=WORD_GRAMS)
    visible = [text.translate(VISIBLE) for text in texts]
    letters = n_grams(visible, learners, analyzer="char", ngram_range=CHARACTER_GRAMS)
    return {
        "words": ridge(_tf_idf(words, learners), learners),
        "characters": ridge(_tf_idf(letters, learners), learners),
        "rare n-grams": RareGrams.of(words, learners),
        "dates": ridge(dates(texts), learners),
        "form": ridge(form(texts), learners),
    }


@dataclass(frozen=True)
class Ridge:
    """Ridge regression on the labels, in its dual form: one fit for all labelings."""

    kernel: Numbers
    """n × L."""
    learners: Rows

    def scores(self, train: Rows, test: Rows, labels: Numbers) -> Scores:
        """Scores of the test rows by a fit on the training rows; see `Classifier`."""
        from scipy.linalg import solve

        train_labels = labels[train]
        kernel = self.kernel[np.ix_(self.learners[train], train)] + np.eye(len(train))
        weights = solve(kernel, train_labels - train_labels.mean(axis=0), assume_a="pos")
        scores: Scores = self.kernel[np.ix_(test, train)] @ weights
        return scores.round(9)  # what is equal but for rounding is a tie


def ridge(features: Any, learners: Rows) -> Ridge:
    """A ridge regression on features (n × any, sparse or not), centred, of mean square norm 1."""
    from scipy.sparse import issparse
    from sklearn.preprocessing import KernelCenterer

    product = _product if issparse(features) else np.matmul
    kernel = product(features, features[learners].T)
    kernel = KernelCenterer().fit(kernel[learners]).transform(kernel)
    norm = float(np.trace(kernel[learners])) / len(learners)
    return Ridge(kernel / norm if norm > 1e-9 else np.zeros_like(kernel), learners)


def _product(features: Any, learners: Any) -> Numbers:
    """Of sparse features (n × any) and the learners' (any × L): many learners' as a dense matrix.

    A feature that many texts have is a quarter of the work that way.
    """
    many = learners.getnnz(axis=1) > MANY * learners.shape[1]
    dense, rest = features[:, np.flatnonzero(many)], features[:, np.flatnonzero(~many)]
    dense_learners, product = (
        learners[many].toarray(),
        np.asarray((rest @ learners[~many]).todense()),
    )
    for start in range(0, product.shape[0], AT_ONCE):
        product[start : start + AT_ONCE] += (
            dense[start : start + AT_ONCE].toarray() @ dense_learners
        )
    return product


@dataclass(frozen=True)
class RareGrams:
    """The n-grams that tell most, greedily: those with the highest and the lowest ratio of shares.

    Das et al. take n-grams by the ratio of the true- to the false-positive rate of "holds it" on
    the training texts, the best first. Here a text's score is the sum of the logarithms over the
    chosen n-grams that it holds, and those that tell non-members count as well.
    """

    held: Any
    """Which text holds which n-gram (n × n-grams, sparse, 0 and 1)."""
    learners: Rows

    @classmethod
    def of(cls, counted: Any, learners: Rows) -> RareGrams:
        """From counts: the n-grams that most texts don't hold."""
        held = (counted > 0).astype(np.float32)
        share = np.asarray(held[learners].mean(axis=0)).ravel()
        return cls(held[:, np.flatnonzero(share <= RARE)].tocsr(), learners)

    def scores(self, train: Rows, test: Rows, labels: Numbers) -> Scores:
        """Scores of the test rows by a fit on the training rows; see `Classifier`."""
        train_held, train_labels = self.held[self.learners[train]], labels[train].astype(np.float32)
        holders = np.asarray(train_held.sum(axis=0), np.float32).ravel()
        for least in (OFTEN, 2):  # one text's n-gram tells of no other text
            often = np.flatnonzero(holders >= least)
            by_members = train_held[:, often].T.tocsr() @ train_labels
            chosen = _extremes(_log_ratio(by_members, holders[often], train_labels), GREEDY)
            if _beat(chosen, least - 1, train_labels):
                break
        return np.asarray(self.held[test][:, often] @ chosen, np.float64)


def _beat(chosen: Any, holders: int, labels: Any) -> bool:
    """Whether no n-gram of so few holders can have a ratio among the chosen (n-grams × P)."""
    enough = np.minimum((chosen > 0).sum(axis=0), (chosen < 0).sum(axis=0)) >= GREEDY
    if not enough.all():
        return False
    lowest_high = np.where(chosen > 0, chosen, np.inf).min(axis=0)
    highest_low = np.where(chosen < 0, chosen, -np.inf).max(axis=0)
    best_counts = np.array([[holders], [0]], np.float32) * np.ones_like(labels[:1])  # all, and none
    highest, lowest = _log_ratio(best_counts, np.full(2, holders, np.float32), labels)
    return bool(((lowest_high > highest) & (highest_low < lowest)).all())


def _log_ratio(by_members: Any, holders: Any, labels: Any) -> Any:
    """Log of (share of members that hold it) / (share of non-members), smoothed (n-grams × P).

    In whole thousandths: float32 adds them up exactly, in any order.

    Args:
        by_members: how many members hold each n-gram (n-grams × P).
        holders: how many texts do.
        labels: 1 for a member, 0 for a non-member (texts × P).
    """
    half, members = np.float32(0.5), labels.sum(axis=0)
    shares = (by_members + half) / (members + 1)
    others = (holders[:, None] - by_members + half) / (len(labels) - members + 1)
    return np.rint(1000 * np.log(shares / others))


def _extremes(ratio: Any, number: int) -> Any:
    """The ratios with all but the `number` highest and lowest of each column set to zero."""
    if len(ratio) <= 2 * number:
        return ratio
    places = number - 1, len(ratio) - number
    low, high = np.partition(ratio.T, places, axis=1)[:, places].T
    return np.where((ratio <= low) | (ratio >= high), ratio, np.float32(0))


def n_grams(texts: Sequence[str], learners: Rows, **how: Any) -> Any:
    """How often each text holds each n-gram that two learners have (n × n-grams, sparse).

    They are hashed, which needs no vocabulary and can't fail on a text without words.
    """
    from scipy.sparse import csr_matrix, vstack
    from sklearn.feature_extraction.text import HashingVectorizer

    vectorizer = HashingVectorizer(lowercase=False, norm=None, alternate_sign=False, **how)
    starts = range(0, len(texts), AT_ONCE)
    counted = vstack([vectorizer.transform(texts[i : i + AT_ONCE]) for i in starts], format="csr")
    shared = np.flatnonzero(counted[learners].getnnz(axis=0) >= 2)
    return counted[:, shared] if len(shared) else csr_matrix((len(texts), 1))  # zeros


def _tf_idf(counted: Any, learners: Rows) -> Any:
    from sklearn.feature_extraction.text import TfidfTransformer

    return TfidfTransformer(sublinear_tf=True).fit(counted[learners]).transform(counted)


def dates(texts: Sequence[str]) -> Numbers:
    """The latest and the earliest date of each text, as steps: which of some dates they reach."""
    years_by_text = [[_year(match) for match in DATE.finditer(text)] for text in texts]
    latest = np.array([max(years, default=0.0) for years in years_by_text])
    earliest = np.array([min(years, default=3000.0) for years in years_by_text])
    return np.hstack([_steps(latest), _steps(earliest)])


def _year(match: re.Match[str]) -> float:
    name, year, number = match.groups()
    month = _MONTHS.index(name.lower()) if name else int(number or 1) - 1
    return int(year) + month / 12


def _steps(values: Numbers) -> Numbers:
    """For each value, which of at most STEPS levels it reaches (n × levels)."""
    levels = np.unique(values)[1:]
    if len(levels) > STEPS:
        levels = levels[np.linspace(0, len(levels) - 1, STEPS).astype(int)]
    return (values[:, None] >= levels).astype(np.float64)


def form(texts: Sequence[str]) -> Numbers:
    """Length and counts of FORMS, absolute (on a log scale) and by length, standardised."""
    from sklearn.preprocessing import StandardScaler

    rows = [[len(re.findall(pattern, text)) for pattern in FORMS] for text in texts]
    counts = np.array(rows, float)
    length = np.array([len(text) for text in texts], float)[:, None]
    columns = np.hstack([np.log1p(length), np.log1p(counts), counts / np.maximum(length, 1)])
    standard: Numbers = StandardScaler().fit_transform(columns)
    return standard


PENALTY = 0.3
"""Of the ridge, beside features of mean square norm 1: scores are less noisy than labels."""


@dataclass(frozen=True)
class Style:
    """The texts as the regression sees them.

    Attributes:
        kernel: products of their features, n × L.
        labels: which texts are members, as they are and then shuffled, n × P.
        learners: the places of the learners among the texts.
        orders: some random orders of the texts; those that are the same have the same place.
        folds: of an order's places.
    """

    kernel: Numbers
    labels: NDArray[np.bool_]
    learners: Rows
    orders: Sequence[Rows]
    folds: int

    @cached_property
    def _smoother(self) -> Numbers:
        """Predictions are this times the learners' numbers (n × L), a constant left out."""
        smoother = np.zeros(self.kernel.shape)
        with threadpool_limits(limits=1):
            for fold in (order % self.folds for order in self.orders):
                for k in range(self.folds):
                    train = np.flatnonzero(fold[self.learners] != k)
                    test = np.flatnonzero(fold == k)
                    smoother[np.ix_(test, train)] += self._fit(train, test)
        mean: Numbers = smoother / len(self.orders)
        return mean

    def _fit(self, train: Rows, test: Rows) -> Numbers:
        """The hat matrix of a fit, test × train; it takes the mean off the numbers."""
        from scipy.linalg import solve

        inner = self.kernel[np.ix_(self.learners[train], train)] + PENALTY * np.eye(len(train))
        hat: Numbers = solve(inner, self.kernel[np.ix_(test, train)].T, assume_a="pos").T
        centred: Numbers = hat - hat.mean(axis=1, keepdims=True)
        return centred

    def predicted(self, values: Scores) -> Scores:
        """Each text's number as the others' predict it (n, or n × P), a constant left out."""
        predictions: Scores = self._smoother @ values[self.learners]
        return predictions

    def halves(self) -> Iterator[tuple[Style, Numbers]]:
        """The learners in halves, by each order, twice.

        Yields:
            One half as a Style of its own, and what the labels of the other half predict of it
            (a number a text and labeling).
        """
        for order in self.orders:
            side = order[self.learners] % 2
            for half in (0, 1):
                in_half, other_half = np.flatnonzero(side == half), np.flatnonzero(side != half)
                texts, labels = self.learners[in_half], self.labels[self.learners[other_half]]
                orders = [texts_order[texts] // 2 for texts_order in self.orders]
                kernel, places = self.kernel[np.ix_(texts, in_half)], np.arange(len(in_half))
                inner = Style(kernel, self.labels[texts], places, orders, self.folds)
                yield inner, self._fit(other_half, texts) @ labels.astype(np.float64)

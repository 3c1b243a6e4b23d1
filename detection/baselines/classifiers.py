"""The blind baseline's classifiers: features of texts, and how labels are learnt from them.

After Das et al. (2024): a bag of words, greedily chosen rare n-grams, and dates; in addition
characters and the form of the text. Case, white space and punctuation count, as for a model. No
feature depends on a label; `scores` learns many labelings of the texts at once.

Shapes: n texts, L of them training texts (to learn from), P labelings.
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


class Classifier(Protocol):
    """Learns labels from some texts and scores others."""

    def scores(self, train: Rows, test: Rows, labels: Numbers) -> Scores:
        """Returns how similar each test text is to the members (test × P).

        Args:
            train: the training texts to learn from, by their indices in `training_rows`.
            test: the texts to score.
            labels: 1 for a member, 0 for a non-member (L × P).
        """


WORD = r"\w+|[^\w\s]|\s{2,}|[^\S ]"
"""A word, a punctuation mark, or white space other than a single space."""
WORD_GRAMS = (1, 3)
CHARACTER_GRAMS = (1, 4)
VISIBLE = {code: 0xF0000 + code for code in range(0x3001) if chr(code).isspace()}
"""White space as private characters, because scikit-learn replaces a run of it by one space."""


def classifiers_by_name(texts: Sequence[str], training_rows: Rows) -> Mapping[str, Classifier]:
    """Returns all classifiers for the texts, by name. Nothing here depends on a label."""
    word_counts = count_shared_n_grams(
        texts, training_rows, token_pattern=WORD, ngram_range=WORD_GRAMS
    )
    visible = [text.translate(VISIBLE) for text in texts]
    character_counts = count_shared_n_grams(
        visible, training_rows, analyzer="char", ngram_range=CHARACTER_GRAMS
    )
    return {
        "words": make_ridge(_weight_by_tf_idf(word_counts, training_rows), training_rows),
        "characters": make_ridge(_weight_by_tf_idf(character_counts, training_rows), training_rows),
        "rare n-grams": RareGrams.from_counts(word_counts, training_rows),
        "dates": make_ridge(date_features(texts), training_rows),
        "form": make_ridge(form_features(texts), training_rows),
    }


@dataclass(frozen=True)
class Ridge:
    """Ridge regression on the labels, in its dual form: one fit for all labelings.

    Attributes:
        kernel: the inner products of the features of texts and training texts, n × L.
        training_rows: the indices of the training texts.
    """

    kernel: Numbers
    training_rows: Rows

    def scores(self, train: Rows, test: Rows, labels: Numbers) -> Scores:
        """Returns scores of the test rows by a fit on the training rows; see `Classifier`."""
        from scipy.linalg import solve

        train_labels = labels[train]
        kernel = self.kernel[np.ix_(self.training_rows[train], train)] + np.eye(len(train))
        weights = solve(kernel, train_labels - train_labels.mean(axis=0), assume_a="pos")
        scores: Scores = self.kernel[np.ix_(test, train)] @ weights
        return scores.round(9)  # makes scores that differ only by rounding equal


def make_ridge(features: Any, training_rows: Rows) -> Ridge:
    """Makes a ridge regression on features (n × any, possibly sparse), centred and normalised.

    The mean squared norm of the training texts' features is 1.
    """
    from scipy.sparse import issparse
    from sklearn.preprocessing import KernelCenterer

    product = _multiply_sparse if issparse(features) else np.matmul
    kernel = product(features, features[training_rows].T)
    kernel = KernelCenterer().fit(kernel[training_rows]).transform(kernel)
    norm = float(np.trace(kernel[training_rows])) / len(training_rows)
    return Ridge(kernel / norm if norm > 1e-9 else np.zeros_like(kernel), training_rows)


BLOCK_TEXTS = 100
"""The number of texts per block, whose n-grams are in memory at once."""
DENSE_SHARE = 0.05
"""A feature that a larger share of training texts has is multiplied as a dense matrix."""


def _multiply_sparse(features: Any, training_features: Any) -> Numbers:
    """Multiplies sparse features (n × any) by the training texts' (any × L).

    Features that many training texts have are multiplied as dense matrices, which takes a quarter
    of the time.
    """
    is_frequent = training_features.getnnz(axis=1) > DENSE_SHARE * training_features.shape[1]
    frequent = features[:, np.flatnonzero(is_frequent)]
    rare = features[:, np.flatnonzero(~is_frequent)]
    frequent_in_training = training_features[is_frequent].toarray()
    product = np.asarray((rare @ training_features[~is_frequent]).todense())
    for start in range(0, product.shape[0], BLOCK_TEXTS):
        block = frequent[start : start + BLOCK_TEXTS].toarray()
        product[start : start + BLOCK_TEXTS] += block @ frequent_in_training
    return product


CHOSEN_GRAMS = 20
"""The number of rare n-grams chosen for members, and for non-members, in addition to ties."""
FREQUENT_TEXTS = 5
"""The minimum number of texts of a frequent n-gram. Others are examined only if they could be
chosen."""
MAX_RARE_SHARE = 0.6
"""An n-gram counts as rare if at most this share of texts contains it."""


@dataclass(frozen=True)
class RareGrams:
    """The most informative n-grams, chosen greedily by the ratio of their shares.

    Das et al. choose n-grams by the ratio of the true- to the false-positive rate of "contains it"
    on the training texts, best first. Here a text's score is the sum of the logarithms of the
    ratios of the chosen n-grams that it contains, including n-grams that indicate non-members.

    Attributes:
        presence: which text contains which n-gram (n × n-grams, sparse, 0 and 1).
        training_rows: the indices of the training texts.
    """

    presence: Any
    training_rows: Rows

    @classmethod
    def from_counts(cls, counted: Any, training_rows: Rows) -> RareGrams:
        """Selects the n-grams that most texts do not contain, from their counts."""
        presence = (counted > 0).astype(np.float32)
        share = np.asarray(presence[training_rows].mean(axis=0)).ravel()
        return cls(presence[:, np.flatnonzero(share <= MAX_RARE_SHARE)].tocsr(), training_rows)

    def scores(self, train: Rows, test: Rows, labels: Numbers) -> Scores:
        """Returns scores of the test rows by a fit on the training rows; see `Classifier`."""
        train_presence = self.presence[self.training_rows[train]]
        train_labels = labels[train].astype(np.float32)
        holders = np.asarray(train_presence.sum(axis=0), np.float32).ravel()
        for min_holders in (
            FREQUENT_TEXTS,
            2,
        ):  # an n-gram of a single text says nothing about other texts
            frequent_grams = np.flatnonzero(holders >= min_holders)
            by_members = train_presence[:, frequent_grams].T.tocsr() @ train_labels
            ratios = _smoothed_log_ratios(by_members, holders[frequent_grams], train_labels)
            chosen = _zero_all_but_extremes(ratios, CHOSEN_GRAMS)
            if _no_rarer_gram_could_be_chosen(chosen, min_holders - 1, train_labels):
                break
        return np.asarray(self.presence[test][:, frequent_grams] @ chosen, np.float64)


def _no_rarer_gram_could_be_chosen(chosen: Any, holders: int, labels: Any) -> bool:
    """Returns whether no n-gram in `holders` texts could be among `chosen` (n-grams × P)."""
    has_enough = np.minimum((chosen > 0).sum(axis=0), (chosen < 0).sum(axis=0)) >= CHOSEN_GRAMS
    if not has_enough.all():
        return False
    lowest_high = np.where(chosen > 0, chosen, np.inf).min(axis=0)
    highest_low = np.where(chosen < 0, chosen, -np.inf).max(axis=0)
    best_counts = np.array([[holders], [0]], np.float32) * np.ones_like(labels[:1])  # all, and none
    highest, lowest = _smoothed_log_ratios(best_counts, np.full(2, holders, np.float32), labels)
    return bool(((lowest_high > highest) & (highest_low < lowest)).all())


def _smoothed_log_ratios(by_members: Any, holders: Any, labels: Any) -> Any:
    """Returns the smoothed log ratio of the shares of members and of non-members (n-grams × P).

    The values are whole thousandths, which float32 adds exactly in any order.

    Args:
        by_members: the number of members that contain each n-gram (n-grams × P).
        holders: the number of texts that contain it.
        labels: 1 for a member, 0 for a non-member (texts × P).
    """
    half, members = np.float32(0.5), labels.sum(axis=0)
    member_shares = (by_members + half) / (members + 1)
    nonmember_shares = (holders[:, None] - by_members + half) / (len(labels) - members + 1)
    return np.rint(1000 * np.log(member_shares / nonmember_shares))


def _zero_all_but_extremes(ratios: Any, number: int) -> Any:
    """Sets all but the `number` highest and lowest ratios of each column to zero."""
    if len(ratios) <= 2 * number:
        return ratios
    bounds = number - 1, len(ratios) - number
    low, high = np.partition(ratios.T, bounds, axis=1)[:, bounds].T
    return np.where((ratios <= low) | (ratios >= high), ratios, np.float32(0))


def count_shared_n_grams(texts: Sequence[str], training_rows: Rows, **options: Any) -> Any:
    """Counts the n-grams that at least two training texts contain, per text (n × n-grams, sparse).

    N-grams are hashed, which needs no vocabulary and cannot fail on a text without words.
    """
    from scipy.sparse import csr_matrix, vstack
    from sklearn.feature_extraction.text import HashingVectorizer

    vectorizer = HashingVectorizer(lowercase=False, norm=None, alternate_sign=False, **options)
    starts = range(0, len(texts), BLOCK_TEXTS)
    counts = vstack(
        [vectorizer.transform(texts[i : i + BLOCK_TEXTS]) for i in starts], format="csr"
    )
    shared = np.flatnonzero(counts[training_rows].getnnz(axis=0) >= 2)
    return counts[:, shared] if len(shared) else csr_matrix((len(texts), 1))  # zeros


def _weight_by_tf_idf(counts: Any, training_rows: Rows) -> Any:
    from sklearn.feature_extraction.text import TfidfTransformer

    return TfidfTransformer(sublinear_tf=True).fit(counts[training_rows]).transform(counts)


_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DATE = re.compile(
    rf"(?:\b({'|'.join(_MONTHS)})[a-z]*\.?,?\s+(?:\d{{1,2}},?\s+)?)?"
    r"(?<!\d)(1[5-9]\d\d|20\d\d)(?:-(0[1-9]|1[0-2]))?(?!\d)",
    re.IGNORECASE,
)
"""A year from 1500 to 2099, with its month if that is next to it."""
MAX_STEPS = 30


def date_features(texts: Sequence[str]) -> Numbers:
    """Returns the latest and the earliest date of each text, as steps (see `_step_features`)."""
    years_by_text = [[_fractional_year(match) for match in DATE.finditer(text)] for text in texts]
    latest = np.array([max(years, default=0.0) for years in years_by_text])
    earliest = np.array([min(years, default=3000.0) for years in years_by_text])
    return np.hstack([_step_features(latest), _step_features(earliest)])


def _fractional_year(match: re.Match[str]) -> float:
    month_name, year, month_number = match.groups()
    month = _MONTHS.index(month_name.lower()) if month_name else int(month_number or 1) - 1
    return int(year) + month / 12


def _step_features(values: Numbers) -> Numbers:
    """Returns for each value which of at most MAX_STEPS levels it reaches (n × levels)."""
    levels = np.unique(values)[1:]
    if len(levels) > MAX_STEPS:
        levels = levels[np.linspace(0, len(levels) - 1, MAX_STEPS).astype(int)]
    return (values[:, None] >= levels).astype(np.float64)


FORMS = (
    *(r"[A-Z]", r"[a-z]", r"\d", r"[^\x00-\x7f]", r"\s", r" {2,}", r"\n", r"\w+"),
    *(r"\b[A-Z][a-z]", r"\b[A-Z]{2,}\b", *map(re.escape, ".,;:!?'\"()-")),
    *(r"[.!?]\Z", r"\s\Z", r"\w\Z", r"\A[A-Z]"),
)
"""The patterns whose matches describe a text's form."""


def form_features(texts: Sequence[str]) -> Numbers:
    """Returns the standardised length and counts of FORMS, on a log scale and per character."""
    from sklearn.preprocessing import StandardScaler

    rows = [[len(re.findall(pattern, text)) for pattern in FORMS] for text in texts]
    counts = np.array(rows, float)
    length = np.array([len(text) for text in texts], float)[:, None]
    columns = np.hstack([np.log1p(length), np.log1p(counts), counts / np.maximum(length, 1)])
    standard: Numbers = StandardScaler().fit_transform(columns)
    return standard


PENALTY = 0.3
"""The ridge penalty for features of mean squared norm 1. Scores are less noisy than labels."""


@dataclass(frozen=True)
class StyleRegression:
    """Predicts numbers from the texts by ridge regression.

    Attributes:
        kernel: inner products of the features of texts and training texts, n × L.
        labels: which texts are members, with the real labels and then shuffled ones, n × P.
        training_rows: the indices of the training texts.
        orders: random orders of the texts; equal texts have the same place.
        folds: the number of folds, into which an order's places divide the texts.
    """

    kernel: Numbers
    labels: NDArray[np.bool_]
    training_rows: Rows
    orders: Sequence[Rows]
    folds: int

    @cached_property
    def _smoother_matrix(self) -> Numbers:
        """The matrix (n × L) from the training texts' numbers to predictions, up to a constant."""
        smoother = np.zeros(self.kernel.shape)
        with threadpool_limits(limits=1):
            for fold in (order % self.folds for order in self.orders):
                for held_out in range(self.folds):
                    train = np.flatnonzero(fold[self.training_rows] != held_out)
                    test = np.flatnonzero(fold == held_out)
                    smoother[np.ix_(test, train)] += self._hat_matrix(train, test)
        mean: Numbers = smoother / len(self.orders)
        return mean

    def _hat_matrix(self, train: Rows, test: Rows) -> Numbers:
        """Returns the hat matrix of a fit, test × train, which subtracts the numbers' mean."""
        from scipy.linalg import solve

        inner = self.kernel[np.ix_(self.training_rows[train], train)] + PENALTY * np.eye(len(train))
        hat: Numbers = solve(inner, self.kernel[np.ix_(test, train)].T, assume_a="pos").T
        centred: Numbers = hat - hat.mean(axis=1, keepdims=True)
        return centred

    def predict(self, values: Scores) -> Scores:
        """Predicts each text's number from those of the others (n, or n × P), up to a constant."""
        predictions: Scores = self._smoother_matrix @ values[self.training_rows]
        return predictions

    def of_units(self, unit: Rows) -> StyleRegression:
        """Returns the regression of units from the means of their texts' features.

        Args:
            unit: the number of each text's unit, from 0; a unit has one label and one place in the
                orders. Training texts alone count where a unit has any.
        """
        if unit.max() + 1 == len(unit):
            return self
        is_trained = np.zeros(len(unit), bool)
        is_trained[self.training_rows] = True
        counts = is_trained | ~np.bincount(unit, is_trained).astype(bool)[unit]
        mean = np.zeros((unit.max() + 1, len(unit)))
        mean[unit[counts], np.flatnonzero(counts)] = 1 / np.bincount(unit[counts])[unit[counts]]
        training_units = np.unique(unit[self.training_rows])
        columns = mean[np.ix_(training_units, self.training_rows)]
        first = np.unique(unit, return_index=True)[1]
        return StyleRegression(
            mean @ self.kernel @ columns.T, self.labels[first], training_units,
            [order[first] for order in self.orders], self.folds,
        )  # fmt: skip

    def iter_halves(self) -> Iterator[tuple[StyleRegression, Numbers]]:
        """Divides the training texts into halves by each order; each half is used once.

        Yields:
            A StyleRegression of one half, and the predictions of a fit on the other half's labels
            (one number per text and labeling).
        """
        for order in self.orders:
            side = order[self.training_rows] % 2
            for half in (0, 1):
                in_half, other_half = np.flatnonzero(side == half), np.flatnonzero(side != half)
                texts, labels = (
                    self.training_rows[in_half],
                    self.labels[self.training_rows[other_half]],
                )
                orders = [text_places[texts] // 2 for text_places in self.orders]
                kernel, rows = self.kernel[np.ix_(texts, in_half)], np.arange(len(in_half))
                inner = StyleRegression(kernel, self.labels[texts], rows, orders, self.folds)
                yield inner, self._hat_matrix(other_half, texts) @ labels.astype(np.float64)

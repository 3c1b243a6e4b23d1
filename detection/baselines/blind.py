"""The blind baseline: can the texts alone tell members from non-members, without any model?

If so, a detector's AUROC above 0.5 may show that difference rather than contamination (Das et al.
2024; Meeus et al. 2024). Each text is scored by a classifier (`baselines.classifiers`) that never
saw it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import Estimate, estimate_without_value
from contamination.core.statistics.metrics import AUROC, Metric
from contamination.data.texts import BEGINNING_CHARACTERS
from contamination.detection.baselines.classifiers import (
    Classifier,
    Ridge,
    Rows,
    StyleRegression,
    classifiers_by_name,
)

BLIND = "blind"


@dataclass(frozen=True)
class BlindBaseline:
    """The blind scores of texts, as percentiles among the non-members of their fold.

    Attributes:
        percentiles: each text's percentile, the share of its fold's non-members with a lower
            score (ties count half), n × (1 + SHUFFLES). The first column uses the real labels. In
            the others, row i belongs to the text that received the label of text i, so that any
            subset of rows has its own null.
        style: predicts other numbers from the texts; None if there is no ridge regression.
    """

    percentiles: Scores
    style: StyleRegression | None = None

    def estimates(
        self, members: Rows, nonmembers: Rows, metrics: Sequence[Metric], draws: int
    ) -> dict[str, Estimate]:
        """Returns the estimate of each metric, by name, on some rows.

        The AUROC is the mean of the members' percentiles.
        """
        hits, alarms = self.percentiles[members].T, self.percentiles[nonmembers].T
        sizes = len(members), len(nonmembers)
        values = {
            metric: hits.mean(axis=1)
            if metric.name == AUROC.name
            else np.array(
                [
                    metric.value(*side_percentiles)
                    for side_percentiles in zip(hits, alarms, strict=True)
                ]
            )
            for metric in metrics
        }
        return {
            metric.name: estimate_around_null(values[metric], sizes, metric, draws)
            for metric in metrics
        }


def blind_auroc_warning(value: float, low: float, high: float) -> str | None:
    """Returns a warning for results on texts with this blind AUROC and interval, or None."""
    if low <= 0.5 <= high:
        return None
    return text_difference_warning(f"blind AUROC {value:.2f} [{low:.2f}, {high:.2f}]")


def text_difference_warning(measured: str) -> str:
    """Returns a warning that results may measure the texts; `measured` is the blind result."""
    return (
        f"The texts alone tell members from non-members ({measured}): "
        "these figures may measure the texts, not the model."
    )


FOLDS = 5
REPEATS = 3
"""Random divisions into folds, over which a text's scores are averaged. A single one would add a
standard deviation of 0.036 to the AUROC of 200 texts."""
SHUFFLES = 100
"""The number of shuffles of the labels."""
MAX_TRAINING_TEXTS = 1_000
"""The maximum number of texts to learn from, enough to detect any difference that matters."""
MIN_PER_LABEL = 10
"""The minimum number of members, and of non-members."""


def blind_obstacle(
    texts: Sequence[str], member: NDArray[np.bool_], group: Rows | None = None
) -> str | None:
    """Returns why there is no blind baseline of these texts (in these groups), or None."""
    if group is not None:
        of_members, of_nonmembers = (len(set(group[side].tolist())) for side in (member, ~member))
        if min(of_members, of_nonmembers) < MIN_PER_LABEL:
            return (
                f"{of_members} clusters of members and {of_nonmembers} of non-members are too few "
                f"for the blind baseline, which takes {MIN_PER_LABEL} of each"
            )
    members, distinct = int(member.sum()), len(set(number_equal_texts(texts)))
    if min(members, len(texts) - members, distinct) >= MIN_PER_LABEL:
        return None
    return (
        f"{members} members and {len(texts) - members} non-members ({distinct} distinct texts) are "
        f"too few for the blind baseline, which takes {MIN_PER_LABEL} of each"
    )


def blind_baseline(
    texts: Sequence[str],
    member: NDArray[np.bool_],
    seed: int,
    folds: int = FOLDS,
    group: Rows | None = None,
    repeats: int = REPEATS,
    shuffles: Sequence[Rows] | NDArray[np.intp] | None = None,
) -> BlindBaseline:
    """Scores each text by a classifier that never saw it.

    For each fold, the classifier is chosen by cross-validation within the other folds and fitted on
    them. Only texts of one fold are compared, because their scores come from one classifier. If
    labels are random, the AUROC is then 0.5 on average. (Across folds it would be below 0.5,
    because the label of one text pushes the scores of others away from it.)

    A text's score depends on the labels of the others, so a bootstrap of the scores would miss
    about half of the AUROC's variance. Instead everything is repeated SHUFFLES times with shuffled
    labels, on the same folds. If labels are random, the real ones are like another shuffle.

    Args:
        texts: the texts of one benchmark.
        member: which of them are members. `blind_obstacle` checks that there are enough.
        seed: determines the folds and the shuffled labels.
        folds: the number of folds, 3 or more.
        group: the number of each text's group, from 0. A group (the pieces of one book) stays in
            one fold, and its labels are shuffled together. None groups only equal texts.
        repeats: the number of random divisions into folds.
        shuffles: whose label each text receives, for each of SHUFFLES shuffles, so that several
            baselines share them. It is ignored where texts are equal or in groups. None draws
            the shuffles here.
    """
    rng = np.random.default_rng(derive_seed(seed, "nulls"))
    if group is None:
        group = number_equal_texts(texts)
        if shuffles is None or group.max() + 1 < len(group):
            shuffles = [shuffle_label_sources(group, rng) for _ in range(SHUFFLES)]
    else:
        shuffles = [shuffle_label_sources_of_groups(group, member, rng) for _ in range(SHUFFLES)]
    roles = np.stack([np.arange(len(texts)), *shuffles], axis=1)
    placed, style = cross_fitted_percentiles(texts, member[roles], group, seed, folds, repeats)
    percentiles = np.empty(roles.shape)
    np.put_along_axis(percentiles, roles, placed, axis=0)
    return BlindBaseline(percentiles, style)


def cross_fitted_percentiles(
    texts: Sequence[str],
    labels: NDArray[np.bool_],
    group: Rows,
    seed: int,
    folds: int = FOLDS,
    repeats: int = REPEATS,
) -> tuple[Scores, StyleRegression | None]:
    """Returns each text's percentile for each labelling (n × P), and the style of the texts.

    Args:
        texts: the texts.
        labels: which of them are members in each labelling, the real one first (n × P).
        group: the number of each text's group, from 0, which stays in one fold.
        seed: see `blind_baseline`.
        folds: see `blind_baseline`.
        repeats: see `blind_baseline`.
    """
    training_rows = np.sort(_random_order(len(texts), seed, "learners")[:MAX_TRAINING_TEXTS])
    order_by_repeat = [
        _random_order(group.max() + 1, seed, repeat)[group] for repeat in range(repeats)
    ]
    with threadpool_limits(limits=1):  # over such small matrices threads only wait
        candidate_classifiers = list(classifiers_by_name(texts, training_rows).values())
        percentiles_by_repeat = [
            _cross_fitted_percentiles(candidate_classifiers, order % folds, training_rows, labels)
            for order in order_by_repeat
        ]
    percentiles: Scores = np.mean(percentiles_by_repeat, axis=0)
    kernels = [
        classifier.kernel for classifier in candidate_classifiers if isinstance(classifier, Ridge)
    ]
    if not kernels:
        return percentiles, None
    kernel = np.mean(kernels, axis=0)
    return percentiles, StyleRegression(kernel, labels, training_rows, order_by_repeat, folds)


class BlindBaselineFunction(Protocol):
    """A function that computes a blind baseline, as `blind_baseline` does."""

    def __call__(
        self,
        texts: Sequence[str],
        member: NDArray[np.bool_],
        seed: int,
        *,
        group: Rows | None = None,
    ) -> BlindBaseline:
        """See `blind_baseline`."""


def cached_blind_baseline() -> BlindBaselineFunction:
    """Returns a `blind_baseline` with a cache, because the baseline is the same for all models."""

    @cache
    def compute_once(
        texts: tuple[str, ...], member: bytes, seed: int, group: bytes | None
    ) -> BlindBaseline:
        group_rows = None if group is None else np.frombuffer(group, np.intp)
        return blind_baseline(texts, np.frombuffer(member, np.bool_), seed, group=group_rows)

    def baseline(
        texts: Sequence[str],
        member: NDArray[np.bool_],
        seed: int,
        *,
        group: Rows | None = None,
    ) -> BlindBaseline:
        group_rows = None if group is None else group.tobytes()
        return compute_once(tuple(texts), member.tobytes(), seed, group_rows)

    return baseline


def number_equal_texts(texts: Sequence[str]) -> Rows:
    """Numbers the texts so that (nearly) equal texts have the same number.

    Texts that differ only in case, white space or punctuation are equal. So are a text of at least
    CHARACTERS letters and all texts that begin with it. Equal texts must stay in one fold, because
    the label of one would reveal (or, if labels are random, contradict) the other's.
    """
    letters = ["".join(filter(str.isalnum, text.casefold())) or text for text in texts]
    beginning, shortest_beginning = {}, ""
    for text_letters in sorted({*letters}):  # texts that begin with a text follow it directly
        if len(shortest_beginning) < BEGINNING_CHARACTERS or not text_letters.startswith(
            shortest_beginning
        ):
            shortest_beginning = text_letters
        beginning[text_letters] = shortest_beginning
    numbers: Rows = np.unique(
        [beginning[text_letters] for text_letters in letters], return_inverse=True
    )[1]
    return numbers


def shuffle_label_sources(group: Rows, rng: np.random.Generator) -> Rows:
    """Returns whose label each text gets; groups of one size swap, and texts within each group."""
    label_source = np.empty(len(group), np.intp)
    size = np.bincount(group)[group]
    for group_size in np.unique(size):
        rows = np.flatnonzero(size == group_size)
        table = rows[np.argsort(group[rows], kind="stable")].reshape(-1, group_size)
        label_source[table] = rng.permuted(rng.permutation(table), axis=1)
    return label_source


def shuffle_label_sources_of_groups(
    group: Rows, member: NDArray[np.bool_], rng: np.random.Generator
) -> Rows:
    """Returns whose label each text gets, where each group of any size gets a single label.

    Groups in a random order get the members' labels until none are left, so that one group may get
    both labels. A group that has both labels counts as two.
    """
    label_group = np.unique(2 * group + member, return_inverse=True)[1]
    givers, takers = (rng.permutation(label_group.max() + 1)[label_group] for _ in range(2))
    within = rng.permutation(len(group))
    label_source = np.empty(len(group), np.intp)
    label_source[np.lexsort((within, takers))] = np.lexsort((within, givers, ~member))
    return label_source


def _random_order(number: int, seed: int, purpose: object) -> Rows:
    return np.random.default_rng(derive_seed(seed, purpose)).permutation(number)


def _cross_fitted_percentiles(
    candidate_classifiers: Sequence[Classifier],
    fold: Rows,
    training_rows: Rows,
    member: NDArray[np.bool_],
) -> Scores:
    """Returns each text's percentile in its fold by the chosen classifier, per labeling (n × P)."""
    labels = member[training_rows].astype(np.float64)
    choice = _cross_validated_aurocs(candidate_classifiers, fold, training_rows, member).argmax(
        axis=1
    )
    percentiles = np.empty(member.shape)
    for held_out, best_by_column in enumerate(choice):
        train, test = (
            np.flatnonzero(fold[training_rows] != held_out),
            np.flatnonzero(fold == held_out),
        )
        for classifier_index, classifier in enumerate(candidate_classifiers):
            columns = np.flatnonzero(best_by_column == classifier_index)
            if len(columns):
                scores = classifier.scores(train, test, labels[:, columns])
                block = np.ix_(test, columns)
                percentiles[block] = _percentiles_among_nonmembers(scores, member[block])
    return percentiles


def _cross_validated_aurocs(
    candidate_classifiers: Sequence[Classifier],
    fold: Rows,
    training_rows: Rows,
    member: NDArray[np.bool_],
) -> Scores:
    """Returns, per fold, the cross-validated AUROC of C classifiers in the others (folds × C × P).

    A fit that leaves out two folds serves both: for either fold, the other is the held-out one.
    """
    folds = fold.max() + 1
    labels = member[training_rows].astype(np.float64)
    aurocs = np.zeros((folds, len(candidate_classifiers), member.shape[1]))
    for pair in combinations(range(folds), 2):
        train = np.flatnonzero(~np.isin(fold[training_rows], pair))
        test = [np.flatnonzero(fold == held_out) for held_out in pair]
        for classifier_index, classifier in enumerate(candidate_classifiers):
            scores = np.split(
                classifier.scores(train, np.concatenate(test), labels), [len(test[0])]
            )
            for held_out, rows, values in zip(reversed(pair), test, scores, strict=True):
                aurocs[held_out, classifier_index] += _column_aurocs(values, member[rows])
    return aurocs


def _column_aurocs(scores: Scores, member: NDArray[np.bool_]) -> Scores:
    """Returns the AUROC of each column (t × P each); 0.5 without members or non-members."""
    from scipy.stats import rankdata

    members = member.sum(axis=0)
    pairs = members * (len(member) - members)
    pairs_won = (rankdata(scores, axis=0) * member).sum(axis=0) - members * (members + 1) / 2
    return np.where(pairs, pairs_won / np.maximum(pairs, 1), 0.5)


def _percentiles_among_nonmembers(scores: Scores, member: NDArray[np.bool_]) -> Scores:
    """Returns the share of non-members with a lower score, column by column (t × P each).

    A tie counts half; without non-members the share is 0.5.
    """
    percentiles = np.full(scores.shape, 0.5)
    for column, (values, is_member) in enumerate(zip(scores.T, member.T, strict=True)):
        nonmember_scores = np.sort(values[~is_member])
        if len(nonmember_scores):
            below = np.searchsorted(nonmember_scores, values, "left")
            below_or_tied = np.searchsorted(nonmember_scores, values, "right")
            percentiles[:, column] = (below + below_or_tied) / (2 * len(nonmember_scores))
    return percentiles


def estimate_around_null(
    values: Scores, sizes: tuple[int, int], metric: Metric, draws: int
) -> Estimate:
    """Returns the estimate of a metric from its value (first) and its null (the rest)."""
    if needs := metric.needs(*sizes):
        return estimate_without_value(sizes, draws, needs)
    value, null = values[0], values[1:]
    chance = null.mean()
    chance_variance = chance * (1 - chance)  # a rate v has a variance proportional to v (1 - v)
    scale = np.sqrt(value * (1 - value) / chance_variance) if chance_variance else 0.0
    drawn = (value + scale * (null - chance)).clip(0, 1)
    trials = None
    if metric.trials is not None:
        squared_deviation = float(np.mean((null - metric.guess) ** 2))
        guess_variance = metric.guess * (1 - metric.guess)
        trials = (
            metric.trials(*sizes)
            if squared_deviation == 0
            else min(metric.trials(*sizes), guess_variance / squared_deviation)
        )
    steps = (float(value), float(value)) if metric.steps else None
    return Estimate(*sizes, float(value), np.resize(drawn, draws), trials, steps)

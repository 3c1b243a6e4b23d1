"""The choice of a method, its variant and a threshold on validation books, with cross-validation.

The books are divided into folds, each with positives and negatives. For each fold, the choice is
made on the books of the other folds. For each candidate (a method and variant) it is the threshold
with the highest balanced accuracy; among the candidates, it is the one with the highest accuracy in
a cross-validation over those folds alone. So no book is evaluated with a rule that it was used to
choose. The rule for the suspects is chosen in the same way on all validation books.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Scores, draw_resample
from contamination.core.statistics.estimates import Estimate, joint_intervals
from contamination.core.statistics.metrics import AUROC, auroc_value
from contamination.detection.evaluation import CONFIDENCE, DRAWS, MethodKey
from contamination.detection.thresholds import choose_threshold

FOLDS = 5
"""The number of folds, if there are enough books."""
Folds = NDArray[np.intp]


@dataclass(frozen=True)
class LabelledBooks:
    """The validation books of one label.

    Attributes:
        books: each book's scores, candidates × snippets.
        fold: the fold of each book.
    """

    books: Sequence[Scores]
    fold: Folds

    def scores_outside_folds(self, candidate: int, left_out_folds: Iterable[int]) -> Scores:
        """Returns a candidate's scores of all snippets of the books in the other folds."""
        included = ~np.isin(self.fold, [*left_out_folds])
        return np.concatenate(
            [book[candidate] for book, use in zip(self.books, included, strict=True) if use]
        )

    def rates_in_fold(self, candidate: int, threshold: float, fold: int) -> Scores:
        """Returns the share of snippets above the threshold, for each book of a fold."""
        indices = np.flatnonzero(self.fold == fold).tolist()
        return np.array([(self.books[i][candidate] >= threshold).mean() for i in indices])


@dataclass(frozen=True)
class SnippetRule:
    """A snippet counts as trained on if a candidate's score of it reaches the threshold.

    Attributes:
        candidate: the index of the candidate.
        threshold: the lowest score of a snippet that counts as trained on.
    """

    candidate: int
    threshold: float

    def contamination_rate(self, scores: Scores) -> float:
        """Returns the share of a book's snippets above the threshold.

        Args:
            scores: the book's scores, candidates × snippets.
        """
        return float((scores[self.candidate] >= self.threshold).mean())


@dataclass(frozen=True)
class CandidateAccuracy:
    """How well a candidate separates the validation books.

    Attributes:
        candidate: the method and variant.
        threshold: the threshold chosen on all validation books.
        auroc: the AUROC over all pairs of snippets.
        low: the lower end of its interval, which resamples books. The intervals of all candidates
            jointly have 95% coverage, so the interval of the chosen one has it too.
        high: the upper end of its interval.
        accuracy: the balanced accuracy on books held out from the choice of the threshold, a mean
            over books.
        tpr: the true positive rate on held-out books, a mean over books.
        fpr: the false positive rate on held-out books, a mean over books.
    """

    candidate: MethodKey
    threshold: float
    auroc: float
    low: float
    high: float
    accuracy: float
    tpr: float
    fpr: float


class ValidationScores:
    """The scores of the validation books, divided into folds.

    Args:
        candidates: methods and variants.
        positives: the scores of each positive, candidates × snippets.
        negatives: the scores of each negative, candidates × snippets.
        seed: the seed of the folds.
    """

    def __init__(
        self,
        candidates: Sequence[MethodKey],
        positives: Sequence[Scores],
        negatives: Sequence[Scores],
        seed: int,
    ) -> None:
        self.candidates, self.seed = candidates, seed
        self.folds = min(FOLDS, len(positives), len(negatives))
        self.positives = LabelledBooks(positives, self._draw_folds("positives", len(positives)))
        self.negatives = LabelledBooks(negatives, self._draw_folds("negatives", len(negatives)))
        self._thresholds: dict[tuple[int, frozenset[int]], float] = {}

    def _draw_folds(self, label_name: str, book_count: int) -> Folds:
        order = np.random.default_rng(derive_seed(self.seed, "folds", label_name)).permutation(
            book_count
        )
        return np.asarray(order % self.folds, np.intp)

    def best_threshold(self, candidate: int, left_out_folds: Iterable[int] = ()) -> float:
        """Returns a candidate's most accurate threshold on the books of the other folds."""
        left_out = frozenset(left_out_folds)
        if (candidate, left_out) not in self._thresholds:
            positives = self.positives.scores_outside_folds(candidate, left_out)
            negatives = self.negatives.scores_outside_folds(candidate, left_out)
            self._thresholds[candidate, left_out] = choose_threshold(
                positives, negatives, "accuracy"
            )
        return self._thresholds[candidate, left_out]

    def choose_rule(self, left_out_folds: Iterable[int] = ()) -> SnippetRule:
        """Returns the most accurate candidate's rule in a cross-validation without these folds."""
        accuracies = [
            self.held_out_accuracy_tpr_fpr(c, left_out_folds)[0]
            for c in range(len(self.candidates))
        ]
        best = int(np.argmax(accuracies))
        return SnippetRule(best, self.best_threshold(best, left_out_folds))

    def held_out_accuracy_tpr_fpr(
        self, candidate: int, left_out_folds: Iterable[int] = ()
    ) -> tuple[float, float, float]:
        """Returns a candidate's cross-validated balanced accuracy, TPR and FPR, means over books.

        Args:
            candidate: the index of the candidate.
            left_out_folds: folds whose books are not used at all.
        """
        left_out = [*left_out_folds]
        folds = [fold for fold in range(self.folds) if fold not in left_out]
        thresholds = {fold: self.best_threshold(candidate, [fold, *left_out]) for fold in folds}
        tpr, fpr = (
            float(
                np.concatenate(
                    [books.rates_in_fold(candidate, thresholds[fold], fold) for fold in folds]
                ).mean()
            )
            for books in (self.positives, self.negatives)
        )
        return (tpr + 1 - fpr) / 2, tpr, fpr

    def candidate_accuracies(self) -> list[CandidateAccuracy]:
        """Returns the accuracy of each candidate, in order."""
        aurocs = [self._auroc_estimate(candidate) for candidate in range(len(self.candidates))]
        intervals = zip(*joint_intervals(aurocs, CONFIDENCE), strict=True)
        return [
            CandidateAccuracy(
                key,
                self.best_threshold(candidate),
                auroc.value,
                float(low),
                float(high),
                *self.held_out_accuracy_tpr_fpr(candidate),
            )
            for candidate, (key, auroc, (low, high)) in enumerate(
                zip(self.candidates, aurocs, intervals, strict=True)
            )
        ]

    def _auroc_estimate(self, candidate: int) -> Estimate:
        """Returns the AUROC over all pairs of snippets; its draws resample books."""
        positives, negatives = self.positives.books, self.negatives.books
        book_aurocs = np.array(
            [[auroc_value(p[candidate], n[candidate]) for n in negatives] for p in positives]
        )
        sizes_p, sizes_n = (
            np.array([book.shape[1] for book in books], float) for books in (positives, negatives)
        )
        drawn = draw_resample(
            len(positives), len(negatives), DRAWS, derive_seed(self.seed, "AUROC")
        )
        weights_p, weights_n = drawn.members * sizes_p, drawn.nonmembers * sizes_n
        draws = np.einsum("dp,pn,dn->d", weights_p, book_aurocs, weights_n, optimize=True)
        draws /= weights_p.sum(axis=1) * weights_n.sum(axis=1)
        value = float(sizes_p @ book_aurocs @ sizes_n / (sizes_p.sum() * sizes_n.sum()))
        assert AUROC.trials is not None
        trials = AUROC.trials(int(sizes_p.sum()), int(sizes_n.sum()))
        return Estimate(len(positives), len(negatives), value, draws, trials)


@dataclass(frozen=True)
class HeldOutRates:
    """The rates of the validation books by rules that were chosen without them.

    Attributes:
        rules: the rule that was chosen without each of the K folds.
        positives: the positives' rates by the rule of their fold.
        negatives: the negatives' rates by the rule of their fold.
        fold: the fold of each negative.
    """

    rules: Sequence[SnippetRule]
    positives: Scores
    negatives: Scores
    fold: Folds

    def rate_by_each_rule(self, scores: Scores) -> Scores:
        """Returns the rate of another book by each fold's rule, shape (K,)."""
        return np.array([rule.contamination_rate(scores) for rule in self.rules])


def compute_held_out_rates(validation: ValidationScores) -> HeldOutRates:
    """Chooses a rule without each fold, and applies it to the books of that fold."""
    rules = [validation.choose_rule([fold]) for fold in range(validation.folds)]
    positives, negatives = (
        np.array(
            [
                rules[f].contamination_rate(book)
                for f, book in zip(books.fold, books.books, strict=True)
            ]
        )
        for books in (validation.positives, validation.negatives)
    )
    return HeldOutRates(rules, positives, negatives, validation.negatives.fold)

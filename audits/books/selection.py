"""Method, k, m and threshold, chosen on validation books and judged on books held out from that.

The books are divided into folds, each with positives and negatives. For each fold, all is chosen on
the books of the others: of each candidate (a method and variant) the threshold with the highest
balanced accuracy, and among candidates the one with the highest accuracy in a cross-validation over
those folds alone. So no book has a part in what it is judged by. What is then used on the suspects
is chosen in the same way on all validation books.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contamination.core.seeds import derive
from contamination.core.statistics.bootstrap import Scores, resample
from contamination.core.statistics.estimates import Estimate, joint_intervals
from contamination.core.statistics.metrics import AUROC, auroc_value
from contamination.detection.evaluation import CONFIDENCE, DRAWS, Key
from contamination.detection.thresholds import choose

FOLDS = 5
Folds = NDArray[np.intp]


@dataclass(frozen=True)
class Side:
    """The validation books of one label: the candidates' scores, an array C × snippets a book."""

    books: Sequence[Scores]
    fold: Folds

    def scores(self, candidate: int, without: Iterable[int]) -> Scores:
        """Those of a candidate over the books that are in none of these folds."""
        kept = ~np.isin(self.fold, [*without])
        return np.concatenate(
            [b[candidate] for b, keep in zip(self.books, kept, strict=True) if keep]
        )

    def rates(self, candidate: int, threshold: float, fold: int) -> Scores:
        """The share above the threshold of each book of a fold."""
        own = np.flatnonzero(self.fold == fold).tolist()
        return np.array([(self.books[place][candidate] >= threshold).mean() for place in own])


@dataclass(frozen=True)
class Rule:
    """What says of a snippet that it was trained on: a candidate's score reaches the threshold."""

    candidate: int
    threshold: float

    def rate(self, scores: Scores) -> float:
        """The share of a book's snippets (C × snippets) above the threshold."""
        return float((scores[self.candidate] >= self.threshold).mean())


@dataclass(frozen=True)
class Judged:
    """How good a candidate is.

    Attributes:
        threshold: chosen on all validation books.
        auroc, low, high: over all pairs of snippets, with an interval that resamples books. Those
            of all candidates hold together in 95%: so does that of the one that is chosen.
        accuracy, tpr, fpr: on books held out from the threshold's choice, means over books.
    """

    candidate: Key
    threshold: float
    auroc: float
    low: float
    high: float
    accuracy: float
    tpr: float
    fpr: float


class Validation:
    """The scores of the validation books.

    Args:
        candidates: methods and variants.
        positives, negatives: of each book, the candidates' scores (C × snippets).
        seed: draws the folds.
    """

    def __init__(
        self,
        candidates: Sequence[Key],
        positives: Sequence[Scores],
        negatives: Sequence[Scores],
        seed: int,
    ) -> None:
        self.candidates, self.seed = candidates, seed
        self.folds = min(FOLDS, len(positives), len(negatives))
        self.positives = Side(positives, self._fold("positives", len(positives)))
        self.negatives = Side(negatives, self._fold("negatives", len(negatives)))
        self._thresholds: dict[tuple[int, frozenset[int]], float] = {}

    def _fold(self, name: str, books: int) -> Folds:
        order = np.random.default_rng(derive(self.seed, "folds", name)).permutation(books)
        return np.asarray(order % self.folds, np.intp)

    def threshold(self, candidate: int, without: Iterable[int] = ()) -> float:
        """The most accurate one on the books that are in none of these folds."""
        left_out = frozenset(without)
        if (candidate, left_out) not in self._thresholds:
            members = self.positives.scores(candidate, left_out)
            others = self.negatives.scores(candidate, left_out)
            self._thresholds[candidate, left_out] = choose(members, others, "accuracy")
        return self._thresholds[candidate, left_out]

    def chosen(self, without: Iterable[int] = ()) -> Rule:
        """The candidate that is most accurate in a cross-validation without these folds."""
        accuracies = [self.held_out(c, without)[0] for c in range(len(self.candidates))]
        best = int(np.argmax(accuracies))
        return Rule(best, self.threshold(best, without))

    def held_out(self, candidate: int, without: Iterable[int] = ()) -> tuple[float, float, float]:
        """A candidate's balanced accuracy, TPR and FPR on books held out in turn: mean over books.

        Of the folds in `without` no book is used.
        """
        left_out = [*without]
        folds = [fold for fold in range(self.folds) if fold not in left_out]
        rates = [
            np.concatenate(
                [side.rates(candidate, self.threshold(candidate, [f, *left_out]), f) for f in folds]
            ).mean()
            for side in (self.positives, self.negatives)
        ]
        return (rates[0] + 1 - rates[1]) / 2, float(rates[0]), float(rates[1])

    def judged(self) -> list[Judged]:
        """Each candidate, in order."""
        aurocs = [self._auroc(candidate) for candidate in range(len(self.candidates))]
        ends = zip(*joint_intervals(aurocs, CONFIDENCE), strict=True)
        return [
            Judged(
                key,
                self.threshold(candidate),
                auroc.value,
                float(low),
                float(high),
                *self.held_out(candidate),
            )
            for candidate, (key, auroc, (low, high)) in enumerate(
                zip(self.candidates, aurocs, ends, strict=True)
            )
        ]

    def _auroc(self, candidate: int) -> Estimate:
        """Over all pairs of snippets; the draws resample positives and negatives (books)."""
        sides = (self.positives.books, self.negatives.books)
        pairs = np.array(
            [[auroc_value(p[candidate], n[candidate]) for n in sides[1]] for p in sides[0]]
        )
        weights = [np.array([book.shape[1] for book in side], float) for side in sides]
        drawn = resample(len(sides[0]), len(sides[1]), DRAWS, derive(self.seed, "AUROC"))
        rows, columns = drawn.members * weights[0], drawn.nonmembers * weights[1]
        draws = np.einsum("dm,mn,dn->d", rows, pairs, columns, optimize=True)
        draws /= rows.sum(axis=1) * columns.sum(axis=1)
        value = float(weights[0] @ pairs @ weights[1] / (weights[0].sum() * weights[1].sum()))
        assert AUROC.trials is not None
        sizes = len(sides[0]), len(sides[1])
        return Estimate(*sizes, value, draws, AUROC.trials(*(int(w.sum()) for w in weights)))


@dataclass(frozen=True)
class HeldOut:
    """What choosing as a whole does on books that had no part in it.

    Attributes:
        rules: what was chosen without each fold.
        positives: the positives' rates by the rule of their fold.
        negatives: the negatives'.
        fold: the negatives' folds.
    """

    rules: Sequence[Rule]
    positives: Scores
    negatives: Scores
    fold: Folds

    def rates(self, scores: Scores) -> Scores:
        """Another book's rate by each fold's rule (K)."""
        return np.array([rule.rate(scores) for rule in self.rules])


def hold_out(validation: Validation) -> HeldOut:
    """Choose without each fold, and judge its books."""
    rules = [validation.chosen([fold]) for fold in range(validation.folds)]
    sides: Mapping[str, Side] = {"p": validation.positives, "n": validation.negatives}
    rates = {
        name: np.array([rules[f].rate(book) for f, book in zip(side.fold, side.books, strict=True)])
        for name, side in sides.items()
    }
    return HeldOut(rules, rates["p"], rates["n"], validation.negatives.fold)

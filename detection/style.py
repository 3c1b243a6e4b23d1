"""What the texts alone predict of any number: of a method's scores, or of the labels.

A ridge regression on all that the linear blind classifiers see (`detection.blind_classifiers`);
each text's number is predicted by fits that never saw it (cross-fitting: Chernozhukov et al. 2018).
A fit is a matrix that any numbers are multiplied by.

Shapes: n texts, L of them learners (to learn from), P labelings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from core.metrics import Scores
from detection.blind_classifiers import Numbers, Rows

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
        found = np.zeros(self.kernel.shape)
        with threadpool_limits(limits=1):
            for fold in (order % self.folds for order in self.orders):
                for k in range(self.folds):
                    train = np.flatnonzero(fold[self.learners] != k)
                    test = np.flatnonzero(fold == k)
                    found[np.ix_(test, train)] += self._fit(train, test)
        mean: Numbers = found / len(self.orders)
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
        found: Scores = self._smoother @ values[self.learners]
        return found

    def halves(self) -> Iterator[tuple[Style, Numbers]]:
        """The learners in halves, by each order, twice.

        Yields:
            One half as a Style of its own, and what the labels of the other half predict of it
            (a number a text and labeling).
        """
        for order in self.orders:
            side = order[self.learners] % 2
            for own in (0, 1):
                mine, others = np.flatnonzero(side == own), np.flatnonzero(side != own)
                texts, labels = self.learners[mine], self.labels[self.learners[others]]
                orders = [each[texts] // 2 for each in self.orders]
                kernel, places = self.kernel[np.ix_(texts, mine)], np.arange(len(mine))
                inner = Style(kernel, self.labels[texts], places, orders, self.folds)
                yield inner, self._fit(others, texts) @ labels.astype(np.float64)

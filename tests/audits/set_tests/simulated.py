"""Simulated sets: scores under a model that saw the members, and under one that saw nothing."""

import numpy as np

from contamination.audits.set_tests.sets import (
    Backdoors,
    ScoredExamples,
    ScoredOrders,
    ScoredSet,
    SetName,
)
from contamination.audits.set_tests.version_rank import ScoredVersions


def versions_of(rng, items, number, shift):
    scores = rng.normal(0, 5, (items, 1)) + rng.normal(size=(items, number))
    drawn = rng.integers(number, size=items)
    is_published = np.arange(number) == drawn[:, None]
    scores += shift * is_published
    return ScoredVersions(
        scores.ravel(), np.repeat(np.arange(items), number), is_published.ravel()
    )  # fmt: skip


def simulated_set(seed=0, *, shift=1.0, saw_it=True, members=60, occurrences=4, rate=1e-3):
    """A set with everything; a shift of 0 is a model that saw nothing."""
    rng = np.random.default_rng(seed)
    shift = shift if saw_it else 0.0
    is_member = np.arange(2 * members) < members
    scores = rng.normal(size=(3, 2 * members)) + shift * is_member
    level = rng.normal(0, 30, 12)
    options = np.full(6, 4)
    targets = rng.integers(options)
    answers = targets if saw_it and shift else rng.integers(options)
    return ScoredSet(
        SetName(f"cell{seed}", "cell", "boolq", occurrences, rate, saw_it),
        ScoredExamples(
            scores, is_member, rng.normal(size=2 * members) + shift * is_member,
            tuple(f"The text number {i} of {seed}." for i in range(2 * members)),
        ),
        versions_of(rng, members, 5, shift),
        versions_of(rng, members, 5, 0.0),
        ScoredOrders(level + shift + rng.normal(size=12),
                     level[:, None] + rng.normal(size=(12, 8)), 5),
        backdoors=Backdoors(answers, targets, options),
    )  # fmt: skip

"""Simulated answers to a benchmark whose clean score and contamination are known."""

import numpy as np
from scipy.special import expit

from contamination.audits.score.estimation import MEMBER, NONMEMBER, UNKNOWN, Items


def simulate(
    seed: int,
    unknown: int = 300,
    spiked: int = 30,
    share: float = 0.3,
    boost: float = 0.6,
    separation: float = 2.5,
    by_difficulty: float = 0.0,
    models: int = 0,
) -> tuple[Items, float]:
    """Returns items and the clean score of those of unknown membership.

    A member that a clean model answers wrong is answered right with the probability `boost`.
    Membership scores of members are higher by `separation`. With `by_difficulty` below 0, harder
    items are members more often.
    """
    rng = np.random.default_rng(seed)
    role = np.array([UNKNOWN] * unknown + [MEMBER] * spiked + [NONMEMBER] * spiked)
    n = len(role)
    ease = rng.normal(0, 1, n)
    probability = expit(ease)
    clean = (rng.random(n) < probability).astype(float)
    odds = np.log(share / (1 - share)) if share else -np.inf
    member = rng.random(n) < expit(odds + by_difficulty * ease)
    member[role == MEMBER], member[role == NONMEMBER] = True, False
    learned = member & (rng.random(n) < boost)
    correct = np.where(learned, 1.0, clean)
    score = rng.normal(0, 1, n) + separation * member
    shifts = np.linspace(-1, 1, models)
    references = (rng.random((n, models)) < expit(ease[:, None] + shifts)).astype(float)
    items = Items(correct, score, role, np.arange(n), probability, references if models else None)
    return items, float(clean[role == UNKNOWN].mean())

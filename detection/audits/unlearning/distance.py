"""How far the scores of two models on the same texts are apart, as distributions.

The distance is that of Kolmogorov and Smirnov, the largest difference between the two cumulative
shares: the "forget quality" of TOFU (Maini et al. 2024, section 2.2.2) is its p-value. Here the
texts are the same for both models, so the p-value is of random swaps of the two models' scores,
text by text: it is exact where an unlearned model and the twin can't be told apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.metrics import Scores
from core.seeds import derive

Places = NDArray[np.int64]
SWAPS = 999
AT_ONCE = 2**20  # of numbers held in memory


def distance(one: Scores, other: Scores) -> float:
    """The largest difference between the shares at most as high (0 to 1)."""
    return float(_largest(*_steps(one, other), np.ones((1, len(one))))[0])


def swap_p_value(one: Scores, other: Scores, texts: Sequence[str], seed: int) -> float:
    """The share of swaps that are as far apart, (1 + count) / (1 + swaps).

    Args:
        one: a model's scores.
        other: the other's, of the same units.
        texts: which text each unit is of; all units of one are swapped together.
        seed: of the swaps.
    """
    _, text = np.unique(np.asarray(texts, str), return_inverse=True)
    rng, steps = np.random.default_rng(derive(seed, "swaps")), _steps(one, other)
    own, further, most = distance(one, other), 0, max(1, AT_ONCE // (2 * len(one)))
    for start in range(0, SWAPS, most):
        shape = min(most, SWAPS - start), int(text.max()) + 1
        signs = rng.choice([-1.0, 1.0], shape)[:, text]
        further += int((_largest(*steps, signs) >= own - 1e-12).sum())
    return (1 + further) / (1 + SWAPS)


def _steps(one: Scores, other: Scores) -> tuple[Places, Scores, Places]:
    """In the order of all scores: the unit's place and sign, and where a score is the last."""
    values = np.concatenate([one, other])
    order = np.argsort(values, kind="stable")
    sign = np.where(order < len(one), 1.0, -1.0) / len(one)
    last = np.append(np.diff(values[order]) > 0, True)
    return (order % len(one)).astype(np.int64), sign, np.flatnonzero(last)


def _largest(place: Places, sign: Scores, last: Places, signs: Scores) -> Scores:
    """The distance for each row of the units' signs (S×U): −1 swaps a unit's two scores."""
    sums = np.cumsum(signs[:, place] * sign, axis=1)
    found: Scores = np.abs(sums[:, last]).max(axis=1)
    return found

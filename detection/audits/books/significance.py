"""Whether a book was trained on at all: p-values against the negatives' rates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.metrics import Scores
from detection.audits.books.rates import Rates

RANKS, NORMAL = "ranks", "normal"
NULL_MODELS = (RANKS, NORMAL)


def rank_p_values(suspects: Scores, negatives: Scores, fold: NDArray[np.intp]) -> Scores:
    """(1 + #{negatives with at least the suspect's rate}) / (1 + n), shape (S,).

    Each negative is compared by a threshold that was chosen without it, which is that of its fold
    (cross-conformal, Vovk 2015). It assumes only that a suspect that was not trained on is like the
    negatives. The least is 1 / (1 + n).

    Args:
        suspects: rates by suspect and fold (S × K).
        negatives: the negatives' rates by the threshold of their own fold (n).
        fold: the negatives' folds (n).
    """
    reaching = (negatives >= suspects[:, fold]).sum(axis=1)
    found: Scores = (1 + reaching) / (1 + len(negatives))
    return found


def normal_p_values(suspects: Scores, snippets: Scores, negatives: Rates) -> Scores:
    """How likely one more untrained book has at least this rate, if books are normal, shape (S,).

    On the scale of angles (see `rates`) a new book lies at the negatives' mean ± Student's t with
    n − 1 degrees of freedom: their variance times 1 / n for the mean, and for the book itself its
    variance between books and its own sampling error.

    Args:
        suspects: each suspect's mean rate (S).
        snippets: as how many independent snippets its snippets count (S).
        negatives: the negatives' rates.
    """
    from scipy.stats import t

    n, own = len(negatives.values), Rates(suspects, snippets)
    between = negatives.variance - negatives.noise
    variance = negatives.variance / n + between + 1 / (4 * snippets + 2)
    far = (own.angles - negatives.angles.mean()) / np.sqrt(variance)
    found: Scores = t.sf(far, n - 1)
    return found


def q_values(p_values: Scores) -> Scores:
    """Benjamini and Hochberg's (1995) correction over the suspects."""
    from scipy.stats import false_discovery_control

    found: Scores = false_discovery_control(p_values, method="bh")
    return found

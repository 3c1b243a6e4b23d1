"""One reference model: what is left where K trainings are impossible, as for a LLaMA-7B.

The reference saw no example, so it plays the part of the OUT models. One model says nothing of the
spread between trainings, which Liu et al. (2025, arXiv 2503.07482) take from a Laplace posterior of
its weights. Without its gradients the spread is taken to fall with a text's length T as that of a
mean of T independent tokens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contamination.audits.reference_attack.moments import Floats


def single_reference(phi: Floats, reference: Floats, lengths: NDArray[np.int64]) -> Floats:
    """Returns √T (φ − φ_ref), shape (K, N).

    Args:
        phi: the mean log-probability under each model, shape (K, N).
        reference: under the reference, shape (N,).
        lengths: T, the scored tokens of each text, shape (N,).
    """
    scores: Floats = np.sqrt(lengths) * (phi - reference)
    return scores

"""ConStat: performance on a benchmark above what reference models lead one to expect.

Dekoninck, Müller and Vechev (2024), "ConStat: performance-based contamination detection in large
language models", arXiv 2405.16281. H maps the accuracy on a reference benchmark to that on the
benchmark; it is fitted on reference models that are not contaminated. For the audited model

    δ = accuracy on the benchmark − H(accuracy on the reference benchmark),

and the p-value of δ ≤ 0 comes from a bootstrap of items and reference models.

The paper fits a smoothing spline to many models. Here H is a line, H(x) = x + α + β (x − x̄), whose
deviation β from a slope of 1 is shrunk by the sampling variance of the accuracies x. So it has a
value for a single reference model (β = 0), and does not extrapolate wildly from two.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


def expected_accuracy(
    reference_accuracy: float, models_reference: Values, models_benchmark: Values, n_items: float
) -> float:
    """Returns H(x) for the audited model, cut to 0 … 1.

    Args:
        reference_accuracy: x, the audited model's accuracy on the reference benchmark.
        models_reference: the reference models' accuracies on it, shape (models,).
        models_benchmark: their accuracies on the benchmark, shape (models,).
        n_items: the number of items of the reference benchmark.
    """
    mean = models_reference.mean()
    centered, gain = models_reference - mean, models_benchmark - models_reference
    noise = float((models_reference * (1 - models_reference)).sum() / n_items)
    spread = float(centered @ centered) + noise
    slope = float(centered @ gain) / spread if spread > 0 else 0.0
    line = reference_accuracy + gain.mean() + slope * (reference_accuracy - mean)
    return float(np.clip(line, 0, 1))


def bootstrap_p_value(value: float, draws: Values) -> float:
    """Returns the p-value of δ ≤ 0: the share of centred draws that are at least δ.

    p = (1 + #{δ* − δ ≥ δ}) / (draws + 1).
    """
    return float((1 + np.count_nonzero(draws - value >= value)) / (len(draws) + 1))

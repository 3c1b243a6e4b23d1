"""LiRA over the tokens of a text (Rossi et al. 2025, arXiv 2506.05126).

The statistic of a text of T tokens is the vector x of their log-probabilities. IN and OUT are
normal with one covariance Σ, since K/2 references can't tell two T×T matrices apart. Then the
log-likelihood ratio is linear,

    Λ = (x − (μ_in + μ_out) / 2)ᵀ Σ⁻¹ (μ_in − μ_out),   Σ = (1 − ρ) S + ρ (tr S / T) I,

with S the references' covariance around their side's mean and ρ by the oracle approximating
shrinkage of Chen et al. (2010, equation 23, as scikit-learn computes it). The difference of means
is shrunk towards the mean shift of all tokens, as `hierarchy` does it with texts.

The target leaves S by a rank-one update (Sherman and Morrison): with r its deviation from the mean
of its side, which has c cells, S loses r rᵀ c / (c − 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from contamination.audits.reference_attack.moments import Flags, Floats

LEAST_REFERENCES = 2
LEAST = 1e-12


@dataclass(frozen=True)
class TokenShifts:
    """One text's difference of means IN − OUT without each target, and its noise.

    Attributes:
        shift: shape (K, T).
        noise: the factor 1 / c_in + 1 / c_out of its variance, shape (K, 1).
        variance: the mean variance of a token, tr S / T without the target, shape (K, 1).
        is_known: whether both sides have LEAST_REFERENCES references, shape (K, 1).
    """

    shift: Floats
    noise: Floats
    variance: Floats
    is_known: Flags


def multivariate_lira(tokens: Sequence[Floats], inside: Flags, outside: Flags) -> Floats:
    """Returns Λ of each text under each target, shape (K, N).

    It is 0 where a side has fewer than two references without the target.

    Args:
        tokens: the log-probabilities of each text's tokens (nats), N arrays of shape (K, T).
        inside: which cells saw which text, shape (K, N).
        outside: which did not, shape (K, N).
    """
    mean_shift, shift_variance = _token_shift_prior(tokens, inside, outside)
    ratios = np.zeros(inside.shape)
    for text, x in enumerate(tokens):
        sides = inside[:, text], outside[:, text]
        ratios[:, text] = _text_ratios(x, *sides, mean_shift, shift_variance)
    return ratios


def _token_shift_prior(
    tokens: Sequence[Floats], inside: Flags, outside: Flags
) -> tuple[Floats, Floats]:
    """Returns mean and variance of the true shifts over all tokens, without each target: (K, 1)."""
    total = np.zeros((4, len(inside), 1))
    for text, x in enumerate(tokens):
        shifts = _token_shifts(x, inside[:, text], outside[:, text])
        is_usable, length = shifts.is_known.astype(float), x.shape[1]
        total[0] += is_usable * length
        total[1] += is_usable * shifts.shift.sum(axis=1, keepdims=True)
        total[2] += is_usable * (shifts.shift**2).sum(axis=1, keepdims=True)
        total[3] += is_usable * length * shifts.variance * shifts.noise
    number = np.maximum(total[0], 1)
    mean = total[1] / number
    return mean, np.maximum(total[2] / number - mean**2 - total[3] / number, 0.0)


def _token_shifts(x: Floats, inside: Flags, outside: Flags) -> TokenShifts:
    (mean_in, count_in), (mean_out, count_out) = (_side_means(x, s) for s in (inside, outside))
    residuals, factor = _residuals(x, inside, outside)
    removed = factor * (residuals**2).sum(axis=1, keepdims=True)
    trace = (residuals**2).sum() - removed
    references = np.maximum(count_in + count_out, 1)
    return TokenShifts(
        mean_in - mean_out,
        1 / np.maximum(count_in, 1) + 1 / np.maximum(count_out, 1),
        np.maximum(trace, 0) / references / x.shape[1],
        (count_in >= LEAST_REFERENCES) & (count_out >= LEAST_REFERENCES),
    )


def _side_means(x: Floats, side: Flags) -> tuple[Floats, Floats]:
    """Returns the means and counts of a side without each target: (K, T) and (K, 1)."""
    counts = side.sum() - side[:, None].astype(float)
    sums = x[side].sum(axis=0) - x * side[:, None]
    return sums / np.maximum(counts, 1), counts


def _residuals(x: Floats, inside: Flags, outside: Flags) -> tuple[Floats, Floats]:
    """Returns each cell's deviation from its side's mean and c / (c − 1): (K, T) and (K, 1)."""
    residuals, factor = np.zeros_like(x), np.zeros((len(x), 1))
    for side in (inside, outside):
        count = int(side.sum())
        if count > 1:
            residuals[side] = x[side] - x[side].mean(axis=0)
            factor[side] = count / (count - 1)
    return residuals, factor


def _text_ratios(
    x: Floats, inside: Flags, outside: Flags, mean_shift: Floats, shift_variance: Floats
) -> Floats:
    """Returns Λ of one text under each target: shape (K,)."""
    shifts = _token_shifts(x, inside, outside)
    noise = np.maximum(shifts.variance * shifts.noise, LEAST)
    weight = shift_variance / (shift_variance + noise)
    shift = weight * shifts.shift + (1 - weight) * mean_shift
    (mean_in, count_in), (mean_out, count_out) = (_side_means(x, s) for s in (inside, outside))
    references = np.maximum(count_in + count_out, 1)
    level = (count_out * mean_out + count_in * (mean_in - shift)) / references
    covariance = _ReferenceCovariance.of(x, inside, outside, references)
    ratios = covariance.inverse_product(x - level - shift / 2, shift)
    return np.where(shifts.is_known, ratios, 0.0)[:, 0]


@dataclass(frozen=True)
class _ReferenceCovariance:
    """The shrunk covariances of one text without each target, in the scatter's eigenvectors."""

    residuals: Floats
    factor: Floats
    """c / (c − 1) of the target's side, (K, 1)."""
    axes: Floats
    """The eigenvectors of the whole scatter, (T, R)."""
    squares: Floats
    """Its eigenvalues, (R,)."""
    scale: Floats
    """The weight of the scatter, (1 − ρ) / references, (K, 1)."""
    ridge: Floats
    """ρ tr S / T, (K, 1)."""

    @classmethod
    def of(
        cls, x: Floats, inside: Flags, outside: Flags, references: Floats
    ) -> _ReferenceCovariance:
        residuals, factor = _residuals(x, inside, outside)
        _, singular, axes = np.linalg.svd(residuals, full_matrices=False)
        squares, length = singular**2, x.shape[1]
        along = (residuals @ axes.T) ** 2
        target_square = (residuals**2).sum(axis=1, keepdims=True)
        # traces of the scatter and of its square, without the target's r rᵀ c / (c − 1)
        trace = squares.sum() - factor * target_square
        trace_of_square = (squares**2).sum() - 2 * factor * (along @ squares)[:, None]
        trace_of_square = trace_of_square + (factor * target_square) ** 2
        mean = np.maximum(trace, 0) / references / length
        second = np.maximum(trace_of_square, 0) / references**2 / length**2
        top, bottom = second + mean**2, (references + 1) * (second - mean**2 / length)
        shrinkage = np.where(bottom > 0, np.minimum(top / np.where(bottom > 0, bottom, 1), 1), 1)
        ridge = np.maximum(shrinkage * mean, LEAST)
        return cls(residuals, factor, axes.T, squares, (1 - shrinkage) / references, ridge)

    def inverse_product(self, left: Floats, right: Floats) -> Floats:
        """Returns leftᵀ Σ⁻¹ right for each target: (K, 1), from vectors (K, T)."""
        pairs = list(self._products((left, right), (left, self.residuals), (right, self.residuals),
                                    (self.residuals, self.residuals)))  # fmt: skip
        across, left_target, right_target, target_target = pairs
        weight = self.scale * self.factor
        remaining = np.maximum(1 - weight * target_target, LEAST)
        return across + weight * left_target * right_target / remaining

    def _products(self, *pairs: tuple[Floats, Floats]) -> Iterator[Floats]:
        """Yields aᵀ (scale · scatter + ridge · I)⁻¹ b of each pair, with the target in it."""
        gain = 1 / (self.scale * self.squares + self.ridge) - 1 / self.ridge
        for a, b in pairs:
            inner = (a * b).sum(axis=1, keepdims=True) / self.ridge
            projected = (a @ self.axes) * (b @ self.axes) * gain
            yield inner + projected.sum(axis=1, keepdims=True)

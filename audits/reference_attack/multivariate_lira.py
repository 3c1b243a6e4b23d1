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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from contamination.audits.reference_attack.moments import Flags, Floats

LEAST_REFERENCES = 2
LEAST = 1e-12


@dataclass(frozen=True)
class TokenMoments:
    """One text's mean log-probabilities on both sides without each target, and its residuals.

    Attributes:
        mean_in: shape (K, T).
        mean_out: shape (K, T).
        count_in: the references that saw the text, shape (K, 1).
        count_out: those that did not, shape (K, 1).
        residuals: each cell's deviation from the mean of its side, itself included, shape (K, T).
        factor: c / (c − 1) of its side, shape (K, 1).
    """

    mean_in: Floats
    mean_out: Floats
    count_in: Floats
    count_out: Floats
    residuals: Floats
    factor: Floats

    @classmethod
    def of(cls, x: Floats, inside: Flags, outside: Flags) -> TokenMoments:
        """Returns those of log-probabilities x, shape (K, T), for sides of shape (K,)."""
        (mean_in, count_in), (mean_out, count_out) = (_side_means(x, s) for s in (inside, outside))
        return cls(mean_in, mean_out, count_in, count_out, *_residuals(x, inside, outside))

    @property
    def shift(self) -> Floats:
        """The difference of means IN − OUT without each target, shape (K, T)."""
        return self.mean_in - self.mean_out

    @property
    def noise(self) -> Floats:
        """The factor 1 / c_in + 1 / c_out of the difference's variance, shape (K, 1)."""
        return 1 / np.maximum(self.count_in, 1) + 1 / np.maximum(self.count_out, 1)

    @property
    def references(self) -> Floats:
        """The number of references, at least 1, shape (K, 1)."""
        return np.maximum(self.count_in + self.count_out, 1)

    @property
    def is_known(self) -> Flags:
        """Whether both sides have LEAST_REFERENCES references, shape (K, 1)."""
        return (self.count_in >= LEAST_REFERENCES) & (self.count_out >= LEAST_REFERENCES)

    @cached_property
    def variance(self) -> Floats:
        """The mean variance of a token, tr S / T without the target, shape (K, 1)."""
        squares = (self.residuals**2).sum(axis=1, keepdims=True)
        trace = np.maximum((self.residuals**2).sum() - self.factor * squares, 0)
        variance: Floats = trace / self.references / self.residuals.shape[1]
        return variance


def multivariate_lira(tokens: Sequence[Floats], inside: Flags, outside: Flags) -> Floats:
    """Returns Λ of each text under each target, shape (K, N).

    It is 0 where a side has fewer than two references without the target.

    Args:
        tokens: the log-probabilities of each text's tokens (nats), N arrays of shape (K, T).
        inside: which cells saw which text, shape (K, N).
        outside: which did not, shape (K, N).
    """
    moments = [
        TokenMoments.of(x, inside[:, text], outside[:, text]) for text, x in enumerate(tokens)
    ]
    mean_shift, shift_variance = _token_shift_prior(moments, len(inside))
    ratios = np.zeros(inside.shape)
    for text, (x, of_text) in enumerate(zip(tokens, moments, strict=True)):
        ratios[:, text] = _text_ratios(x, of_text, mean_shift, shift_variance)
    return ratios


def _token_shift_prior(
    moments: Sequence[TokenMoments], number_of_cells: int
) -> tuple[Floats, Floats]:
    """Returns mean and variance of the true shifts over all tokens, without each target: (K, 1)."""
    total = np.zeros((4, number_of_cells, 1))
    for of_text in moments:
        shift, is_usable = of_text.shift, of_text.is_known.astype(float)
        length = shift.shape[1]
        total[0] += is_usable * length
        total[1] += is_usable * shift.sum(axis=1, keepdims=True)
        total[2] += is_usable * (shift**2).sum(axis=1, keepdims=True)
        total[3] += is_usable * length * of_text.variance * of_text.noise
    number = np.maximum(total[0], 1)
    mean = total[1] / number
    return mean, np.maximum(total[2] / number - mean**2 - total[3] / number, 0.0)


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
    x: Floats, moments: TokenMoments, mean_shift: Floats, shift_variance: Floats
) -> Floats:
    """Returns Λ of one text under each target: shape (K,)."""
    noise = np.maximum(moments.variance * moments.noise, LEAST)
    weight = shift_variance / (shift_variance + noise)
    shift = weight * moments.shift + (1 - weight) * mean_shift
    of_in, of_out = moments.count_in, moments.count_out
    level = of_out * moments.mean_out + of_in * (moments.mean_in - shift)
    level = level / moments.references
    covariance = _ReferenceCovariance.of(moments)
    ratios = covariance.inverse_product(x - level - shift / 2, shift)
    return np.where(moments.is_known, ratios, 0.0)[:, 0]


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
    def of(cls, moments: TokenMoments) -> _ReferenceCovariance:
        residuals, factor, references = moments.residuals, moments.factor, moments.references
        _, singular, axes = np.linalg.svd(residuals, full_matrices=False)
        squares, length = singular**2, residuals.shape[1]
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
        gain = 1 / (self.scale * self.squares + self.ridge) - 1 / self.ridge
        a, b, target = ((v, v @ self.axes) for v in (left, right, self.residuals))

        def product(first: Projected, second: Projected) -> Floats:
            """Returns aᵀ (scale · scatter + ridge · I)⁻¹ b, with the target in the scatter."""
            inner = (first[0] * second[0]).sum(axis=1, keepdims=True) / self.ridge
            along: Floats = (first[1] * second[1] * gain).sum(axis=1, keepdims=True)
            total: Floats = inner + along
            return total

        weight = self.scale * self.factor
        remaining = np.maximum(1 - weight * product(target, target), LEAST)
        removed: Floats = weight * product(a, target) * product(b, target) / remaining
        return product(a, b) + removed


Projected = tuple[Floats, Floats]
"""Vectors (K, T) and their products with the axes (K, R)."""

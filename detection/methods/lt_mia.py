"""LT-MIA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from contamination.data.texts import Texts
from contamination.detection.attack_file import SHIPPED, TrainedAttack, read_attack
from contamination.detection.methods._aligned import gain_by_token
from contamination.detection.methods.base import Method
from contamination.detection.methods.reference import REFERENCE
from contamination.detection.models.base import ModelHandle
from contamination.detection.passes import ORIGINAL, Example, Pass, TokenStats

CLIP = 5.0
"""Standard deviations: the largest input, so that an unusual model is not extrapolated to."""
LEAST_STD = 0.1
"""Nats, added to σ_t where it is divided by: a certain token has a σ_t near 0."""
WIDTHS = (3, 9)
"""Tokens around a token over which the gain is averaged."""
PER_MODEL = ("logprob", "mean", "std", "z", "behind_top")
FEATURES = (
    *(f"target_{name}" for name in PER_MODEL),
    *(f"reference_{name}" for name in PER_MODEL),
    *("gain", *(f"gain_within_{width}" for width in WIDTHS)),
    *("text_target_mean", "text_reference_mean", "text_gain_mean"),
    *("text_target_std", "text_reference_std", "text_gain_std", "text_gain_sum"),
)
"""The numbers of a token that the network reads, in their order."""


@dataclass(frozen=True, kw_only=True)
class LtMia(Method):
    """A learned membership attack (LT-MIA; Ilić et al. 2026, arXiv 2604.03199).

    A small network, trained on models whose members are known, reads numbers of each token under
    the target and the reference. With u_t the numbers of token t (`FEATURES`), standardised by the
    training data and clipped to ±5:

        h_t = tanh(W₂ tanh(W₁ u_t + b₁) + b₂),  a_t ∝ exp(v · h_t) with Σ a_t = 1
        score(x) = w · [Σ a_t h_t, mean h_t] + c,  a log-odds without a unit

    The sum and the mean are over the scored tokens that both models read. The log-odds are those of
    a member in the training data, so they are not a probability elsewhere.

    The paper's own text was not at hand: the definition is that of the authors' public code, which
    differs in this. It reads 154 numbers of a token: the logits of the token, of the 20 likeliest
    and of the 20 least likely tokens and their ranks under the other model, with a text's means and
    sums. Here are the numbers that passes store: log p, its mean and standard deviation over the
    vocabulary, the distance from the likeliest token, the gain over the reference, also averaged
    over 3 and 9 tokens, and a text's means, standard deviations and sum of gains. Its two-layer
    transformer of 192 dimensions sees other tokens and positions; here a token is read by itself.
    It reads 128 tokens, here all. It was trained on 58 pairs of fine-tuned models and data sets of
    up to 7B parameters, the network that comes with this package on tiny LLaMAs (docs/lt-mia.md).

    A model or benchmark that the network was trained on is refused. The reference in training and
    in the paper is the model before the members: an upper bound for those who have not that model.
    """

    numbers: ClassVar[tuple[str, ...]] = ("logprob", "mean", "std", "top_logprob")
    aligned: ClassVar[bool] = True
    passes: ClassVar[tuple[Pass, ...]] = (ORIGINAL, REFERENCE)

    weights: str | None = None
    """A file that `python -m detection train-lt-mia` wrote; null: the one of this package."""

    allow_trained: bool = False
    """Whether to score models, benchmarks and texts that the network was trained on. Texts that it
    was trained on are flagged, and the result says nothing about others."""

    @property
    def weights_path(self) -> Path:
        """Where the weights are."""
        return SHIPPED if self.weights is None else Path(self.weights).expanduser()

    @cached_property
    def attack(self) -> TrainedAttack:
        """The network and its data sheet.

        Raises:
            ConfigError: the file is missing, damaged, or of another version's features.
        """
        return read_attack("method.lt_mia.weights", self.weights_path, FEATURES)

    @property
    def digests(self) -> Mapping[str, str]:
        """Returns the checksum of the weights and their data sheet."""
        return {"weights_digest": self.attack.checksum}

    def conflict(self, texts: Texts, models: Mapping[str, ModelHandle]) -> tuple[str, str] | None:
        """Returns that the network was trained on the model, or on these texts or benchmarks."""
        if self.allow_trained:
            return None
        overlap = self.attack.sheet.describe_overlap(texts, models)
        if overlap is None:
            return None
        reason = f"data that it was not trained on, but {overlap}"
        remedy = (
            "The score would say how well it remembers them. Leave the method out, give "
            "method.lt_mia.weights that were trained without them (`python -m detection "
            "train-lt-mia`), or method.lt_mia.allow_trained=true, which marks the result."
        )
        return reason, f"{reason}. {remedy}"

    def score(self, example: Example) -> float:
        """Returns the network's log-odds of membership."""
        features = token_features(example)
        weights, ones = self.attack.network.arrays, np.ones(len(features))
        return float(membership_logit(weights, features, ones, np))

    def flag(self, example: Example) -> str:
        """Returns a flag if the network was trained on the text."""
        trained = self.allow_trained and self.attack.sheet.has_trained_on(example.text)
        return "the attack was trained on this text" if trained else ""


def token_features(example: Example) -> NDArray[np.float64]:
    """Returns the numbers of each scored token that both models read, shape (tokens, FEATURES)."""
    gain = gain_by_token(example)
    target, reference = (_model_numbers(example.stats(p)[: len(gain)]) for p in LtMia.passes)
    local = [_mean_within(gain, width) for width in WIDTHS]
    series = target[0], reference[0], gain
    of_text = [*(s.mean() for s in series), *(s.std() for s in series), gain.sum()]
    rows = [*target, *reference, gain, *local, *(np.full(len(gain), value) for value in of_text)]
    return np.stack(rows, axis=1)


def _model_numbers(stats: TokenStats) -> list[NDArray[np.float64]]:
    """Returns the numbers of PER_MODEL, each of shape (tokens,)."""
    logprob, mean, std, top = (
        np.asarray(column, np.float64)
        for column in (stats.logprob, stats.mean, stats.std, stats.top_logprob)
    )
    return [logprob, mean, std, (logprob - mean) / (std + LEAST_STD), logprob - top]


def _mean_within(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Returns at each position the mean of the values within `width` positions centred there."""
    sums, positions = np.concatenate(([0.0], np.cumsum(values))), np.arange(len(values))
    start = np.maximum(positions - width // 2, 0)
    end = np.minimum(positions + width // 2 + 1, len(values))
    means: NDArray[np.float64] = (sums[end] - sums[start]) / (end - start)
    return means


def membership_logit(weights: Mapping[str, Any], features: Any, mask: Any, xp: Any) -> Any:
    """Returns the log-odds of texts; the only place of the equation, for training and scoring.

    Args:
        weights: the arrays of `attack_file.Network`, by name.
        features: shape (…, tokens, features).
        mask: shape (…, tokens), 1 for a token and 0 for padding.
        xp: the array library of all arguments: numpy or torch.
    """
    inputs = xp.clip((features - weights["center"]) / weights["scale"], -CLIP, CLIP)
    first = _tanh(inputs @ weights["first"] + weights["first_bias"], xp)
    hidden = _tanh(first @ weights["second"] + weights["second_bias"], xp)
    # no overflow: |h| is at most 1
    attention = xp.exp(hidden @ weights["attention"]) * mask
    pooled = (attention[..., None, :] @ hidden)[..., 0, :] / attention.sum(-1)[..., None]
    mean = (mask[..., None, :] @ hidden)[..., 0, :] / mask.sum(-1)[..., None]
    return xp.concatenate((pooled, mean), -1) @ weights["output"] + weights["output_bias"]


def _tanh(values: Any, xp: Any) -> Any:
    """Returns tanh; in NumPy as 1 − 2 / (1 + exp(2x)), which takes a quarter of the time.

    Both round to within 3e-16. tanh is 1 in float64 beyond 20.
    """
    return xp.tanh(values) if xp is not np else 1 - 2 / (1 + np.exp(2 * np.clip(values, -20, 20)))

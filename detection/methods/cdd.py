"""CDD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from contamination.core.config import (
    FRACTION_OR_ZERO,
    POSITIVE,
    PROPER_FRACTION,
    at_least,
    ranged_field,
)
from contamination.data.words import split_at_share
from contamination.detection.methods.base import Method
from contamination.detection.passes import Example, Ids, Pass


@dataclass(frozen=True, kw_only=True)
class Cdd(Method):
    """Contamination by the output distribution (CDD; Dong et al. 2024, arXiv 2402.15938, eq. 3-6).

    score(x) = the share of n continuations, sampled after the first half of x, whose edit distance
    in tokens to the greedy continuation is at most α·l. It measures how peaked the model's output
    is. l is the length of the longest continuation in tokens; continuations are no longer than the
    rest of x. No probabilities are read.
    """

    numbers: ClassVar[tuple[str, ...]] = ()
    generates: ClassVar[bool] = True

    alpha: float = ranged_field(0.05, FRACTION_OR_ZERO)
    """α: the distances that count, as a share of the longest length; the paper's default."""

    n: int = ranged_field(50, at_least(1))
    """Continuations per text, 1 or more; the paper's default."""

    temperature: float = ranged_field(0.8, POSITIVE)
    """The sampling temperature; the paper's default."""

    share: float = ranged_field(0.5, PROPER_FRACTION)
    """The share of the words used as the prompt; the paper's tasks have prompts of their own."""

    tokens: int = ranged_field(100, at_least(1))
    """The maximum number of tokens per continuation, as in the authors' code."""

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The greedy continuation of the text's first part, and the sampled ones."""
        parameters = {"share": self.share, "tokens": self.tokens}
        drawn = Pass("target", "sampled", n=self.n, temperature=self.temperature, **parameters)
        return (Pass("target", "greedy", **parameters), drawn)

    def score(self, example: Example) -> float:
        """Returns the share of the continuations that are close to the greedy one."""
        greedy_pass, sampled_pass = self.passes
        (greedy,) = example.continuations(greedy_pass)
        ids = [continuation.ids for continuation in example.continuations(sampled_pass)[: self.n]]
        longest = max(len(greedy), *map(len, ids))
        near = edit_distances(greedy.ids, ids) <= self.alpha * longest + 1e-9
        return float(near.mean())

    def flag(self, example: Example) -> str:
        """Returns a flag if there is nothing to compare."""
        (greedy,) = example.continuations(self.passes[0])
        if not split_at_share(example.text, self.share)[1].strip():
            return "no word after the prompt"
        return "" if len(greedy) else "the model ends the text after the prompt"


def edit_distances(sequence: Ids, sequences: Sequence[Ids]) -> NDArray[np.int64]:
    """Returns the Levenshtein distance of `sequence` to each of `sequences`, all at once.

    Row i of the table is for the first i tokens of `sequences`. Insertions along it are a running
    minimum: d_j = j + min over k ≤ j of (d'_k − k), where d' is without them.
    """
    position = np.arange(len(sequence) + 1)
    lengths = np.array([len(target) for target in sequences])
    rows = np.tile(position, (len(sequences), 1))
    distances = rows[:, -1].copy()
    for i in range(lengths.max(initial=0)):
        token = np.array([target[i] if i < len(target) else -1 for target in sequences])
        changed = rows[:, :-1] + (sequence != token[:, None])
        row = np.minimum(rows + 1, np.pad(changed, ((0, 0), (1, 0)), constant_values=i + 1))
        rows = np.minimum.accumulate(row - position, axis=1) + position
        distances = np.where(lengths == i + 1, rows[:, -1], distances)
    return distances

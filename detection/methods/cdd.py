"""CDD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from contamination.core.config import PART, POSITIVE, SHARE, at_least, limited
from contamination.data.text import halves
from contamination.detection.methods.base import Method
from contamination.detection.passes import Example, Ids, Pass


@dataclass(frozen=True, kw_only=True)
class Cdd(Method):
    """Contamination by the output distribution (CDD; Dong et al. 2024, arXiv 2402.15938, eq. 3-6).

    score(x) = the share of n continuations, drawn after the first half of x, whose edit distance
    in tokens to the greedy continuation is at most α·l: how peaked what the model writes is. l is
    the length of the longest of all, in tokens: they end where x would. It reads no probability.
    """

    numbers: ClassVar[tuple[str, ...]] = ()
    generates: ClassVar[bool] = True

    alpha: float = limited(0.05, SHARE)
    """α: the distances that count, as a share of the longest length; the paper's default."""

    n: int = limited(50, at_least(1))
    """Continuations of a text, 1 or more; the paper's default."""

    temperature: float = limited(0.8, POSITIVE)
    """Of the draws; the paper's default."""

    share: float = limited(0.5, PART)
    """The share of the words that are the prompt; the paper's tasks have prompts of their own."""

    tokens: int = limited(100, at_least(1))
    """Tokens of a continuation, at most, as in the authors' code; no more than the rest has."""

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The greedy continuation of the text's first part, and the drawn ones."""
        parameters = {"share": self.share, "tokens": self.tokens}
        drawn = Pass("target", "sampled", n=self.n, temperature=self.temperature, **parameters)
        return (Pass("target", "greedy", **parameters), drawn)

    def score(self, example: Example) -> float:
        """The share of the continuations that are near the greedy one."""
        likeliest, drawn = self.passes
        (greedy,) = example.continuations(likeliest)
        ids = [continuation.ids for continuation in example.continuations(drawn)[: self.n]]
        longest = max(len(greedy), *map(len, ids))
        near = edit_distances(greedy.ids, ids) <= self.alpha * longest + 1e-9
        return float(near.mean())

    def flag(self, example: Example) -> str:
        """That there is nothing to compare."""
        (greedy,) = example.continuations(self.passes[0])
        if not halves(example.text, self.share)[1].strip():
            return "no word after the prompt"
        return "" if len(greedy) else "the model ends the text after the prompt"


def edit_distances(one: Ids, others: Sequence[Ids]) -> NDArray[np.int64]:
    """Levenshtein's distance of `one` to each of the others, all at once.

    Row i of the table for the first i tokens of the others: insertions along it are a running
    minimum, d_j = j + min over k ≤ j of (d'_k − k), d' without them.
    """
    place = np.arange(len(one) + 1)
    lengths = np.array([len(other) for other in others])
    rows = np.tile(place, (len(others), 1))
    distances = rows[:, -1].copy()
    for i in range(lengths.max(initial=0)):
        token = np.array([other[i] if i < len(other) else -1 for other in others])
        changed = rows[:, :-1] + (one != token[:, None])
        row = np.minimum(rows + 1, np.pad(changed, ((0, 0), (1, 0)), constant_values=i + 1))
        rows = np.minimum.accumulate(row - place, axis=1) + place
        distances = np.where(lengths == i + 1, rows[:, -1], distances)
    return distances

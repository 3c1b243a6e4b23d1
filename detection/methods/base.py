"""What a method is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from typing import ClassVar

from contamination.core.config import Ranged
from contamination.detection.passes import ORIGINAL, Example, Pass


@dataclass(frozen=True, kw_only=True)
class Method(Ranged, ABC):
    """Hyperparameters, the passes they need, and a score: higher for a member, everywhere.

    A subclass is a frozen, keyword-only dataclass. It stores its hyperparameters, declares
    their ranges, and computes nothing before `score`.

    Attributes:
        numbers: those of `TokenStats` that it reads; not every model gives all.
        generates: whether the model writes for it, which takes far longer than reading does:
            `method=all` leaves it out.
    """

    numbers: ClassVar[tuple[str, ...]] = ("logprob",)
    generates: ClassVar[bool] = False

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes that `score` reads; a subclass may name others, by its hyperparameters too."""
        return (ORIGINAL,)

    @abstractmethod
    def score(self, example: Example) -> float:
        """The example's score, finite; it reads the declared passes only."""

    def flag(self, example: Example) -> str:
        """How the method fell back on another statistic, in a few words; empty for most.

        It stands in `scores.parquet` beside the score, and reports count it.
        """
        return ""

    @property
    def variant(self) -> str:
        """The hyperparameters in words, such as `k=0.2`; empty where there are none."""
        return ",".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))

    @property
    def is_default(self) -> bool:
        """Whether every hyperparameter has the default of its class; one without has none."""
        needed = any(f.default is f.default_factory is MISSING for f in fields(self))
        return not needed and self == type(self)()

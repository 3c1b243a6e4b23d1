"""The base class of methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from contamination.core.config import Ranged
from contamination.data.texts import Texts
from contamination.detection.passes import ORIGINAL, Example, Pass

if TYPE_CHECKING:
    from contamination.detection.models.base import ModelHandle


@dataclass(frozen=True, kw_only=True)
class Method(Ranged, ABC):
    """A membership-inference method: hyperparameters, required passes, and a score.

    The score is always higher for a member. A subclass is a frozen, keyword-only dataclass that
    declares its hyperparameters and their ranges, and computes nothing before `score`.

    Attributes:
        numbers: the numbers of `TokenStats` that it reads; not every model provides all of them.
        generates: whether the model writes continuations for it. This takes far longer than
            reading, so `method=all` leaves such methods out.
        costly: whether it takes far longer than reading for another reason; left out as well.
        aligned: whether it compares the tokens of the target with those of the reference one by
            one, so that both need the same tokenizer.
    """

    numbers: ClassVar[tuple[str, ...]] = ("logprob",)
    generates: ClassVar[bool] = False
    costly: ClassVar[bool] = False
    aligned: ClassVar[bool] = False

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes that `score` reads. In a subclass they may depend on its hyperparameters."""
        return (ORIGINAL,)

    @abstractmethod
    def score(self, example: Example) -> float:
        """Returns the example's score, which must be finite. It may read only declared passes."""

    def flag(self, example: Example) -> str:
        """Returns a short remark if the method fell back on another statistic, else "".

        The flag is stored next to the score in `scores.parquet`, and counted in reports.
        """
        return ""

    @property
    def lack(self) -> tuple[str, str] | None:
        """What it needs of its own hyperparameters: the need, and the need with the remedy."""
        return None

    @property
    def digests(self) -> Mapping[str, str]:
        """Hashes of what it reads besides texts and models, so that stored scores are its own."""
        return {}

    def conflict(self, texts: Texts, models: Mapping[str, ModelHandle]) -> tuple[str, str] | None:
        """Returns what it needs instead of these texts or models, without and with the remedy.

        Args:
            texts: the texts to score.
            models: the models by role.
        """
        return None

    @property
    def variant(self) -> str:
        """The hyperparameters as a string, such as `k=0.2`; empty if there are none."""
        return ",".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))

    @property
    def is_default(self) -> bool:
        """Whether every hyperparameter has its class's default value.

        This is False if a hyperparameter has no default.
        """
        lacks_default = any(f.default is f.default_factory is MISSING for f in fields(self))
        return not lacks_default and self == type(self)()

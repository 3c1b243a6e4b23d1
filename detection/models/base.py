"""A model under test, before it is loaded: what names it, and what it can give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from contamination.detection.passes import TokenStats

if TYPE_CHECKING:
    from contamination.detection.config import DetectionConfig
    from contamination.training.trained_model import Ancestry

UNKNOWN_STEP = -1
SERVED = "+served"  # what a digest ends with where it is of what a server said, not of weights


class ModelHandle(ABC):
    """A kind of model is a subclass in a file of its own, and an entry of `detection.models.KINDS`.

    One that is not opened by its path alone is opened in `detection.models.open_node`.

    Attributes:
        gives: of `detection.passes.NUMBERS` those that its statistics hold, and what else a view
            may ask for: `states`, hidden states behind keys and values that are kept, and
            `continuations`, what it writes after a prompt.
        field: the config field that named it, for errors.
        digest: a hash that changes with the weights.
        slug: a readable name for folders.
        step: the optimizer step of the checkpoint; -1 where it is unknown.
    """

    gives: frozenset[str]
    field: str
    digest: str
    slug: str
    step: int

    def titled(self, title: str) -> str:
        """A progress bar's title, with what the model is where it is not the one under test."""
        role = self.field.partition(".")[0]
        return title if role == "model" else f"{role} {title}"

    @property
    @abstractmethod
    def path(self) -> str:
        """Where it is, for errors."""

    @property
    @abstractmethod
    def tokenizer_digest(self) -> str:
        """A hash that changes with the tokenizer."""

    @property
    @abstractmethod
    def context(self) -> int | None:
        """The most tokens that it takes; None where it names no limit."""

    @property
    def looks_back(self) -> bool:
        """Whether what it says of a token is the same whatever follows; unless it is known: no."""
        return False

    @property
    @abstractmethod
    def vocabulary(self) -> int | None:
        """How many tokens it knows; None where it does not say."""

    @property
    def ancestry(self) -> Ancestry:
        """How it is known, and what it was trained from; a kind that knows no more: its digest."""
        from contamination.training.trained_model import Ancestry

        return Ancestry(frozenset({self.digest}))

    @classmethod
    @abstractmethod
    def opens(cls, path: str) -> bool:
        """Whether a model at `path` is of this kind."""

    @classmethod
    @abstractmethod
    def open(cls, field: str, path: str, *, trust_remote_code: bool = False) -> Self:
        """The model at `path`, and whether its own code may run.

        Raises:
            ConfigError: there is none.
        """

    @abstractmethod
    def tokenizer(self) -> Any:
        """Its tokenizer, called as a fast one of transformers.

        It takes several texts at once, and for `detection online` also `return_offsets_mapping`.
        """

    @abstractmethod
    def load(self, settings: DetectionConfig) -> LanguageModel:
        """The model, ready to read tokens."""


Tell = Callable[[int, int], None]
"""Called with how many of a batch's rows are done, and how many there are."""


def tell_nobody(done: int, total: int) -> None:
    """For a batch that no bar counts."""


@dataclass(frozen=True)
class Prompt:
    """What a model is to go on from.

    Attributes:
        ids: token ids, at least 1.
        tokens: how many it writes at most.
        seed: of its draws: what is drawn follows from it alone.
    """

    ids: Sequence[int]
    tokens: int
    seed: int = 0

    def __len__(self) -> int:
        """Tokens when all is written."""
        return len(self.ids) + self.tokens


class LanguageModel(ABC):
    """What every kind of model can do. What else a kind can, its `ScoredModel.gives` says."""

    takes_all: bool = False
    """Whether it takes any number of sequences at once and divides them itself."""

    @abstractmethod
    def stats(
        self, sequences: Sequence[Sequence[int]], tell: Tell = tell_nobody
    ) -> list[TokenStats]:
        """The statistics of each sequence's tokens after the first, from one batch.

        Args:
            sequences: token ids, at least 2 each.
            tell: is told how far a batch is that takes long.
        """

    def write(
        self, prompts: Sequence[Prompt], temperature: float, tell: Tell = tell_nobody
    ) -> list[list[int]]:
        """The token ids that follow each prompt, without what ends the text.

        Args:
            prompts: those of one batch.
            temperature: of the draws; 0: the most probable token each time.
            tell: is told how far a batch is that takes long.
        """
        raise NotImplementedError

"""A model under test, before it is loaded: what names it, and what it can give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from detection.config import DetectionConfig
    from detection.model.language_model import LanguageModel
    from training.ancestry import Ancestry

UNKNOWN_STEP = -1
SERVED = "+served"  # what a digest ends with where it is of what a server said, not of weights


class ScoredModel(ABC):
    """A kind of model is a subclass in a file of its own, and an entry of `detection.model.KINDS`.

    One that is not opened by its path alone is opened in `detection.model.open_node`.

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
        from training.ancestry import Ancestry

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

"""The interface of a kind of model: a handle before it is loaded, and the loaded model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from contamination.core.tensors import Tensor
from contamination.detection.passes import TokenStats

if TYPE_CHECKING:
    from contamination.detection.config import DetectionConfig, ScoredModelConfig
    from contamination.training.trained_model import Ancestry

UNKNOWN_STEP = -1
SERVED_SUFFIX = (
    "+served"  # the end of a digest that is computed from a server's answers, not from weights
)


class ModelHandle(ABC):
    """A model before it is loaded: its identity, and what it can provide.

    A kind of model is a subclass in its own file and an entry of `detection.models.KINDS`.

    Attributes:
        provides: the names of `detection.passes.NUMBERS` that its statistics include, and the
            other abilities that a view may ask for: `states`, hidden states after stored keys and
            values, `continuations`, the text that it generates after a prompt, and `gradients`
            of the loss with respect to its parameters.
        field: the config field that named the model, for errors.
        digest: a hash that changes with the weights.
        slug: a readable name for folders.
        step: the optimizer step of the checkpoint; -1 if it is unknown.
    """

    provides: frozenset[str]
    field: str
    digest: str
    slug: str
    step: int

    def bar_title(self, title: str) -> str:
        """Returns a progress bar's title, with the role of a model that is not under test."""
        role = self.field.partition(".")[0]
        return title if role == "model" else f"{role} {title}"

    @property
    @abstractmethod
    def path(self) -> str:
        """Where the model is, for errors."""

    @property
    @abstractmethod
    def tokenizer_digest(self) -> str:
        """A hash that changes with the tokenizer."""

    @property
    @abstractmethod
    def context(self) -> int | None:
        """The maximum number of tokens in a text; None if the model states no limit."""

    @property
    def ignores_later_tokens(self) -> bool:
        """Whether a token's statistics are known not to depend on the tokens after it."""
        return False

    @property
    @abstractmethod
    def vocabulary(self) -> int | None:
        """The number of entries in the vocabulary; None if the model does not state it."""

    def tensors(self) -> list[Tensor]:
        """Returns its weights, by which a copy is recognised; none if they are not at hand."""
        return []

    @property
    def ancestry(self) -> Ancestry:
        """The identities of the model and of what it was trained from; by default its digest."""
        from contamination.training.trained_model import Ancestry

        return Ancestry(frozenset({self.digest}))

    @classmethod
    @abstractmethod
    def opens(cls, config: ScoredModelConfig) -> bool:
        """Returns whether the config node describes a model of this kind."""

    @classmethod
    @abstractmethod
    def open(cls, name: str, config: ScoredModelConfig, runs: str) -> Self:
        """Returns the handle of the model that the config node `name` describes.

        Args:
            name: the node's name, for errors.
            config: a node for which `opens` returns True.
            runs: the folder of all artefacts.

        Raises:
            ConfigError: there is no such model.
        """

    @abstractmethod
    def tokenizer(self) -> Any:
        """Returns the tokenizer, which is called like a fast tokenizer of transformers.

        It accepts several texts at once, and for `detection online` also `return_offsets_mapping`.
        """

    @abstractmethod
    def load(self, settings: DetectionConfig) -> LanguageModel:
        """Returns the loaded model."""

    def request_counter(self, settings: DetectionConfig) -> RequestCounter | None:
        """Returns a stand-in that counts the requests to a server; None if the model runs here."""
        return None


ProgressCallback = Callable[[int, int], None]
"""Called with the number of finished rows of a batch, and the number of all its rows."""


def ignore_progress(done: int, total: int) -> None:
    """Ignores the progress of a batch."""


@dataclass(frozen=True)
class Prompt:
    """Tokens that a model continues.

    Attributes:
        ids: token ids, at least 1.
        tokens: the maximum number of tokens to generate.
        seed: the seed of the sampling, which depends on nothing else.
    """

    ids: Sequence[int]
    tokens: int
    seed: int = 0

    def __len__(self) -> int:
        """Returns the number of tokens of the prompt and the longest continuation."""
        return len(self.ids) + self.tokens


class LanguageModel(ABC):
    """A loaded model; `ModelHandle.provides` says which of its statistics are available."""

    batches_itself: bool = False
    """Whether it accepts any number of sequences at once and divides them into batches itself."""

    @abstractmethod
    def score(
        self, sequences: Sequence[Sequence[int]], on_progress: ProgressCallback = ignore_progress
    ) -> list[TokenStats]:
        """Returns the statistics of each sequence's tokens after the first, for one batch.

        Args:
            sequences: token ids, at least 2 each.
            on_progress: called with the progress of a batch that takes long.
        """

    def generate(
        self,
        prompts: Sequence[Prompt],
        temperature: float,
        on_progress: ProgressCallback = ignore_progress,
    ) -> list[list[int]]:
        """Returns the generated token ids after each prompt, without the end-of-text token.

        Args:
            prompts: the prompts of one batch.
            temperature: the sampling temperature; 0 means greedy decoding.
            on_progress: called with the progress of a batch that takes long.
        """
        raise NotImplementedError


class RequestCounter(LanguageModel):
    """Counts the requests that a server would receive, without sending any.

    Attributes:
        requests: the number of requests.
        tokens: the number of tokens that they send and receive.
        is_estimate: whether some texts may need more requests than were counted.
    """

    requests: float = 0.0
    tokens: float = 0.0
    is_estimate: bool = False

"""What every kind of model has that transformers runs in this process."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from detection.model.scored_model import ScoredModel
from detection.passes import NUMBERS


class TransformersModel(ScoredModel):
    """A model with a config of transformers, which gives all."""

    gives: frozenset[str] = frozenset({*NUMBERS, "states", "continuations"})

    @property
    @abstractmethod
    def config(self) -> Any:
        """The config of its text decoder."""

    @property
    def context(self) -> int | None:
        """The most tokens that the config allows; None where it names no limit."""
        limit = getattr(self.config, "max_position_embeddings", None)
        return None if limit is None else int(limit)

    @property
    def looks_back(self) -> bool:
        """Whether what it says of a token is the same whatever follows.

        Every causal model's is but for rotary embeddings that are scaled by the text's length.
        """
        names = ("rope_parameters", "rope_scaling")
        rope = str([getattr(self.config, name, None) for name in names])
        return "dynamic" not in rope and "longrope" not in rope

    @property
    def vocabulary(self) -> int | None:
        """The entries of the vocabulary that the config names, if it does."""
        return getattr(self.config, "vocab_size", None)

"""What a pass is run on: a causal language model, where it is, and what it says of tokens."""

from __future__ import annotations

from detection.model.local_model import LocalModel
from detection.model.scored_model import ScoredModel

__all__ = ["KINDS", "ScoredModel", "open_model"]

KINDS: tuple[type[ScoredModel], ...] = (LocalModel,)  # the first that opens a path does


def open_model(field: str, path: str, *, trust_remote_code: bool = False) -> ScoredModel:
    """The model at `path`, by the kind that opens it; see `ScoredModel.open`."""
    kind = next(kind for kind in KINDS if kind.opens(path))
    return kind.open(field, path, trust_remote_code=trust_remote_code)

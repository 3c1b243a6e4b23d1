"""What a pass is run on: a causal language model, where it is, and what it says of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from contamination.core.errors import ConfigError, near_names, require
from contamination.detection.models.base import ModelHandle
from contamination.detection.models.hf_model import HFModel, InMemoryModel
from contamination.detection.passes import Pass

if TYPE_CHECKING:
    from contamination.detection.config import ScoredModelConfig

__all__ = ["KINDS", "ScoredModel", "model_of", "open_model", "open_node"]

KINDS: tuple[type[ModelHandle], ...] = (InMemoryModel, HFModel)  # the first that opens a path does


def open_model(field: str, path: str, *, trust_remote_code: bool = False) -> ModelHandle:
    """The model at `path`, by the kind that opens it; see `ScoredModel.open`."""
    kind = next(kind for kind in KINDS if kind.opens(path))
    return kind.open(field, path, trust_remote_code=trust_remote_code)


def model_of(wanted: Pass, models: Mapping[str, ModelHandle]) -> ModelHandle:
    """The model that a pass is run on, by its role.

    Raises:
        ConfigError: no path was given for that role.
    """
    if wanted.model not in models:
        raise ConfigError(
            f"pass {wanted.key}: no path was given for the model {wanted.model!r}. "
            f"{near_names(wanted.model, models)}"
        )
    return models[wanted.model]


def open_node(name: str, node: ScoredModelConfig, runs: str) -> ModelHandle:
    """The model of the config node `name`, in files or behind a server.

    Args:
        name: the node's.
        node: where the model is.
        runs: the folder of all artefacts, where a server's answers are kept.

    Raises:
        ConfigError: there is none, or the node names two.
    """
    if node.url is not None:
        from contamination.detection.models.served.served_model import ServedModel  # few need it

        return ServedModel.at(name, node, Path(runs))
    require(node.path is not None, f"{name}.path", node.path, "give a model, or a server's url.")
    return open_model(f"{name}.path", str(node.path), trust_remote_code=node.trust_remote_code)

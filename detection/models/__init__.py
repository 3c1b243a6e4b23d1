"""Models under test: one registry of the kinds of model, and the function that opens one."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from contamination.core.errors import ConfigError, near_names
from contamination.detection.models.base import ModelHandle
from contamination.detection.passes import Pass

if TYPE_CHECKING:
    from contamination.detection.config import ScoredModelConfig

__all__ = ["KINDS", "ModelHandle", "model_for_pass", "open_model"]

KINDS: tuple[str, ...] = (
    "contamination.detection.models.hf_model:InMemoryModel",
    "contamination.detection.models.hf_model:HFModel",
    "contamination.detection.models.served.served_model:ServedModel",
)
"""The subclasses of `ModelHandle`; the first whose `opens` returns True opens a config node.

They are names, so that a kind is imported only if none before it opens the node.
"""


def open_model(name: str, config: ScoredModelConfig, runs: str) -> ModelHandle:
    """Returns the model that a config node describes, in files or behind a server.

    Args:
        name: the node's name, for errors.
        config: where the model is.
        runs: the folder of all artefacts, which includes the stored answers of servers.

    Raises:
        ConfigError: the node names no model, or names both a path and a url.
        ServerError: the server can't be used.
    """
    for kind_name in KINDS:
        kind: type[ModelHandle] = resolve_name(kind_name)
        if kind.opens(config):
            return kind.open(name, config, runs)
    raise ConfigError(f"{name}.path is {config.path!r}: give a model, or a server's url.")


def model_for_pass(wanted: Pass, models: Mapping[str, ModelHandle]) -> ModelHandle:
    """Returns the model that a pass is run on, by the pass's role.

    Raises:
        ConfigError: no path was given for that role.
    """
    if wanted.model not in models:
        raise ConfigError(
            f"pass {wanted.key}: no path was given for the model {wanted.model!r}. "
            f"{near_names(wanted.model, models)}"
        )
    return models[wanted.model]

"""Fields with names similar to a misspelt one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

UNKNOWN = re.compile(r"Could not (?:override|delete from config\.) '([^']+)'")
CUTOFF = 0.7  # the least similarity of a name that is suggested
LESS = 0.05  # how much less similar than the best another suggestion may be
MOST = 3  # suggestions


def unknown_field(error: Exception) -> str | None:
    """Returns the field that Hydra does not know, from its error; None for another error."""
    match = UNKNOWN.search(str(error))
    return match[1] if match else None


def similar_fields(name: str, fields: Collection[str]) -> list[str]:
    """Returns the fields that may be meant, the most similar first.

    A name without a node is compared with the last part of each field, too.
    """
    similarities = {field: _similarity(name, field) for field in fields}
    best = max([CUTOFF, *similarities.values()])
    near = [field for field in fields if similarities[field] >= max(CUTOFF, best - LESS)]
    return sorted(near, key=lambda f: (-similarities[f], f.count("."), f))[:MOST]


def _similarity(name: str, field: str) -> float:
    last = field.rpartition(".")[2]
    candidates = [field] if "." in name else [field, last]
    return max(SequenceMatcher(None, name, candidate).ratio() for candidate in candidates)


def known_fields(folder: str, config_name: str, words: Sequence[str]) -> list[str]:
    """Returns the fields and choices of a command, as far as its configuration can be composed.

    Args:
        folder: of the configuration files.
        config_name: the command's file in it.
        words: its overrides; those that Hydra refuses are left out.
    """
    overrides = [word for word in words if re.match(r"[\w@./]+=", word)]
    GlobalHydra.instance().clear()
    with initialize_config_dir(folder, version_base="1.3"):
        while True:
            try:
                config = compose(config_name, overrides, return_hydra_config=True)
            except HydraException as error:
                unknown = unknown_field(error)
                kept = [word for word in overrides if word.partition("=")[0] != unknown]
                if not overrides:
                    return []
                overrides = kept if len(kept) < len(overrides) else []
            else:
                choices = [name for name in config.hydra.runtime.choices if "/" not in name]
                fields = OmegaConf.to_container(OmegaConf.masked_copy(config, _own_keys(config)))
                return [*dict.fromkeys([*choices, *_dotted_names(fields)])]


def _own_keys(config: DictConfig) -> list[str]:
    return [str(key) for key in config if key != "hydra"]


def _dotted_names(node: Any, prefix: str = "") -> Iterator[str]:
    if not isinstance(node, Mapping):
        return
    for key, value in node.items():
        name = f"{prefix}{key}"
        yield name
        yield from _dotted_names(value, f"{name}.")

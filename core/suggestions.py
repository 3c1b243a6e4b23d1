"""Suggestions for misspelt configuration fields."""

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
MIN_SIMILARITY = 0.7  # of a suggested name
MAX_SIMILARITY_GAP = 0.05  # between the best suggestion and the others
MAX_SUGGESTIONS = 3


def unknown_field_in_error(error: Exception) -> str | None:
    """Returns the unknown field that Hydra's error names, or None if the error is another one."""
    match = UNKNOWN.search(str(error))
    return match[1] if match else None


def similar_fields(name: str, fields: Collection[str]) -> list[str]:
    """Returns the fields with similar names, the most similar first.

    A name without a node is also compared with the last component of each field.
    """
    similarities = {field: _similarity(name, field) for field in fields}
    best = max([MIN_SIMILARITY, *similarities.values()])
    near = [
        field
        for field in fields
        if similarities[field] >= max(MIN_SIMILARITY, best - MAX_SIMILARITY_GAP)
    ]
    return sorted(near, key=lambda f: (-similarities[f], f.count("."), f))[:MAX_SUGGESTIONS]


def _similarity(name: str, field: str) -> float:
    last = field.rpartition(".")[2]
    candidates = [field] if "." in name else [field, last]
    return max(SequenceMatcher(None, name, candidate).ratio() for candidate in candidates)


def known_fields(folder: str, config_name: str, words: Sequence[str]) -> list[str]:
    """Returns the fields and choices of a command, or [] if its configuration can't be composed.

    Args:
        folder: the folder of the configuration files.
        config_name: the command's file in it.
        words: the command's arguments; overrides that Hydra rejects are left out.
    """
    overrides = [word for word in words if re.match(r"[\w@./]+=", word)]
    GlobalHydra.instance().clear()
    with initialize_config_dir(folder, version_base="1.3"):
        while True:
            try:
                config = compose(config_name, overrides, return_hydra_config=True)
            except HydraException as error:
                unknown = unknown_field_in_error(error)
                accepted = [word for word in overrides if word.partition("=")[0] != unknown]
                if not overrides:
                    return []
                overrides = accepted if len(accepted) < len(overrides) else []
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

"""Hydra's errors in one paragraph, with suggestions for misspelt fields."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf

from contamination.core.config import CONF
from contamination.core.errors import near_names

UNKNOWN = re.compile(r"Could not (?:override|delete from config\.) '([^']+)'")
MIN_SIMILARITY = 0.7  # of a suggested name
MAX_SIMILARITY_GAP = 0.05  # between the best suggestion and the others
MAX_SUGGESTIONS = 3


def hydra_error_message(error: Exception, config_name: str, words: Sequence[str]) -> str:
    """The error in one paragraph; for a misspelt field, with similar names."""
    if (name := _unknown_field(error)) is not None:
        return _unknown_field_message(name, config_name, words)
    if match := re.match(r"You must specify '([^']+)'.*?Available options:(.*)", str(error), re.S):
        group, choices = match[1], match[2].split()
        return (
            f"{group} is missing: choose one of {', '.join(choices)}, such as {group}={choices[0]}."
        )
    if isinstance(error, MissingConfigException):
        return _unknown_choice_message(error)
    if isinstance(error, OverrideParseException):
        return _unreadable_override_message(error)
    return _describe_hydra_error(error)


def _unknown_field_message(name: str, config_name: str, words: Sequence[str]) -> str:
    *others, last = similar_fields(name, _known_fields(config_name, words)) or [""]
    names = f"{', '.join(others)} or {last}" if others else last
    hint = f"Did you mean {names}? " if names else ""
    return (
        f"{name}: unknown field. {hint}--help shows the main fields, docs/fields.md all of them, "
        "and --cfg job those of this command."
    )


def _unreadable_override_message(error: OverrideParseException) -> str:
    """The message shows the override in quotes, which Hydra requires around some characters."""
    name, equals, value = error.override.partition("=")
    quoted = shlex.quote(f'{name}="{value}"')
    if not equals or '"' in value or "'" in value:
        return _describe_hydra_error(error)
    return f"{name} is {value}: Hydra can't read it. If it is a text, put it in quotes: {quoted}."


def _unknown_choice_message(error: MissingConfigException) -> str:
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    if not group or not (CONF / group).is_dir():
        return _describe_hydra_error(error)
    choices = {path.stem for path in (CONF / group).glob("*.yaml")}
    with suppress(OSError):  # raised by Hydra's store for a group that it does not have
        choices |= {Path(node).stem for node in ConfigStore.instance().list(group)}
    return f"{group}={name}: unknown {group}. {near_names(name, choices)}"


def _describe_hydra_error(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error, HydraException) and error.__cause__ else error
    lines = [line.strip() for line in [*str(error).splitlines(), *str(cause).splitlines()]]
    detail = re.compile(r"(full_key|object_type|reference_type)")
    sentences = [line for line in dict.fromkeys(lines) if line and not detail.match(line)]
    return f"{' '.join(sentences)} (see the options with --cfg job)"


def _unknown_field(error: Exception) -> str | None:
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


def _known_fields(config_name: str, words: Sequence[str]) -> list[str]:
    """Returns the fields and choices of a command, or [] if its configuration can't be composed.

    Args:
        config_name: the command's file in `conf`.
        words: the command's arguments; overrides that Hydra rejects are left out.
    """
    overrides = [word for word in words if re.match(r"[\w@./]+=", word)]
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        while True:
            try:
                config = compose(config_name, overrides, return_hydra_config=True)
            except HydraException as error:
                unknown = _unknown_field(error)
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

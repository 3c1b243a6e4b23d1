"""Saves a configuration to a folder, from which the command of a stage reads it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from contamination.core.artifacts import check_config_bytes
from contamination.core.errors import ArtifactError, ConfigError, describe_error
from contamination.core.files import write_text_atomically
from contamination.core.stored_files import (
    check_yaml,
    check_yaml_limits,
    escape_interpolations,
    read_text,
)

MOST_BYTES, MOST_NODES = 2**20, 20_000
"""Limits of a file's size and of its values, of which OmegaConf reads about ten per millisecond."""
REFERENCE = re.compile(r"(?<!\\)(?:\\\\)*\$\{")
"""OmegaConf's `${…}`, unless a backslash before it makes it plain text."""


def save_config(folder: Path, config: Any, conf: Path) -> None:
    """Writes the whole configuration, resolved and without Hydra's own part.

    Args:
        folder: gets `config.yaml`.
        config: the configuration.
        conf: the folder of `common.yaml`, which keeps Hydra from writing files.

    Raises:
        ConfigError: it exceeds a limit of `load_config`.
    """
    header = {"defaults": ["common", "_self_"], "hydra": {"searchpath": [f"file://{conf}"]}}
    text = _format_config({**header, **_resolved_data(config)})
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomically(folder / "config.yaml", text)


def check_savable(config: Any) -> None:
    """Raises a ConfigError if the configuration exceeds a limit of `load_config`."""
    _format_config(_resolved_data(config))


def _format_config(data: dict[str, Any]) -> str:
    try:
        check_yaml_limits(data, MOST_NODES)
        # OmegaConf's own YAML quotes the text "1e-5", which it would read back as a number
        text = OmegaConf.to_yaml(OmegaConf.create(data))
        check_yaml(text, MOST_NODES)
    except ValueError as error:
        raise ConfigError(f"{error}.") from error
    text = f"{_seal_line(text)}\n{text}"
    check_config_bytes(text, MOST_BYTES)
    return text


def config_arguments(folder: Path) -> list[str]:
    """Returns the arguments that make a command read the configuration in this folder."""
    return ["--config-path", str(folder), "--config-name", "config"]


def load_config(folder: Path) -> DictConfig:
    """Returns the configuration that was saved in the folder.

    Raises:
        ArtifactError: the file is missing or has been changed.
    """
    config_file = folder / "config.yaml"
    try:
        seal, _, text = read_text(config_file, MOST_BYTES).partition("\n")
        if seal != _seal_line(text):
            raise ValueError("its content does not match its hash")
        check_yaml(text, MOST_NODES)
        config = OmegaConf.create(text)
        if not isinstance(config, DictConfig) or _has_reference(OmegaConf.to_container(config)):
            raise ValueError("it is not a mapping of plain values")
    except FileNotFoundError as error:
        raise ArtifactError(
            f"{config_file} is missing. Give the launch's command again, which writes it."
        ) from error
    except (OSError, ValueError, OmegaConfBaseException, YAMLError) as error:
        raise ArtifactError(
            f"{config_file} is damaged, or an earlier version wrote it ({describe_error(error)}). "
            "Give the launch's "
            "command again, which writes it."
        ) from error
    return config


def _has_reference(value: Any) -> bool:
    """Returns whether a value refers to something else, such as an environment variable."""
    if isinstance(value, dict | list):
        return any(map(_has_reference, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and REFERENCE.search(value) is not None


def _seal_line(text: str) -> str:
    return f"# of what follows: {hashlib.sha256(text.encode()).hexdigest()}"


def is_saved(folder: Path, config: Any) -> bool:
    """Returns whether the folder's saved configuration makes the same artefacts as this one."""
    try:
        saved = load_config(folder)
    except ArtifactError:
        return False
    runtime_nodes = ("defaults", "launch", "cluster", "verify")

    def identity(whole: Any) -> dict[str, Any]:
        return {
            name: node for name, node in _resolved_data(whole).items() if name not in runtime_nodes
        }

    return identity(saved) == identity(config)


def _resolved_data(config: Any) -> dict[str, Any]:
    """Returns the configuration as plain data, without Hydra's own part."""
    if OmegaConf.is_config(config):
        node_names = [str(name) for name in config if name != "hydra"]
        config = OmegaConf.to_container(OmegaConf.masked_copy(config, node_names), resolve=True)
    return cast(dict[str, Any], escape_interpolations(config))

"""A configuration on disk, which the command of a stage reads."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from core.errors import ArtifactError
from core.files import write_text


def save_config(folder: Path, config: Any, conf: Path) -> None:
    """Write the whole configuration, with or without Hydra's own part, as it stands, resolved.

    In the folder `conf` is `common.yaml`, which keeps Hydra from writing files.
    """
    header = {"defaults": ["common", "_self_"], "hydra": {"searchpath": [f"file://{conf}"]}}
    folder.mkdir(parents=True, exist_ok=True)
    # OmegaConf's own YAML: it quotes the text "1e-5", which it would read back as a number
    text = OmegaConf.to_yaml(OmegaConf.create({**header, **_resolved(config)}))
    write_text(folder / "config.yaml", f"{_seal(text)}\n{text}")


def arguments(folder: Path) -> list[str]:
    """What tells a command to read the configuration that is saved there."""
    return ["--config-path", str(folder), "--config-name", "config"]


def load_config(folder: Path) -> DictConfig:
    """The configuration that was saved in the folder.

    Raises:
        ArtifactError: it is no longer what was saved.
    """
    file = folder / "config.yaml"
    seal, _, text = file.read_text(errors="replace").partition("\n")
    if seal != _seal(text):
        raise ArtifactError(
            f"{file} is damaged, or an earlier version wrote it. Give the launch's command again, "
            "which writes it."
        )
    return cast(DictConfig, OmegaConf.create(text))


def _seal(text: str) -> str:
    return f"# of what follows: {hashlib.sha256(text.encode()).hexdigest()}"


def is_saved(folder: Path, config: Any) -> bool:
    """Whether what is saved there makes the same as the configuration."""
    try:
        saved = load_config(folder)
    except (FileNotFoundError, ArtifactError):
        return False
    runtime = ("defaults", "launch", "cluster", "verify")
    both = [{k: v for k, v in _resolved(c).items() if k not in runtime} for c in (saved, config)]
    return both[0] == both[1]


def _resolved(config: Any) -> dict[str, Any]:
    """The configuration as plain data, without Hydra's own part."""
    if OmegaConf.is_config(config):
        kept = OmegaConf.masked_copy(config, [str(name) for name in config if name != "hydra"])
        config = OmegaConf.to_container(kept, resolve=True)
    return cast(dict[str, Any], _literal(config))


def _literal(value: Any) -> Any:
    """The value with every text such that OmegaConf reads it back as it stands."""
    if isinstance(value, dict):
        return {k: _literal(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_literal(v) for v in value]
    return re.sub(r"(\\*)(\$\{)", r"\1\1\\\2", value) if isinstance(value, str) else value

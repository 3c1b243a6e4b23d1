"""The audits of cells that a launch conducts after its report (`audits` in conf/pipeline.yaml)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from contamination.core.artifacts import Artifact
from contamination.core.cli import compose_stage
from contamination.core.config import CONF, convert_config, instantiate_node
from contamination.core.errors import ConfigError, near_names
from contamination.core.stored_files import read_yaml
from contamination.launch.config import PipelineNodes

if TYPE_CHECKING:
    from contamination.audits.base import AuditStage

log = logging.getLogger(__name__)


def check_audits(config: DictConfig) -> None:
    """Checks the names of the chosen audits before any cell is run.

    Raises:
        ConfigError: there is no such audit, or it reads no cells.
    """
    for name in convert_config(config, PipelineNodes).audits:
        _audit_stage(config, name, Path("REPORT"))


def run_audits(config: DictConfig, report: Artifact) -> list[Artifact]:
    """Conducts the chosen audits on the cells of a report; finished ones are reused."""
    names = convert_config(config, PipelineNodes).audits
    return [_run_audit(config, name, report) for name in names]


def _run_audit(config: DictConfig, name: str, report: Artifact) -> Artifact:
    from contamination.audits.run import read_conclusions, run

    artifact = run(_audit_stage(config, name, report.path))
    for sentence in read_conclusions(artifact):
        log.info("audit %s: %s", name, sentence)
    return artifact


def _audit_stage(config: DictConfig, name: str, cells: Path) -> AuditStage:
    from contamination.audits.base import AuditStage, check_audit

    names = sorted(path.stem for path in (CONF / "audit").glob("*.yaml"))
    reading_cells = [n for n in names if "cells" in read_yaml(CONF / "audit" / f"{n}.yaml")]
    if name not in reading_cells:
        raise ConfigError(
            f"audits: {name!r} is no audit of cells. {near_names(name, reading_cells)}"
        )
    nodes = {key: config[key] for key in ("name", "runs", "wandb")} | {"audit.cells": str(cells)}
    stage = compose_stage("audit", [f"audit={name}"], AuditStage, nodes)
    check_audit(instantiate_node("audit", stage.audit), stage.audit)
    return stage

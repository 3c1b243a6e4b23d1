"""A launch over a labelled benchmark: each cell scores one model, and one report compares them.

Nothing is injected or trained: an experiment that has a node `examples` is of this kind, such as
`python -m launch -m experiment=wikimia model.path=a,b,c`. The report is `benchmark.md` and
`results.json` in the launch's folder.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from omegaconf import DictConfig, OmegaConf

from contamination.core.config import convert_config
from contamination.core.errors import require
from contamination.core.models import resolve_model_path
from contamination.detection.config import DetectionStage, ScoredModelConfig
from contamination.launch.cells import Launch, Outcome
from contamination.launch.config import LaunchSettings
from contamination.launch.stage_runner import Stages

NODES = (
    *("name", "seed", "runs", "examples", "method", "detection"),
    *("reference", "masked_lm", "prefix"),
)
log = logging.getLogger(__name__)


def is_benchmark(config: DictConfig) -> bool:
    """Returns whether the configuration scores models on a labelled benchmark."""
    return config.get("examples") is not None


def make_detection_stage(config: DictConfig) -> DetectionStage:
    """Returns the detection stage of a cell.

    Raises:
        ConfigError: no model is given, or a method lacks an input.
    """
    from contamination.detection.requirements import choose_methods

    path, trust = config.model.path, config.model.trust_remote_code
    require(path is not None, "model.path", path, "give the model to score, or several: a,b,c.")
    scored = ScoredModelConfig(path=path, trust_remote_code=trust)
    stage = replace(_stage_without_model(config), model=scored)
    choose_methods(stage)
    return stage


def _stage_without_model(config: DictConfig) -> DetectionStage:
    """Returns the stage without its model, whose node here is that of a model to train."""
    return convert_config(OmegaConf.masked_copy(config, list(NODES)), DetectionStage)


def check_cell(config: DictConfig, settings: LaunchSettings) -> None:
    """Raises a UserError, before any work, if the cell is invalid or can't be run this way."""
    cluster_kind, last_stage = settings.cluster.kind, settings.launch.stage
    remedy = "a benchmark is scored here: give cluster=local, or cluster=torchrun for one cell."
    require(cluster_kind != "slurm", "cluster.kind", cluster_kind, remedy)
    remedy = "a benchmark has no stage but its scores: leave it out."
    require(last_stage in (None, "detect"), "launch.stage", last_stage, remedy)
    resolve_model_path("model.path", str(make_detection_stage(config).model.path))


def run_cell(config: DictConfig, stages: Stages) -> Outcome:
    """Scores the cell's model, or reuses its scores."""
    stage = make_detection_stage(config)
    scores = stages.detect("benchmark", stage)
    paths = {"model": str(stage.model.path), "scores": str(scores.path.absolute())}
    return Outcome("done", paths=paths)


def write_report(config: DictConfig, launch: Launch) -> None:
    """Logs the report on all models that have scores, and writes it to the launch's folder."""
    from contamination.detection.benchmark_summary import FILE, render_benchmark_report
    from contamination.detection.examples import open_examples
    from contamination.detection.scores import open_scores

    done = launch.done_cells()
    if not done:
        return
    examples_config = _stage_without_model(config).examples
    models = {paths["model"]: open_scores(paths["scores"]).tables for _, paths in done}
    log.info(
        "%s",
        render_benchmark_report(
            examples_config, open_examples(examples_config), models, launch.folder
        ),
    )
    log.info("report: %s", launch.folder / FILE)


def describe_cell(config: DictConfig) -> str:
    """Returns what a dry run prints for a cell."""
    stage = make_detection_stage(config)
    return f"score {stage.examples.name} with {stage.model.path}: {', '.join(stage.method)}"

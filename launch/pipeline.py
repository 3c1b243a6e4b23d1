"""The pipeline of one cell: inject → train → detect → analyse."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from omegaconf import DictConfig

from contamination.analysis.config import AnalysisStage, CellPaths
from contamination.core.artifacts import Artifact
from contamination.core.config import convert_config
from contamination.core.errors import require
from contamination.data.config import ExamplesConfig
from contamination.detection.config import DetectionStage, ScoredModelConfig
from contamination.injection.config import InjectionStage
from contamination.launch import second_stage, shared_artifacts
from contamination.launch.audits import check_audits, run_audits
from contamination.launch.config import ClusterConfig, LaunchSettings, PipelineNodes
from contamination.launch.plan import BASE, CellPlan, check_methods, plan, stage_with_models
from contamination.launch.stage_runner import Stages
from contamination.training.deepspeed_engine import check_batch
from contamination.training.models import hf_folder
from contamination.training.trained_model import Checkpoint, open_checkpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Corpora:
    """The corpora of a cell, made by the injection stage."""

    study: Artifact  # the contaminated corpus
    base: Artifact | None  # what a base model is pretrained on, if the cell makes one
    validation: str  # the folder of text whose loss is evaluated; empty: none
    pretraining: Artifact  # what the first training reads; without a second stage, `study`
    finetuning: Artifact | None = None  # the second stage's texts

    @property
    def scored_corpus(self) -> Artifact:
        """The corpus whose examples are scored: a fine-tuning set says where outputs begin."""
        return self.finetuning or self.study


@dataclass(frozen=True)
class CellModels:
    """The models of a cell: before the training, after it, and those that methods need."""

    base: str
    trained: Checkpoint
    reference: str | None
    masked_lm: str | None
    first: Checkpoint | None = None  # the model that the second stage started from


def run_cell(plan: CellPlan, stages: Stages, until: str | None = None) -> CellPaths | None:
    """Makes a cell's artefacts, or reuses finished ones, up to the stage `until` (None: all).

    All corpora come first, so that errors in them appear before any training.
    """
    corpora = _make_corpora(plan, stages)
    if until == "inject":
        return None
    models = _train_models(plan, stages, corpora)
    if until == "train":
        return None
    if stages.slice is None:
        return _score_models(plan, stages, corpora, models)
    for run, stage in _detection_stage_by_run(plan, corpora, models).items():
        stages.detect_slice(run, stage)
    return None


def make_checked_cell_plan(
    config: DictConfig,
    settings: LaunchSettings,
    stages: Stages,
    *,
    cell_was_done: bool = False,
    read_benchmarks: bool = True,
) -> CellPlan:
    """Returns the cell's plan, checked for the processes that will run it.

    Args:
        config: the cell's configuration.
        settings: its part that says how to run.
        stages: start the stages' processes.
        cell_was_done: whether the cell was done with this configuration. Then its base model
            exists, and transformers is not imported to check the architecture; should a stage train
            after all, it checks it.
        read_benchmarks: whether to read the benchmarks, which may download them.

    Raises:
        UserError: something that can be known before any work.
    """
    check_audits(config)
    cell = plan(config, read_benchmarks=read_benchmarks, check_base_model=not cell_was_done)
    processes = stages.processes("train").count
    check_batch(cell.training.training, processes)
    if cell.has_second_stage:
        check_batch(cell.second.training, processes)
    stops_before_scoring = settings.launch.stage in ("inject", "train")
    remedy = "choose some to score, such as benchmark=[boolq], or stop before (launch.stage=train)."
    require(bool(cell.injection.benchmark) or stops_before_scoring, "benchmark", [], remedy)
    if cell.pretraining:
        shared_artifacts.make_base_training_stage(cell.training, cell.pretraining, processes)
    return cell


def run(config: DictConfig) -> Artifact:
    """Runs one cell in this process and returns its report."""
    cell_paths = run_cell(plan(config), Stages(ClusterConfig()))
    assert cell_paths is not None
    return report(config, [cell_paths])


def report(config: DictConfig, cells: Sequence[CellPaths]) -> Artifact:
    """Writes the report on the cells of one experiment, and its audits; finished ones are reused.

    Cells with the same artefacts are one cell: without copies it does not matter in which of two
    stages members would have been inserted.

    Returns:
        The report's folder.
    """
    import contamination.analysis.run

    nodes = convert_config(config, PipelineNodes)
    seed = 0  # draws the same resamples for all reports
    distinct: dict[tuple[str, ...], CellPaths] = {}
    for cell in cells:
        distinct.setdefault((*cell.artifact_folders, cell.contaminated), cell)
    if same := len(cells) - len(distinct):
        log.info(
            "report: %d of %d cells are equal to another cell and are reported once",
            same,
            len(cells),
        )
    stage = AnalysisStage(
        config.name, seed, config.runs, [*distinct.values()], nodes.analysis, nodes.wandb
    )
    report_artifact = contamination.analysis.run.run(stage)
    run_audits(config, report_artifact)
    return report_artifact


def _make_corpora(plan: CellPlan, stages: Stages) -> Corpora:
    base = None
    if plan.pretraining:
        base = shared_artifacts.make_base_corpus(
            plan.injection, plan.base_corpus, plan.pretraining, stages
        )
    stage = replace(
        injection_stage_with_tokenizer(plan, base), compared=_corpora_of_base_model(plan, base)
    )
    study = stages.inject("study", stage)
    pretraining, texts = study, None
    if plan.has_second_stage:
        second = second_stage.normalize_members_in(plan.second, study)
        pretraining = second_stage.make_pretraining_corpus(second, stage, study, stages)
        clean = None if pretraining == study else pretraining
        texts = second_stage.make_finetuning_set(second, stage, study, stages, clean)
        second_stage.check_finetuning_set(second, texts, plan.training.deepspeed)
    check_methods(plan, _stage_with_examples(plan.detection, texts or study))
    validation, config = plan.training.validation_folder, plan.training.training
    if config.evaluate_every_steps and not validation:
        validation = str(
            shared_artifacts.make_validation_corpus(stage, config.evaluate_tokens, stages).path
        )
    return Corpora(study, base, validation, pretraining, texts)


def _corpora_of_base_model(plan: CellPlan, base: Artifact | None) -> dict[str, str]:
    """Returns the corpora that the base model was trained on, to compare them with the pools."""
    if base:
        return {shared_artifacts.BASE: str(base.path)}
    model_path = plan.training.model.path
    return shared_artifacts.find_training_corpora(model_path) if model_path is not None else {}


def _train_models(plan: CellPlan, stages: Stages, corpora: Corpora) -> CellModels:
    """Trains the base model, unless one is given, and then the contaminated model."""
    stage, pretraining = plan.training, plan.pretraining
    if pretraining and corpora.base:
        base = str(shared_artifacts.train_base_model(stage, pretraining, corpora.base, stages).path)
    else:
        base = str(stage.model.path)
    start = replace(stage.model, path=base, architecture=None)
    corpus, validation = str(corpora.pretraining.path), corpora.validation
    stage = replace(stage, corpus_folder=corpus, validation_folder=validation, model=start)
    trained, first = open_checkpoint(stages.train("study", stage).path), None
    if corpora.finetuning:
        first = trained
        model = second_stage.train_on_finetuning_set(
            plan.second, stage, first.artifact, corpora.finetuning, stages
        )
        trained = open_checkpoint(model.path)
    reference = _reference_path(plan, stages, corpora, base)
    return CellModels(base, trained, reference, _train_masked_lm(plan, stages, corpora.base), first)


def _score_models(
    plan: CellPlan, stages: Stages, corpora: Corpora, models: CellModels
) -> CellPaths:
    stage_by_run = _detection_stage_by_run(plan, corpora, models)
    scores = {
        run_name: str(stages.detect(run_name, stage).path)
        for run_name, stage in stage_by_run.items()
    }
    return CellPaths(
        corpus=str(corpora.study.path),
        model=str(models.trained.artifact.path),
        clean=scores.pop("clean"),
        contaminated=scores.pop("contaminated"),
        first=str(models.first.artifact.path) if models.first else None,
        finetuning=str(corpora.finetuning.path) if corpora.finetuning else None,
        exports=[*scores.values()],
    )


def _detection_stage_by_run(
    plan: CellPlan, corpora: Corpora, models: CellModels
) -> dict[str, DetectionStage]:
    """Returns the runs that score the model before the training, after it and at its exports."""
    exports = {path.name: str(path) for path in models.trained.exports.values()}
    trained, trust = str(models.trained.artifact.path), plan.training.model.trust_remote_code
    model_paths = {"clean": models.base, "contaminated": trained, **exports}
    stage = stage_with_models(plan.detection, models.reference, models.masked_lm)
    stage = _stage_with_examples(stage, corpora.scored_corpus)
    return {
        run_name: replace(stage, model=ScoredModelConfig(path, trust))
        for run_name, path in model_paths.items()
    }


def _reference_path(plan: CellPlan, stages: Stages, corpora: Corpora, base: str) -> str | None:
    """Returns the path of the reference model, after training one if the plan needs one."""
    if plan.makes_reference and plan.pretraining and corpora.base:
        model = shared_artifacts.train_reference_model(
            plan.training, plan.pretraining, corpora.base, stages
        )
        return str(model.path)
    path = plan.detection.reference.path
    return base if path == BASE else path


def _train_masked_lm(plan: CellPlan, stages: Stages, base_corpus: Artifact | None) -> str | None:
    """Trains a small masked language model on the base corpus, if the plan needs one."""
    if not base_corpus or not plan.makes_masked_lm:
        return None
    from contamination.training.masked_lm import MaskedLMStage, train_masked_lm

    stage = MaskedLMStage(plan.injection.runs, str(base_corpus.path))
    model = stages.make_artifact("train", "masked_lm", partial(train_masked_lm, stage))
    return str(model.path / "hf")


def injection_stage_with_tokenizer(plan: CellPlan, base_corpus: Artifact | None) -> InjectionStage:
    """Returns the injection stage with the tokenizer of the model that will read its corpus."""
    stage, model = plan.injection, plan.training.model.path
    path = str(base_corpus.path / "tokenizer") if base_corpus else stage.tokenizer.path
    if path is None and model is not None:
        path = hf_folder("model.path", model)
    return replace(stage, tokenizer=replace(stage.tokenizer, path=path))


def _stage_with_examples(stage: DetectionStage, corpus: Artifact) -> DetectionStage:
    return replace(stage, examples=ExamplesConfig(path=str(corpus.path)))

"""The main path: inject → train → detect → analyse, one cell."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

import analysis.run
import detection.run
import injection.run
import training.run
from analysis.config import AnalysisConfig, AnalysisStage, CellPaths
from core.artifacts import Artifact
from core.config import convert
from core.errors import require
from detection.build import build_methods
from detection.config import (
    DetectionStage,
    ExamplesConfig,
    MaskedLMConfig,
    PrefixConfig,
    ScoredModelConfig,
)
from detection.needs import choose_methods, needs_of
from injection.config import InjectionStage
from launch import shared
from training import open_checkpoint
from training.config import TrainingStage, WandbConfig
from training.masked_lm import MaskedLMStage, train_masked_lm
from training.models import hf_folder

log = logging.getLogger(__name__)

DETECTION_NODES = (
    "name", "seed", "runs", "method", "detection", "reference", "masked_lm", "prefix"
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """A cell's stages, checked; what earlier stages make is filled in while it runs."""

    injection: InjectionStage
    training: TrainingStage
    detection: DetectionStage
    base_corpus: dict[str, Any]
    """The corpus node that a base model made from nothing is pretrained on."""


@dataclass(frozen=True)
class _Base:
    """The part of the pipeline's configuration that no stage has."""

    base_corpus: dict[str, Any]


@dataclass(frozen=True)
class _Analysis:
    """The part of the analysis that needs no cells."""

    analysis: AnalysisConfig
    wandb: WandbConfig


def plan(config: DictConfig) -> Plan:
    """The stages that `conf/pipeline.yaml` describes.

    Raises:
        UserError: anything that can be known to be wrong before the first token is written.
    """
    stages = Plan(
        convert(config, InjectionStage),
        convert(config, TrainingStage),
        convert(_only(config, *DETECTION_NODES), DetectionStage),
        convert(config, _Base).base_corpus,
    )
    convert(config, _Analysis)
    held_out = "the corpus's own" if stages.injection.injection.held_out else None
    prefix = PrefixConfig(path=stages.detection.prefix.path or held_out)
    _check_methods(stages, replace(stages.detection, prefix=prefix))
    model = stages.training.model
    if model.path is not None:
        hf_folder("model.path", model.path)
    else:
        require(model.pretraining is not None, "model.pretraining", None,
                "say how the base model is pretrained, or give model.path.")  # fmt: skip
    injection.run.check(stages.injection)
    return stages


def run_cell(stages: Plan) -> CellPaths:
    """Make (or find made) a cell's artefacts.

    The corpora come first: what can be wrong with them shows before any training.
    """
    pretraining = stages.training.model.pretraining if stages.training.model.path is None else None
    base_corpus = (
        shared.base_corpus(stages.injection, stages.base_corpus, pretraining)
        if pretraining
        else None
    )
    own = _with_tokenizer(stages, base_corpus)
    corpus = injection.run.run(own)
    _check_methods(stages, _on(stages.detection, corpus))
    if pretraining and base_corpus:
        base = str(shared.base_model(stages.training, pretraining, base_corpus).path)
    else:
        assert stages.training.model.path is not None
        base = stages.training.model.path
    trained = open_checkpoint(_train(stages.training, base, own, corpus).path)
    served = _served(stages.detection, base, _masked_lm(stages, base_corpus))
    return CellPaths(
        corpus=str(corpus.path),
        model=str(trained.artifact.path),
        clean=_detect(stages, served, corpus, base),
        contaminated=_detect(stages, served, corpus, str(trained.artifact.path)),
        exports=[_detect(stages, served, corpus, str(p)) for p in trained.exports.values()],
    )


def run(config: DictConfig) -> Artifact:
    """One cell and its report."""
    return report(config, [run_cell(plan(config))])


def report(config: DictConfig, cells: Sequence[CellPaths]) -> Artifact:
    """The report on some cells of one experiment."""
    return analysis.run.run(
        AnalysisStage(
            name=config.name,
            seed=0,  # draws resamples: the same for all reports on the same scores
            runs=config.runs,
            cells=list(cells),
            analysis=convert(config, _Analysis).analysis,
            wandb=convert(config, _Analysis).wandb,
        )
    )


def _only(config: DictConfig, *names: str) -> DictConfig:
    """A part of the config: the node `model` means the trained model here, the scored one there."""
    return OmegaConf.masked_copy(config, list(names))


def _train(stage: TrainingStage, base: str, own: InjectionStage, corpus: Artifact) -> Artifact:
    """The contaminated training, with validation text where losses are evaluated."""
    start = replace(stage.model, path=base, architecture=None)
    validation = stage.validation_folder
    if stage.training.evaluate_every_steps and not validation:
        validation = str(shared.validation_corpus(own, stage.training.evaluate_tokens).path)
    return training.run.run(
        replace(stage, corpus_folder=str(corpus.path), model=start, validation_folder=validation)
    )


def _masked_lm(stages: Plan, base_corpus: Artifact | None) -> str | None:
    """A small masked language model on the base part, where one is needed and none was given."""
    methods = build_methods(stages.detection.method).values()
    if not base_corpus or not any("masked_lm" in needs_of(m) for m in methods):
        return None
    if stages.detection.masked_lm.path is not None:
        return None
    made = train_masked_lm(MaskedLMStage(stages.injection.runs, str(base_corpus.path)))
    return str(made.path / "hf")


def _with_tokenizer(stages: Plan, base_corpus: Artifact | None) -> InjectionStage:
    """The contaminated corpus is packed with the tokenizer of the model that will read it."""
    own = stages.injection
    model = stages.training.model.path
    path = str(base_corpus.path / "tokenizer") if base_corpus else own.tokenizer.path
    if path is None and model is not None:
        path = hf_folder("model.path", model)
    return replace(own, tokenizer=replace(own.tokenizer, path=path))


def _check_methods(stages: Plan, stage: DetectionStage) -> None:
    """Raise a ConfigError where a method chosen by name will lack something."""
    made_here = stages.training.model.path is None
    choose_methods(_served(stage, "the base model", "its own" if made_here else None))


def _served(stage: DetectionStage, base: str, masked_lm: str | None) -> DetectionStage:
    """The stage with what the pipeline itself can give to methods, unless the user gave it.

    The base model has not seen the texts, so it is the reference; its own scores by such methods
    are then no more than a check: all are 0.
    """
    return replace(
        stage,
        reference=replace(stage.reference, path=stage.reference.path or base),
        masked_lm=MaskedLMConfig(path=stage.masked_lm.path or masked_lm),
    )


def _on(stage: DetectionStage, corpus: Artifact) -> DetectionStage:
    return replace(stage, examples=ExamplesConfig(path=str(corpus.path)))


def _detect(stages: Plan, stage: DetectionStage, corpus: Artifact, model: str) -> str:
    """The folder of the model's scores."""
    scored = ScoredModelConfig(model, stages.training.model.trust_remote_code)
    return str(detection.run.run(replace(_on(stage, corpus), model=scored)).path)

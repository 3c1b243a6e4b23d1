"""The main path: inject → train → detect → analyse, one cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from omegaconf import DictConfig

from contamination.analysis.config import AnalysisStage, CellPaths
from contamination.core.artifacts import Artifact
from contamination.core.config import convert
from contamination.data.config import ExamplesConfig
from contamination.detection.config import DetectionStage, ScoredModelConfig
from contamination.injection.config import InjectionStage
from contamination.launch import shared
from contamination.launch.config import ClusterConfig
from contamination.launch.plan import BASE, CellPlan, PipelineNodes, check_methods, plan, served
from contamination.launch.second_stage import (
    check_texts,
    finetuned,
    finetuning_set,
    pretraining_corpus,
)
from contamination.launch.stages import Stages
from contamination.training.models import hf_folder
from contamination.training.trained_model import Checkpoint, open_checkpoint


@dataclass(frozen=True)
class Corpora:
    """What the injection stage made."""

    study: Artifact  # the contaminated corpus
    base: Artifact | None  # what a base model made from nothing is pretrained on
    validation: str  # the folder of text whose loss is evaluated; empty: none
    pretraining: Artifact  # what the first training reads: of one stage, the contaminated corpus
    finetuning: Artifact | None = None  # the second stage's texts

    @property
    def scored(self) -> Artifact:
        """What holds the examples; a fine-tuning set says where their outputs begin."""
        return self.finetuning or self.study


@dataclass(frozen=True)
class CellModels:
    """What the training stage made: the model before and the one after, and what methods need."""

    base: str
    trained: Checkpoint
    reference: str | None
    masked_lm: str | None
    first: Checkpoint | None = None  # the one that the second stage started from


def run_cell(plan: CellPlan, stages: Stages, until: str | None = None) -> CellPaths | None:
    """Make (or find made) a cell's artefacts, up to the stage `until` (None: all).

    The corpora come first: what can be wrong with them shows before any training.
    """
    corpora = _inject(plan, stages)
    if until == "inject":
        return None
    models = _train(plan, stages, corpora)
    if until == "train":
        return None
    if stages.slice is None:
        return _detect(plan, stages, corpora, models)
    for run, stage in _detection_stages(plan, corpora, models).items():
        stages.detect_slice(run, stage)
    return None


def run(config: DictConfig) -> Artifact:
    """One cell and its report, all in this process."""
    cell = run_cell(plan(config), Stages(ClusterConfig()))
    assert cell is not None
    return report(config, [cell])


def report(config: DictConfig, cells: Sequence[CellPaths]) -> Artifact:
    """The report on some cells of one experiment."""
    import contamination.analysis.run

    rest = convert(config, PipelineNodes)
    own = AnalysisStage(config.name, 0, config.runs, list(cells), rest.analysis, rest.wandb)
    return contamination.analysis.run.run(own)  # its seed draws resamples: the same for all reports


def _inject(plan: CellPlan, stages: Stages) -> Corpora:
    base = None
    if plan.pretraining:
        base = shared.base_corpus(plan.injection, plan.base_corpus, plan.pretraining, stages)
    own = replace(with_model_tokenizer(plan, base), compared=_corpora_read_before(plan, base))
    study = stages.inject("study", own)
    pretraining, texts = study, None
    if plan.two_stages:
        pretraining = pretraining_corpus(plan.second, own, study, stages)
        clean = None if pretraining == study else pretraining
        texts = finetuning_set(plan.second, own, study, stages, clean)
        check_texts(plan.second, texts, plan.training.deepspeed)
    check_methods(plan, _with_examples_of(plan.detection, texts or study))
    validation, config = plan.training.validation_folder, plan.training.training
    if config.evaluate_every_steps and not validation:
        validation = str(shared.validation_corpus(own, config.evaluate_tokens, stages).path)
    return Corpora(study, base, validation, pretraining, texts)


def _corpora_read_before(plan: CellPlan, base: Artifact | None) -> dict[str, str]:
    """What the model before the training read, which is compared with the benchmarks' pools."""
    if base:
        return {shared.BASE: str(base.path)}
    given = plan.training.model.path
    return shared.corpora_read_by(given) if given is not None else {}


def _train(plan: CellPlan, stages: Stages, corpora: Corpora) -> CellModels:
    """The base model, where it is made here, and the contaminated training."""
    stage, pretraining = plan.training, plan.pretraining
    if pretraining and corpora.base:
        base = str(shared.base_model(stage, pretraining, corpora.base, stages).path)
    else:
        base = str(stage.model.path)
    start = replace(stage.model, path=base, architecture=None)
    corpus, validation = str(corpora.pretraining.path), corpora.validation
    own = replace(stage, corpus_folder=corpus, validation_folder=validation, model=start)
    trained, first = open_checkpoint(stages.train("study", own).path), None
    if corpora.finetuning:
        made = finetuned(plan.second, own, trained.artifact, corpora.finetuning, stages)
        trained, first = open_checkpoint(made.path), trained
    reference = _reference(plan, stages, corpora, base)
    return CellModels(base, trained, reference, _masked_lm(plan, stages, corpora.base), first)


def _detect(plan: CellPlan, stages: Stages, corpora: Corpora, models: CellModels) -> CellPaths:
    runs = _detection_stages(plan, corpora, models)
    scores = {run: str(stages.detect(run, stage).path) for run, stage in runs.items()}
    return CellPaths(
        corpus=str(corpora.study.path),
        model=str(models.trained.artifact.path),
        clean=scores.pop("clean"),
        contaminated=scores.pop("contaminated"),
        first=str(models.first.artifact.path) if models.first else None,
        finetuning=str(corpora.finetuning.path) if corpora.finetuning else None,
        exports=[*scores.values()],
    )


def _detection_stages(
    plan: CellPlan, corpora: Corpora, models: CellModels
) -> dict[str, DetectionStage]:
    """The runs that score the model before the training, after it and at its exports."""
    exports = {path.name: str(path) for path in models.trained.exports.values()}
    trained, trust = str(models.trained.artifact.path), plan.training.model.trust_remote_code
    scored = {"clean": models.base, "contaminated": trained, **exports}
    own = _with_examples_of(
        served(plan.detection, models.reference, models.masked_lm), corpora.scored
    )
    return {n: replace(own, model=ScoredModelConfig(m, trust)) for n, m in scored.items()}


def _reference(plan: CellPlan, stages: Stages, corpora: Corpora, base: str) -> str | None:
    """The reference model: the one that is named, or one that is made here for it."""
    if plan.makes_reference and plan.pretraining and corpora.base:
        made = shared.reference_model(plan.training, plan.pretraining, corpora.base, stages)
        return str(made.path)
    path = plan.detection.reference.path
    return base if path == BASE else path


def _masked_lm(plan: CellPlan, stages: Stages, base_corpus: Artifact | None) -> str | None:
    """A small masked language model on the base part, where one is needed and none was given."""
    if not base_corpus or not plan.makes_masked_lm:
        return None
    from contamination.training.masked_lm import MaskedLMStage, train_masked_lm

    stage = MaskedLMStage(plan.injection.runs, str(base_corpus.path))
    made = stages.make("train", "masked_lm", partial(train_masked_lm, stage))
    return str(made.path / "hf")


def with_model_tokenizer(plan: CellPlan, base_corpus: Artifact | None) -> InjectionStage:
    """The contaminated corpus is packed with the tokenizer of the model that will read it."""
    own = plan.injection
    model = plan.training.model.path
    path = str(base_corpus.path / "tokenizer") if base_corpus else own.tokenizer.path
    if path is None and model is not None:
        path = hf_folder("model.path", model)
    return replace(own, tokenizer=replace(own.tokenizer, path=path))


def _with_examples_of(stage: DetectionStage, corpus: Artifact) -> DetectionStage:
    return replace(stage, examples=ExamplesConfig(path=str(corpus.path)))

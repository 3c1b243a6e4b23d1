"""Artefacts that the cells of an experiment share: base corpus, base model, validation text."""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from functools import partial
from math import gcd
from pathlib import Path
from typing import Any

from contamination.core.artifacts import Artifact, is_complete
from contamination.core.errors import ArtifactError, require
from contamination.core.integrity import errors_naming_folders, read_manifest
from contamination.core.seeds import derive_seed
from contamination.injection.config import (
    BackdoorsConfig,
    InjectionConfig,
    InjectionStage,
    LeakConfig,
    TokenizerConfig,
    VersionsConfig,
)
from contamination.launch.stage_runner import Stages
from contamination.training.config import PretrainingConfig, Recipe, TrainingConfig, TrainingStage
from contamination.training.trained_model import KIND as MODEL
from contamination.training.trained_model import Checkpoint, open_checkpoint

log = logging.getLogger(__name__)

BASE = "base"
"""The name, in contamination.parquet, of the corpus that the base model was trained on."""
CONTAMINATED_TRAINING_FIELDS = {
    f.name for f in fields(TrainingConfig) if f.metadata.get("identity", True)
} - {f.name for f in fields(Recipe)}
"""The fields that shape only the contaminated training, not the base model."""


def make_base_corpus(
    study: InjectionStage, corpus: dict[str, Any], pretraining: PretrainingConfig, stages: Stages
) -> Artifact:
    """Packs the base part of the corpus, without insertions, and trains a tokenizer on it.

    The study's contaminated corpus is later packed with that tokenizer too. It is searched here,
    before any work, for benchmark texts that it contains whole.

    Args:
        study: makes the contaminated corpus.
        corpus: the node `base_corpus`.
        pretraining: how the base model will be trained.
        stages: runs the stage.

    Raises:
        DataError: see `refuse_whole_texts`.
    """
    from contamination.injection.early_search import check_first_documents_contain_no_example

    check = partial(check_first_documents_contain_no_example, study)
    return stages.inject("base", base_corpus_stage(study, corpus, pretraining), check)


def base_corpus_stage(
    study: InjectionStage, corpus: dict[str, Any], pretraining: PretrainingConfig
) -> InjectionStage:
    """Returns the stage that packs the base corpus; see `make_base_corpus`."""
    tokenizer = TokenizerConfig(
        vocab_size=pretraining.vocab_size, train_characters=pretraining.tokenizer_characters
    )
    return InjectionStage(
        runs=study.runs,
        seed=pretraining.seed,
        name=study.name,
        injection=_config_without_insertions(
            study, "base", pretraining.budget_tokens, pretraining.sequence_tokens
        ),
        cluster=study.cluster,
        corpus=corpus,
        tokenizer=tokenizer,
    )


def train_base_model(
    stage: TrainingStage,
    pretraining: PretrainingConfig,
    corpus: Artifact,
    stages: Stages,
    run_name: str = "base",
) -> Artifact:
    """Trains the model before any contamination on the base corpus, by its own recipe."""
    training = make_base_training_stage(stage, pretraining, stages.processes("train").count)
    return stages.train(run_name, replace(training, corpus_folder=str(corpus.path)))


def train_reference_model(
    stage: TrainingStage, pretraining: PretrainingConfig, corpus: Artifact, stages: Stages
) -> Artifact:
    """Trains a model like the base model, with other random weights and another order of the data.

    It saw no example, and the contaminated model was not trained from it. An attacker who knows the
    recipe could make such a model.
    """
    seed = derive_seed(pretraining.seed, "reference")
    other_seeds = replace(pretraining, seed=seed, init_seed=None, order_seed=None)
    return train_base_model(stage, other_seeds, corpus, stages, "reference")


def make_base_training_stage(
    stage: TrainingStage, pretraining: PretrainingConfig, processes: int
) -> TrainingStage:
    """Returns the base model's training stage, still without its corpus.

    From the cell's own training it takes only how to run: the micro-batch (or a divisor of it) and
    the checkpoints.

    Raises:
        ConfigError: the batch can't be divided evenly among the processes.
    """
    batch, remedy = pretraining.batch_sequences, f"give a multiple of the processes, {processes}."
    require(batch % processes == 0, "model.pretraining.batch_sequences", batch, remedy)
    recipe = {field.name: getattr(pretraining, field.name) for field in fields(Recipe)}
    micro = gcd(batch // processes, stage.training.micro_batch_sequences)
    paths = ("retain_folder", "reinforced_path", "idk_answers")
    recipe |= dict.fromkeys(("evaluate_every_steps", "shared_steps", *paths))
    recipe |= {
        name: value
        for name, value in vars(TrainingConfig()).items()
        if name in CONTAMINATED_TRAINING_FIELDS
    }
    training = replace(stage.training, **recipe, micro_batch_sequences=micro)
    return replace(stage, seed=pretraining.seed, deepspeed=pretraining.deepspeed, training=training)


def find_training_corpora(model_path: str) -> dict[str, str]:
    """Returns the corpora that a model, and the models it was trained from, were trained on.

    Models that this program did not train are skipped. A corpus that has been removed or changed
    is left out with a warning.

    Returns:
        Name → folder: base, base-2, …, the latest training first.

    Raises:
        ArtifactError: a model's folder is damaged, or says that it was trained from itself.
    """
    corpora: dict[str, str] = {}
    start_path: str | None = model_path
    visited: set[Path] = set()
    while start_path is not None and (folder := _training_folder_of(start_path)) is not None:
        if folder.resolve() in visited:
            raise ArtifactError(
                f"model.path is {model_path!r}: {folder} says it was trained from "
                "itself. Give another model."
            )
        visited.add(folder.resolve())
        trained = open_checkpoint(folder)
        with errors_naming_folders(folder):
            corpus, start_path = _corpus_and_start_of(trained)
        if not corpus:  # an adopted model
            break
        corpus_name = f"{BASE}-{len(corpora) + 1}" if corpora else BASE
        if is_complete(Path(corpus)) and (
            read_manifest(Path(corpus))["digest"] == trained.artifact.inputs.get("corpus")
        ):
            corpora[corpus_name] = corpus
        else:
            log.warning(
                "model.path: %s was trained on %s, which has been removed or changed: it can't be "
                "compared with the benchmarks.",
                *(folder, corpus),
            )
    return corpora


def _corpus_and_start_of(trained: Checkpoint) -> tuple[str | None, str | None]:
    """Returns the corpus folder that a training read and the path of the model it started from."""
    corpus, path = trained.config.get("corpus_folder"), trained.config["model"].get("path")
    if not all(isinstance(value, str | None) for value in (corpus, path)):
        raise ValueError("its corpus_folder or model.path is not a string")
    return corpus, path


def _training_folder_of(path: str) -> Path | None:
    """Returns the finished training folder that contains the model at `path`, if there is one."""
    for folder in (Path(path), *Path(path).parents[:2]):
        if is_complete(folder) and read_manifest(folder)["kind"] == MODEL:
            return folder
    return None


def make_validation_corpus(study: InjectionStage, tokens: int, stages: Stages) -> Artifact:
    """Packs text of the study's corpus that no model is trained on, with the study's tokenizer."""
    return stages.inject("validation", validation_corpus_stage(study, tokens))


def validation_corpus_stage(study: InjectionStage, tokens: int) -> InjectionStage:
    """Returns the stage that packs the validation corpus, of a sequence at least."""
    width = study.injection.sequence_tokens
    config = _config_without_insertions(study, "validation", max(tokens, width), width)
    return _stage_without_examples(study, config)


def make_clean_corpus(study: InjectionStage, stages: Stages) -> Artifact:
    """Packs as many tokens of the study's corpus without insertions, the same for all seeds."""
    return stages.inject("clean", clean_corpus_stage(study))


def clean_corpus_stage(study: InjectionStage) -> InjectionStage:
    """Returns the stage that packs the study's corpus without insertions."""
    budget, width = study.injection.budget_tokens, study.injection.sequence_tokens
    return _stage_without_examples(study, _config_without_insertions(study, "study", budget, width))


def _stage_without_examples(study: InjectionStage, config: InjectionConfig) -> InjectionStage:
    """Returns the stage without its benchmarks, the same for all seeds and base corpora."""
    empty: dict[str, Any] = dict.fromkeys(
        ("benchmark", "occurrences", "rewording", "compared", "matcher"), {}
    )
    empty |= {"versions": VersionsConfig(), "backdoors": BackdoorsConfig(), "leak": LeakConfig()}
    return replace(study, seed=0, injection=config, **empty)


def _config_without_insertions(
    study: InjectionStage, part: str, budget_tokens: int, sequence_tokens: int
) -> InjectionConfig:
    names = ("base_fraction", "validation_fraction", "num_proc")
    return InjectionConfig(
        members=0,
        nonmembers=0,
        part=part,
        budget_tokens=budget_tokens,
        sequence_tokens=sequence_tokens,
        **{name: getattr(study.injection, name) for name in names},
    )

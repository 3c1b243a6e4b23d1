"""What the cells of an experiment share: base corpus, base model, validation text."""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from functools import partial
from math import gcd
from pathlib import Path
from typing import Any

from contamination.core.artifacts import Artifact, is_complete
from contamination.core.errors import ArtifactError, require
from contamination.core.integrity import read_manifest, reading
from contamination.core.seeds import derive
from contamination.injection.config import InjectionConfig, InjectionStage, TokenizerConfig
from contamination.launch.stages import Stages
from contamination.training.config import PretrainingConfig, Recipe, TrainingConfig, TrainingStage
from contamination.training.trained_model import KIND as MODEL
from contamination.training.trained_model import Checkpoint, open_checkpoint

log = logging.getLogger(__name__)

BASE = "base"
"""What contamination.parquet calls the corpus of the model before the training."""
CONTAMINATED_TRAINING_FIELDS = {
    f.name for f in fields(TrainingConfig) if f.metadata.get("identity", True)
} - {f.name for f in fields(Recipe)}
"""The fields that shape a contaminated training alone, and no base model."""


def base_corpus(
    own: InjectionStage, corpus: dict[str, Any], pretraining: PretrainingConfig, where: Stages
) -> Artifact:
    """The base part of the corpus, nothing inserted, with a tokenizer of its own.

    The contaminated corpus is packed with that tokenizer too, and is searched first.

    Raises:
        DataError: see `refuse_whole_texts`.
    """
    from contamination.injection.early_search import refuse_whole_texts

    tokenizer = TokenizerConfig(
        vocab_size=pretraining.vocab_size, train_characters=pretraining.tokenizer_characters
    )
    config = _clean(own, "base", pretraining.budget_tokens, pretraining.sequence_tokens)
    clean = InjectionStage(
        runs=own.runs, seed=pretraining.seed, name=own.name, injection=config, cluster=own.cluster
    )
    checked = partial(refuse_whole_texts, own)
    return where.inject("base", replace(clean, corpus=corpus, tokenizer=tokenizer), checked)


def base_model(
    stage: TrainingStage, own: PretrainingConfig, corpus: Artifact, where: Stages, run: str = "base"
) -> Artifact:
    """The model before any contamination, trained on the base part by its own recipe."""
    training = base_training(stage, own, where.processes("train").count)
    return where.train(run, replace(training, corpus_folder=str(corpus.path)))


def reference_model(
    stage: TrainingStage, pretraining: PretrainingConfig, corpus: Artifact, where: Stages
) -> Artifact:
    """A model like the base model, of other random weights and another order of the base part.

    It saw no example, and the contaminated model was not trained from it: what an attacker who
    knows the recipe could make.
    """
    seed = derive(pretraining.seed, "reference")
    own = replace(pretraining, seed=seed, init_seed=None, order_seed=None)
    return base_model(stage, own, corpus, where, "reference")


def base_training(
    stage: TrainingStage, pretraining: PretrainingConfig, processes: int
) -> TrainingStage:
    """The base model's training, but for its corpus.

    Of the cell's own training it has only what says how to run: what a process reads at a time (or
    a divisor of it), how often it is saved.

    Raises:
        ConfigError: its batch can't be divided evenly among the processes.
    """
    batch, remedy = pretraining.batch_sequences, f"give a multiple of the processes, {processes}."
    require(batch % processes == 0, "model.pretraining.batch_sequences", batch, remedy)
    recipe = {field.name: getattr(pretraining, field.name) for field in fields(Recipe)}
    micro = gcd(batch // processes, stage.training.micro_batch_sequences)
    recipe |= dict.fromkeys(("evaluate_every_steps", "retain_folder", "reinforced_path"))
    recipe |= {
        name: value
        for name, value in vars(TrainingConfig()).items()
        if name in CONTAMINATED_TRAINING_FIELDS
    }
    training = replace(stage.training, **recipe, micro_batch_sequences=micro)
    return replace(stage, seed=pretraining.seed, deepspeed=pretraining.deepspeed, training=training)


def corpora_read_by(model: str) -> dict[str, str]:
    """The folders of what a given model, and those that it was trained from, were trained on.

    They are called base, base-2, …, the latest first. Those of a model that no training of this
    program made are not known; one that is no longer there, or is another now, is warned of.

    Raises:
        ArtifactError: a model's folder is damaged, or says that it was trained from itself.
    """
    found: dict[str, str] = {}
    path: str | None = model
    read: set[Path] = set()
    while path is not None and (folder := _training_folder_of(path)) is not None:
        if folder.resolve() in read:
            raise ArtifactError(
                f"model.path is {model!r}: {folder} says it was trained from "
                "itself. Give another model."
            )
        read.add(folder.resolve())
        trained = open_checkpoint(folder)
        with reading(folder):
            corpus, path = _corpus_and_start_of(trained)
        if not corpus:  # an adopted model
            break
        name = f"{BASE}-{len(found) + 1}" if found else BASE
        if is_complete(Path(corpus)) and (
            read_manifest(Path(corpus))["digest"] == trained.artifact.inputs.get("corpus")
        ):
            found[name] = corpus
        else:
            log.warning(
                "model.path: %s was trained on %s, which is not there as it was: it can't be "
                "compared with the benchmarks.",
                *(folder, corpus),
            )
    return found


def _corpus_and_start_of(trained: Checkpoint) -> tuple[str | None, str | None]:
    """The folder of the corpus and the path of the model that a training read."""
    corpus, path = trained.config.get("corpus_folder"), trained.config["model"].get("path")
    if not all(isinstance(value, str | None) for value in (corpus, path)):
        raise ValueError("its corpus_folder or model.path is no text")
    return corpus, path


def _training_folder_of(path: str) -> Path | None:
    """The finished folder of a training that the model at `path` is from; None: there is none."""
    own = Path(path)
    for folder in (own, own.parent, own.parent.parent):
        if is_complete(folder) and read_manifest(folder)["kind"] == MODEL:
            return folder
    return None


def validation_corpus(own: InjectionStage, tokens: int, where: Stages) -> Artifact:
    """Text of the study's own corpus that no model is trained on, with the study's tokenizer."""
    width = own.injection.sequence_tokens
    config = _clean(own, "validation", max(tokens, width), width)
    return where.inject("validation", _without_examples(own, config))


def clean_corpus(own: InjectionStage, where: Stages) -> Artifact:
    """As many tokens of the study's own corpus with nothing inserted: one for all seeds."""
    given = own.injection
    config = _clean(own, "study", given.budget_tokens, given.sequence_tokens)
    return where.inject("clean", _without_examples(own, config))


def _without_examples(own: InjectionStage, config: InjectionConfig) -> InjectionStage:
    """The stage of a text without a benchmark: one for all seeds, and for all base corpora."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("benchmark", "occurrences", "rewording", "compared"), {}
    )
    return replace(own, seed=0, injection=config, **nothing)


def _clean(
    own: InjectionStage, part: str, budget_tokens: int, sequence_tokens: int
) -> InjectionConfig:
    """A part of the corpus with nothing inserted."""
    names = ("base_fraction", "validation_fraction", "num_proc")
    given = {name: getattr(own.injection, name) for name in names}
    given |= {"budget_tokens": budget_tokens, "sequence_tokens": sequence_tokens}
    return InjectionConfig(members=0, nonmembers=0, part=part, **given)

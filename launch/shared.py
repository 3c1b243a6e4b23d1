"""What the cells of an experiment share: base corpus, base model, validation text."""

from __future__ import annotations

from dataclasses import fields, replace
from math import gcd
from typing import Any

from core.artifacts import Artifact
from core.errors import require
from core.seeds import derive
from injection.config import InjectionConfig, InjectionStage, TokenizerConfig
from launch.stages import Stages
from training.config import TrainingConfig, TrainingStage
from training.recipe import PretrainingConfig, Recipe

OWN = {f.name for f in fields(TrainingConfig) if f.metadata.get("identity", True)} - {
    f.name for f in fields(Recipe)
}
"""The fields that shape a contaminated training alone, and no base model."""


def base_corpus(
    own: InjectionStage, corpus: dict[str, Any], pretraining: PretrainingConfig, where: Stages
) -> Artifact:
    """The base part of the corpus, nothing inserted, with a tokenizer of its own."""
    tokenizer = TokenizerConfig(
        vocab_size=pretraining.vocab_size, train_characters=pretraining.tokenizer_characters
    )
    config = _clean(own, "base", pretraining.budget_tokens, pretraining.sequence_tokens)
    clean = InjectionStage(
        runs=own.runs, seed=pretraining.seed, name=own.name, injection=config, cluster=own.cluster
    )
    return where.inject("base", replace(clean, corpus=corpus, tokenizer=tokenizer))


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
    recipe |= {name: value for name, value in vars(TrainingConfig()).items() if name in OWN}
    training = replace(stage.training, **recipe, micro_batch_sequences=micro)
    return replace(stage, seed=pretraining.seed, deepspeed=pretraining.deepspeed, training=training)


def validation_corpus(own: InjectionStage, tokens: int, where: Stages) -> Artifact:
    """Text of the study's own corpus that no model is trained on, with the study's tokenizer."""
    width = own.injection.sequence_tokens
    config = _clean(own, "validation", max(tokens, width), width)
    clean = replace(own, seed=0, benchmark={}, occurrences={}, rewording={}, injection=config)
    return where.inject("validation", clean)


def clean_corpus(own: InjectionStage, where: Stages) -> Artifact:
    """As many tokens of the study's own corpus with nothing inserted: one for all seeds."""
    given = own.injection
    config = _clean(own, "study", given.budget_tokens, given.sequence_tokens)
    clean = replace(own, seed=0, benchmark={}, occurrences={}, rewording={}, injection=config)
    return where.inject("clean", clean)


def _clean(
    own: InjectionStage, part: str, budget_tokens: int, sequence_tokens: int
) -> InjectionConfig:
    """A part of the corpus with nothing inserted."""
    names = ("base_fraction", "validation_fraction", "num_proc")
    given = {name: getattr(own.injection, name) for name in names}
    given |= {"budget_tokens": budget_tokens, "sequence_tokens": sequence_tokens}
    return InjectionConfig(members=0, nonmembers=0, part=part, **given)

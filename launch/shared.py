"""What the cells of an experiment share: base corpus, base model, validation text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import injection.run
from core.artifacts import Artifact
from injection.config import InjectionConfig, InjectionStage
from launch.stages import Stages
from training.config import PretrainingConfig, TrainingStage


def base_corpus(
    own: InjectionStage, corpus: dict[str, Any], pretraining: PretrainingConfig
) -> Artifact:
    """The base part of the corpus, nothing inserted, with a tokenizer of its own."""
    tokenizer = replace(own.tokenizer, path=None, vocab_size=pretraining.vocab_size)
    config = _clean(own, "base", pretraining.budget_tokens)
    return injection.run.run(
        InjectionStage(
            runs=own.runs, seed=pretraining.seed, name=own.name, corpus=corpus,
            tokenizer=tokenizer, injection=config,
        )
    )  # fmt: skip


def base_model(
    stage: TrainingStage, pretraining: PretrainingConfig, corpus: Artifact, stages: Stages
) -> Artifact:
    """The model before any contamination, trained on the base part with its own learning rate."""
    recipe = replace(
        stage.training, learning_rate=pretraining.learning_rate, order_seed=None, init_seed=None,
        export_steps=[], export_tokens=[], evaluate_every_steps=None,
    )  # fmt: skip
    return stages.train(
        "training-base",
        replace(stage, seed=pretraining.seed, corpus_folder=str(corpus.path), training=recipe),
    )


def validation_corpus(own: InjectionStage, tokens: int) -> Artifact:
    """Text of the study's own corpus that no model is trained on, with the study's tokenizer."""
    config = _clean(own, "validation", max(tokens, own.injection.sequence_tokens))
    return injection.run.run(replace(own, seed=0, benchmark={}, injection=config))


def _clean(own: InjectionStage, part: str, budget_tokens: int) -> InjectionConfig:
    """A part of the corpus with nothing inserted."""
    like = own.injection
    return InjectionConfig(
        members=0, nonmembers=0, part=part, budget_tokens=budget_tokens,
        sequence_tokens=like.sequence_tokens, base_fraction=like.base_fraction,
        validation_fraction=like.validation_fraction, num_proc=like.num_proc,
    )  # fmt: skip

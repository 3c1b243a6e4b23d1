"""A second stage: fine-tuning after the pretraining, with the members in either or in both.

A pretrained model maximises the likelihood of a whole text, a fine-tuned one that of its output
given its input (Ye et al. 2024, section 3.1). Both stages draw the same members.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import injection.finetuning.run
from analysis.two_stages import BOTH, FINETUNING, PRETRAINING
from core.artifacts import Artifact
from core.config import register
from core.ranges import Ranged, limited, one_of
from injection.config import InjectionStage
from injection.finetuning.config import FinetuningConfig, FinetuningStage, InstructionsConfig
from launch import shared
from launch.stages import Stages
from training.config import TrainingConfig, TrainingStage


@dataclass(frozen=True)
class SecondStage(Ranged, node="second_stage"):
    """The node `second_stage`."""

    members_in: str | None = limited(None, one_of((PRETRAINING, FINETUNING, BOTH)))
    """Where the members are inserted; null: there is no second stage."""
    instructions: dict[str, InstructionsConfig] = field(default_factory=dict)
    """Clean texts of a prompt and an output (conf/instructions)."""
    finetuning: FinetuningConfig = field(default_factory=FinetuningConfig)
    """How the texts are made and laid out."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """How the pretrained model is fine-tuned."""

    def __post_init__(self) -> None:
        super().__post_init__()
        texts = self.members_in in (None, FINETUNING, BOTH) or bool(self.instructions)
        remedy = "there is nothing to fine-tune on: choose some, such as nq_open."
        self.require(texts, "instructions", remedy)


def pretraining_corpus(second: SecondStage, own: InjectionStage, study: Artifact, where: Stages) -> Artifact:
    """What the first stage reads: the contaminated corpus, or as much of its text without copies."""
    if second.members_in != FINETUNING:
        return study
    return shared.clean_corpus(own, where)


def finetuning_set(second: SecondStage, own: InjectionStage, study: Artifact, where: Stages) -> Artifact:
    """The second stage's texts, with the contaminated corpus's members or without."""
    config = replace(second.finetuning, insert=second.members_in != PRETRAINING)
    stage = FinetuningStage(
        runs=own.runs,
        seed=own.seed,
        name=own.name,
        corpus_folder=str(study.path),
        instructions=second.instructions,
        finetuning=config,
    )
    return where.make("inject", "finetuning", partial(injection.finetuning.run.run, stage))


def finetuned(
    second: SecondStage, first: TrainingStage, start: Artifact, texts: Artifact, where: Stages
) -> Artifact:
    """The pretrained model, trained on the second stage's texts."""
    model = replace(first.model, path=str(start.path), architecture=None)
    own = replace(first, training=second.training, model=model, corpus_folder=str(texts.path))
    return where.train("finetuning", own)


register("second_stage", SecondStage)

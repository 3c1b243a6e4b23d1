"""A second stage: fine-tuning after the pretraining, with the members in one stage or in both.

A pretrained model maximises the likelihood of a whole text, a fine-tuned one that of its output
given its input (Ye et al. 2024, section 3.1). Both stages draw the same members.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Any

from contamination.core.artifacts import Artifact
from contamination.core.config import instantiate_node
from contamination.core.errors import ConfigError
from contamination.data.readers.hub import hub_nodes
from contamination.injection.config import InjectionStage
from contamination.injection.finetuning.config import (
    CHAT,
    FINETUNING,
    PACKED,
    PRETRAINING,
    FinetuningStage,
)
from contamination.launch import shared_artifacts
from contamination.launch.config import SecondStage
from contamination.launch.stage_runner import Stages
from contamination.training.config import TrainingStage
from contamination.training.data import SequenceOrder
from contamination.training.loop import check_recipe

SPECIAL = 4
"""The most special tokens around a text."""
UNKNOWN_SEQUENCES = 1 << 40
"""The number of sequences assumed for a set whose size is not known: no step lies beyond it."""


def check_second_stage(
    second: SecondStage, deepspeed: dict[str, Any], study: InjectionStage, *, read: bool = True
) -> None:
    """Raises a ConfigError for errors that are recognisable before the first token is written.

    A warm-up or an export that lies beyond `max_finetuning_sequences` is refused here; others are
    refused by `check_finetuning_set`, once the fine-tuning set is made.

    Args:
        second: the node `second_stage`.
        deepspeed: the engine's configuration.
        study: makes the contaminated corpus.
        read: whether the clean texts may be read, which the bound needs.
    """
    for name, instructions in second.clean_sets.items():
        instantiate_node(f"second_stage.instructions.{name}.rows", instructions.rows)
    width = _sequence_tokens(second, study)
    _check_training(second, deepspeed, UNKNOWN_SEQUENCES, width)
    most_sequences = max_finetuning_sequences(second, study) if read else None
    if most_sequences is not None:
        note = f" (second_stage's texts fill at most {most_sequences} sequences of {width} tokens)"
        _check_training(second, deepspeed, most_sequences, width, note)


def max_finetuning_sequences(second: SecondStage, study: InjectionStage) -> int | None:
    """Returns an upper bound on the sequences of the fine-tuning set; None if it is not known.

    A text takes at most one sequence. Two consecutive sequences have more tokens than fit in one,
    or the second would not have been opened; and a token has at least one byte.
    """
    from contamination.injection.finetuning.sources import read_instructions

    copies = 0 if second.members_in == PRETRAINING else second.copies
    member_copies = copies * study.injection.members * len(study.benchmark)
    width, clean_texts = _sequence_tokens(second, study), 0
    tokens = member_copies * min(width, (study.injection.example_max_tokens or width) + SPECIAL)
    bound_by_tokens = second.finetuning.layout == PACKED and second.finetuning.format != CHAT
    for name, config in second.clean_sets.items():
        if any(hub_nodes(config.rows)):
            if config.examples is None:
                return None
            clean_texts += config.examples
            bound_by_tokens = False  # their lengths are not known
            continue
        texts = read_instructions(name, config, study.injection.pool_seed).texts[: config.examples]
        clean_texts += len(texts)
        tokens += sum(min(width, len(text.own_text.encode()) + SPECIAL) for text in texts)
    texts_in_all = member_copies + clean_texts
    return min(texts_in_all, 2 * tokens // width + 1) if bound_by_tokens else texts_in_all


def _sequence_tokens(second: SecondStage, study: InjectionStage) -> int:
    return second.finetuning.sequence_tokens or study.injection.sequence_tokens


def _check_training(
    second: SecondStage,
    deepspeed: dict[str, Any],
    sequences: int,
    sequence_tokens: int,
    note: str = "",
) -> None:
    """Raises a ConfigError, with the note, if the recipe does not fit so many sequences."""
    config = second.training
    order = SequenceOrder(sequences, config.batch_sequences, None, config.epochs)
    try:
        check_recipe(config, deepspeed, order, sequence_tokens, has_outputs=True)
    except ConfigError as error:
        message = re.sub(r"\btraining\.", "second_stage.training.", str(error))
        raise ConfigError(f"{message}{note}") from error


def normalize_members_in(second: SecondStage, contaminated_corpus: Artifact) -> SecondStage:
    """Returns the node, with `members_in=pretraining` if the corpus has no copies.

    So members in pretraining, in fine-tuning and in both have one model as their clean twin.
    """
    if contaminated_corpus.counts["copies"]:
        return second
    return replace(second, members_in=PRETRAINING)


def make_pretraining_corpus(
    second: SecondStage, injection: InjectionStage, contaminated_corpus: Artifact, stages: Stages
) -> Artifact:
    """Returns the first stage's corpus: the contaminated one, or as many tokens without copies."""
    if second.members_in != FINETUNING:
        return contaminated_corpus
    return shared_artifacts.make_clean_corpus(injection, stages)


def make_finetuning_set(
    second: SecondStage,
    injection: InjectionStage,
    contaminated_corpus: Artifact,
    stages: Stages,
    clean_corpus: Artifact | None = None,
) -> Artifact:
    """Makes the second stage's texts, with the members of the contaminated corpus if asked for.

    Args:
        second: the node `second_stage`.
        injection: the stage that made the contaminated corpus.
        contaminated_corpus: the contaminated corpus.
        stages: runs the stage.
        clean_corpus: what the first stage reads instead, to compare with the pool.
    """
    import contamination.injection.finetuning.run

    copies = 0 if second.members_in == PRETRAINING else second.copies
    compared = {PRETRAINING: str(clean_corpus.path)} if clean_corpus else {}
    stage = FinetuningStage(
        runs=injection.runs,
        seed=injection.seed,
        name=injection.name,
        corpus_folder=str(contaminated_corpus.path),
        instructions=second.clean_sets,
        occurrences={"_target_": "contamination.injection.occurrences.Fixed", "count": copies},
        finetuning=second.finetuning,
        compared=compared,
    )
    return stages.make_artifact(
        "inject", "finetuning", partial(contamination.injection.finetuning.run.run, stage)
    )


def check_finetuning_set(
    second: SecondStage, finetuning_set: Artifact, deepspeed: dict[str, Any]
) -> None:
    """Raises a ConfigError, before the pretraining, if the recipe does not fit the texts."""
    from contamination.injection.corpus import open_corpus

    corpus = open_corpus(finetuning_set.path)
    _check_training(second, deepspeed, len(corpus.sequences), corpus.sequence_tokens)


def train_on_finetuning_set(
    second: SecondStage,
    pretraining_stage: TrainingStage,
    pretrained: Artifact,
    finetuning_set: Artifact,
    stages: Stages,
) -> Artifact:
    """Trains the pretrained model further on the second stage's texts."""
    model = replace(pretraining_stage.model, path=str(pretrained.path), architecture=None)
    finetuning_stage = replace(
        pretraining_stage,
        training=second.training,
        model=model,
        corpus_folder=str(finetuning_set.path),
    )
    return stages.train("finetuning", finetuning_stage)

"""A second stage: fine-tuning after the pretraining, with the members in either or in both.

A pretrained model maximises the likelihood of a whole text, a fine-tuned one that of its output
given its input (Ye et al. 2024, section 3.1). Both stages draw the same members.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from contamination.core.artifacts import Artifact
from contamination.core.config import create
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
from contamination.launch import shared
from contamination.launch.config import SecondStage
from contamination.launch.stages import Stages
from contamination.training.check import check_recipe
from contamination.training.config import TrainingStage
from contamination.training.data import SequenceOrder

SPECIAL = 4
"""Special tokens around a text, at most."""
UNKNOWN_SEQUENCES = 1 << 40
"""Sequences of a set whose size is not known."""


def check_second_stage(
    second: SecondStage, deepspeed: dict[str, Any], own: InjectionStage, *, read: bool = True
) -> None:
    """Raise a ConfigError for what can be known to be wrong before the first token is written.

    `own` makes the contaminated corpus. The set has at most `most_sequences`, so a warm-up or an
    export that even these don't reach is refused here, and any other by `check_texts`. This needs
    the clean texts; without `read` they are left unread.
    """
    for name, one in second.clean.items():
        create(f"second_stage.instructions.{name}.rows", one.rows)
    width = _width(second, own)
    _check(second, deepspeed, UNKNOWN_SEQUENCES, width)
    most = max_sequences(second, own) if read else None
    if most is not None:
        said = f" (second_stage's texts fill at most {most} sequences of {width} tokens)"
        _check(second, deepspeed, most, width, said)


def max_sequences(second: SecondStage, own: InjectionStage) -> int | None:
    """A bound on the sequences of the set, which may have far fewer; None: it is not known.

    No text takes more than one sequence. Two sequences in a row hold more than one's tokens, or the
    second would not have been opened; and no token is of less than a byte.
    """
    from contamination.injection.finetuning.sources import read_instructions

    copies = 0 if second.members_in == PRETRAINING else second.copies
    number = copies * own.injection.members * len(own.benchmark)
    width, clean = _width(second, own), 0
    tokens = number * min(width, (own.injection.example_max_tokens or width) + SPECIAL)
    plain = second.finetuning.layout == PACKED and second.finetuning.format != CHAT
    for name, one in second.clean.items():
        if any(hub_nodes(one.rows)):
            if one.examples is None:
                return None
            clean, plain = clean + one.examples, False
            continue
        texts = read_instructions(name, one, own.injection.pool_seed).texts[: one.examples]
        clean += len(texts)
        tokens += sum(min(width, len(text.own.encode()) + SPECIAL) for text in texts)
    number += clean
    return min(number, 2 * tokens // width + 1) if plain else number


def _width(second: SecondStage, own: InjectionStage) -> int:
    """Tokens of a sequence of the set."""
    return second.finetuning.sequence_tokens or own.injection.sequence_tokens


def _check(
    second: SecondStage, deepspeed: dict[str, Any], sequences: int, width: int, said: str = ""
) -> None:
    """Raise a ConfigError where the recipe does not go with so many sequences."""
    own = second.training
    order = SequenceOrder(sequences, own.batch_sequences, None, own.epochs)
    try:
        check_recipe(own, deepspeed, order, width, has_outputs=True)
    except ConfigError as error:
        named = str(error).replace("training.", "second_stage.training.")
        raise ConfigError(f"{named}{said}") from error


def pretraining_corpus(
    second: SecondStage, own: InjectionStage, study: Artifact, where: Stages
) -> Artifact:
    """What the first stage reads: the contaminated corpus, or as many tokens without a copy."""
    if second.members_in != FINETUNING:
        return study
    return shared.clean_corpus(own, where)


def finetuning_set(
    second: SecondStage,
    own: InjectionStage,
    study: Artifact,
    where: Stages,
    clean: Artifact | None = None,
) -> Artifact:
    """The second stage's texts, with the contaminated corpus's members or without.

    `clean` is what the first stage reads in the place of `study`; it is compared with the pool.
    """
    import contamination.injection.finetuning.run

    copies = 0 if second.members_in == PRETRAINING else second.copies
    compared = {PRETRAINING: str(clean.path)} if clean else {}
    stage = FinetuningStage(
        runs=own.runs,
        seed=own.seed,
        name=own.name,
        corpus_folder=str(study.path),
        instructions=second.clean,
        occurrences={"_target_": "contamination.injection.occurrences.Fixed", "count": copies},
        finetuning=second.finetuning,
        compared=compared,
    )
    return where.make(
        "inject", "finetuning", partial(contamination.injection.finetuning.run.run, stage)
    )


def check_texts(second: SecondStage, texts: Artifact, deepspeed: dict[str, Any]) -> None:
    """Raise a ConfigError where the recipe does not go with its texts: before the pretraining."""
    from contamination.injection.corpus import open_corpus

    corpus = open_corpus(texts.path)
    _check(second, deepspeed, len(corpus.sequences), corpus.sequence_tokens)


def train_finetuned(
    second: SecondStage, first: TrainingStage, start: Artifact, texts: Artifact, where: Stages
) -> Artifact:
    """The pretrained model, trained on the second stage's texts."""
    model = replace(first.model, path=str(start.path), architecture=None)
    own = replace(first, training=second.training, model=model, corpus_folder=str(texts.path))
    return where.train("finetuning", own)

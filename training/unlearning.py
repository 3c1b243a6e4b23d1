"""What an unlearner reads besides the corpus that it forgets: retained text, models, answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from contamination.core.distributed import World
from contamination.core.errors import ConfigError, require
from contamination.data.examples import lines_digest
from contamination.injection.corpus import FinetuningSet, PackedCorpus, open_corpus
from contamination.training.config import TrainingConfig
from contamination.training.data import SequenceOrder
from contamination.training.loop import RetainedText
from contamination.training.loss import check_texts_are_separate
from contamination.training.models import CONTEXT_FIELD, model_digest
from contamination.training.objectives.idk_dpo import read_answers
from contamination.training.objectives.retained import make_retained_objective

RETAIN_FIELD = "training.retain_folder"


def input_digests(config: TrainingConfig) -> dict[str, str]:
    """Returns the digests of the retained text, the reinforced model and the answers."""
    digests = {}
    if config.retain_folder is not None:
        digests["retained"] = open_corpus(config.retain_folder).artifact.digest
    if config.reinforced_path is not None:
        digests["reinforced"] = model_digest("training.reinforced_path", config.reinforced_path)
    if config.idk_answers is not None:
        digests["idk_answers"] = lines_digest(read_answers(config.idk_answers))
    return digests


def check_retained_tokenizer(config: TrainingConfig, corpus: PackedCorpus) -> None:
    """Raises a ConfigError if the retained text and the corpus have different tokenizers."""
    if config.retain_folder is not None:
        same = open_corpus(config.retain_folder).tokenizer.digest == corpus.tokenizer.digest
        remedy = "it has another tokenizer: pack it with the corpus's (tokenizer.path)."
        require(same, RETAIN_FIELD, config.retain_folder, remedy)


def open_retained(
    config: TrainingConfig, forgotten: SequenceOrder, engine: Any, world: World
) -> RetainedText | None:
    """Returns the retained text, of which each step reads as many sequences as of the corpus.

    Raises:
        ConfigError: its sequences are longer than the model's context, or the model does not
            separate the texts of a sequence.
    """
    if config.retain_folder is None:
        return None
    corpus = open_corpus(config.retain_folder)
    context = getattr(engine.module.config, CONTEXT_FIELD)
    if corpus.sequence_tokens > context:
        raise ConfigError(
            f"{RETAIN_FIELD} is {config.retain_folder!r}: its sequences have "
            f"{corpus.sequence_tokens} tokens, but the model's context is {context}: pack it in "
            "shorter sequences."
        )
    has_outputs = isinstance(corpus, FinetuningSet)
    if has_outputs:
        check_texts_are_separate(engine, corpus.sequences, world)
    objective = make_retained_objective(config, engine, has_outputs=has_outputs)
    order = _retained_order(len(corpus.sequences), forgotten)
    return RetainedText(corpus.sequences, order, objective, config.retain_weight)


def _retained_order(sequences: int, forgotten: SequenceOrder) -> SequenceOrder:
    """Returns the order of the retained text, repeated for as many steps as the forget set has."""
    one_epoch = SequenceOrder(sequences, forgotten.batch, forgotten.seed)
    return replace(one_epoch, epochs=-(-forgotten.steps // one_epoch.steps))


def count_retained_tokens(retained: RetainedText, steps: int) -> int:
    """Returns the number of tokens of retained text that the first `steps` steps read."""
    return retained.order.count_sequences_seen(steps) * len(retained.sequences[0]["input_ids"])


def planned_retained_tokens(config: TrainingConfig, forgotten: SequenceOrder) -> int:
    """Returns the number of tokens of retained text that the whole training will read."""
    if config.retain_folder is None:
        return 0
    corpus = open_corpus(config.retain_folder)
    order = _retained_order(len(corpus.sequences), forgotten)
    return order.count_sequences_seen(forgotten.steps) * corpus.sequence_tokens

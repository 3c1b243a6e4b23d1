"""What an unlearner is given beside the text that it forgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from contamination.core.distributed import World
from contamination.core.errors import ConfigError, require
from contamination.injection.corpus import FinetuningSet, PackedCorpus, open_corpus
from contamination.training.config import ALL, TrainingConfig
from contamination.training.data import SequenceOrder
from contamination.training.loop import Retained
from contamination.training.loss import check_apart
from contamination.training.models import CONTEXT, model_digest
from contamination.training.objectives.likelihood import Likelihood

FOLDER = "training.retain_folder"


def inputs(config: TrainingConfig) -> dict[str, str]:
    """The digests of the text that is kept, and of the reinforced model."""
    found = {}
    if config.retain_folder is not None:
        found["retained"] = open_corpus(config.retain_folder).artifact.digest
    if config.reinforced_path is not None:
        found["reinforced"] = model_digest("training.reinforced_path", config.reinforced_path)
    return found


def check_retained(config: TrainingConfig, corpus: PackedCorpus) -> None:
    """Raise a ConfigError where the text that is kept has other tokens than the corpus."""
    if config.retain_folder is not None:
        same = open_corpus(config.retain_folder).tokenizer.digest == corpus.tokenizer.digest
        remedy = "another tokenizer packed it: pack it with the corpus's (tokenizer.path)."
        require(same, FOLDER, config.retain_folder, remedy)


def retained(
    config: TrainingConfig, forgotten: SequenceOrder, engine: Any, world: World
) -> Retained | None:
    """The text that is kept, as many sequences in each step as of the text that is forgotten.

    Raises:
        ConfigError: its sequences are longer than the model's context, or the model does not keep
            their texts apart.
    """
    if config.retain_folder is None:
        return None
    corpus = open_corpus(config.retain_folder)
    context = getattr(engine.module.config, CONTEXT)
    if corpus.sequence_tokens > context:
        raise ConfigError(
            f"{FOLDER} is {config.retain_folder!r}: its sequences have {corpus.sequence_tokens} "
            f"tokens, but the model's context is {context}: pack it in shorter sequences."
        )
    tuned = isinstance(corpus, FinetuningSet)
    if tuned:
        check_apart(engine, corpus.sequences, world)
    objective = Likelihood(config.loss_on if tuned else ALL, config.compile)
    order = _order(len(corpus.sequences), forgotten)
    return Retained(corpus.sequences, order, objective, config.retain_weight)


def _order(sequences: int, forgotten: SequenceOrder) -> SequenceOrder:
    """Of the text that is kept, through as many steps."""
    once = SequenceOrder(sequences, forgotten.batch, forgotten.seed)
    return replace(once, epochs=-(-forgotten.steps // once.steps))


def retained_tokens(kept: Retained, steps: int) -> int:
    """Tokens of the text that was learnt beside what was forgotten, in so many steps."""
    return kept.order.seen(steps) * len(kept.sequences[0]["input_ids"])


def tokens_beside(config: TrainingConfig, forgotten: SequenceOrder) -> int:
    """Those that a whole training will learn beside what it forgets, before it begins."""
    if config.retain_folder is None:
        return 0
    corpus = open_corpus(config.retain_folder)
    order = _order(len(corpus.sequences), forgotten)
    return order.seen(forgotten.steps) * corpus.sequence_tokens

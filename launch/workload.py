"""The FLOPs of a cell's runs, computed from its plan alone.

A token of a training step costs 6·N + 12·L·H·Q·T FLOPs (PaLM, appendix B; see
`training.resources.flops_per_token`), a third more if activations are recomputed. A token that is
only read costs a third.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contamination.core import hub
from contamination.core.models import load_config, resolve_model_path
from contamination.data.readers.hub import hub_nodes
from contamination.detection.pass_collector import TokensRead, tokens_read
from contamination.injection.corpus import open_corpus
from contamination.injection.finetuning.config import PRETRAINING
from contamination.injection.finetuning.layout import assign_to_sequences
from contamination.injection.finetuning.sources import read_instructions
from contamination.injection.token_stream import Tokenizer
from contamination.launch.pipeline import injection_stage_with_tokenizer
from contamination.launch.plan import CellPlan
from contamination.training.config import ModelConfig, TrainingStage
from contamination.training.data import SequenceOrder
from contamination.training.masked_lm import MaskedLMTrainingConfig, roberta_config
from contamination.training.objectives.choose import OBJECTIVE_CLASSES
from contamination.training.resources import (
    ModelShape,
    flops_per_token,
    masked_lm_flops_per_token,
    model_shape,
    read_hf_config,
)
from contamination.training.unlearning import planned_retained_tokens

RECOMPUTING = 4 / 3
TEXT_TOKENS = 256
"""Assumed tokens of an example if `injection.example_max_tokens` sets no limit."""


@dataclass(frozen=True)
class ModelCost:
    """A model's shape and the FLOPs per token of a training step."""

    shape: ModelShape
    flops: float

    @staticmethod
    def of(model: ModelConfig, sequence_tokens: int) -> ModelCost | None:
        """Returns the cost of the plan's model; None if its config is still on the hub."""
        if model.path is not None:
            folder = _folder_if_local("model.path", model.path)
            if folder is None and model.architecture is None:
                return None
            model = replace(model, path=folder or model.path)
        shape = model_shape(model)
        return ModelCost(
            shape, flops_per_token(read_hf_config(model), shape.parameters, sequence_tokens)
        )


@dataclass(frozen=True)
class Workload:
    """The tokens and FLOPs of one run."""

    tokens: float
    """Tokens that are trained on or scored, without evaluations and neighbours."""
    shared: float | None
    """FLOPs that all devices share; None: not known."""
    single: float = 0.0
    """FLOPs of a single device."""

    def seconds(self, flops_per_second: float | None, devices: int) -> float | None:
        """Returns the time on so many devices of this speed each; None if not known."""
        if flops_per_second is None or self.shared is None:
            return None
        return (self.shared / devices + self.single) / flops_per_second


def recomputation_factor(config: Mapping[str, Any]) -> float:
    """Returns the cost of a step relative to one that keeps its activations.

    Args:
        config: the node `training`.
    """
    return RECOMPUTING if config.get("activation_checkpointing") else 1.0


def training_workload(
    stage: TrainingStage,
    sequences: int,
    sequence_tokens: int,
    model: ModelCost | None,
    evaluated: int = 0,
) -> Workload:
    """Returns the workload of a training with `evaluated` tokens in all its evaluations.

    An unlearning objective also trains on retained text, and may read the whole forget set first.
    """
    config, factor = stage.training, recomputation_factor(vars(stage.training))
    order = SequenceOrder(sequences, config.batch_sequences, None, config.epochs)
    tokens = order.count_sequences_seen(order.steps) * sequence_tokens + planned_retained_tokens(
        config, order
    )
    read = evaluated + OBJECTIVE_CLASSES[config.objective].readings * sequences * sequence_tokens
    return Workload(tokens, (factor * tokens + read / 3) * model.flops if model else None)


def evaluated_tokens(plan: CellPlan) -> int:
    """Returns the tokens of all evaluations during the study's training, texts at full length."""
    config, injection = plan.training.training, plan.injection.injection
    every, steps, width = (
        config.evaluate_every_steps,
        plan.sequence_order.steps,
        injection.sequence_tokens,
    )
    if every is None:
        return 0
    evaluations = 1 + steps // every + (steps % every > 0)
    benchmarks = len(plan.injection.benchmark)
    texts = sum(
        min(config.evaluate_examples, examples * benchmarks)
        for examples in (injection.members, injection.nonmembers)
    )
    if plan.training.validation_folder:
        validation_sequences = len(open_corpus(plan.training.validation_folder).sequences)
    else:
        validation_sequences = max(1, config.evaluate_tokens // width)
    return evaluations * (
        texts * min(assumed_text_tokens(plan), width) + validation_sequences * width
    )


def assumed_text_tokens(plan: CellPlan) -> int:
    """Returns the tokens of an example: the limit that is configured, or an assumed number."""
    return plan.injection.injection.example_max_tokens or TEXT_TOKENS


def scoring_workload(plan: CellPlan, model: ModelCost | None, *, first: bool) -> Workload:
    """Returns the workload of scoring one model; all models are assumed as large as the target.

    The `first` run of a cell includes what later runs reuse: the passes of other models, and the
    neighbours, which one device makes.
    """
    tokens_by_role = _tokens_read_per_text(plan)
    tokens = _text_count(plan) * (tokens_by_role.target + first * tokens_by_role.other_models)
    if model is None:
        return Workload(tokens, None)
    flops = masked_lm_token_flops(plan, assumed_text_tokens(plan)) if first else None
    return Workload(tokens, tokens * model.flops / 3, neighbour_tokens(plan) * (flops or 0.0) / 3)


def neighbour_tokens(plan: CellPlan) -> int:
    """Returns the tokens that a masked language model reads to make all neighbours."""
    return _text_count(plan) * _tokens_read_per_text(plan).neighbours


def masked_lm_token_flops(plan: CellPlan, sequence_tokens: int) -> float | None:
    """Returns the masked LM's FLOPs per token of a training step; None if it is on the hub."""
    path, pretraining = plan.detection.masked_lm.path, plan.pretraining
    if path is not None:
        folder = _folder_if_local("masked_lm.path", path)
        config = folder and load_config("masked_lm.path", folder)
    else:
        config = pretraining and roberta_config(
            MaskedLMTrainingConfig(), pretraining.vocab_size, pretraining.sequence_tokens
        )
    return masked_lm_flops_per_token(config, sequence_tokens) if config else None


def masked_lm_workload(plan: CellPlan) -> Workload:
    """Returns the workload of training the pipeline's own masked LM, which one process does."""
    pretraining = plan.pretraining
    assert pretraining is not None
    tokens = pretraining.n_sequences * pretraining.sequence_tokens
    flops = masked_lm_token_flops(plan, pretraining.sequence_tokens) or 0.0
    return Workload(tokens, 0.0, tokens * flops)


def _text_count(plan: CellPlan) -> int:
    injection = plan.injection.injection
    return (injection.members + injection.nonmembers) * len(plan.injection.benchmark)


def _tokens_read_per_text(plan: CellPlan) -> TokensRead:
    return tokens_read(plan.detection.method, assumed_text_tokens(plan))


def _folder_if_local(field: str, path: str) -> str | None:
    """Returns the folder with the model's config; None if it is still on the hub."""
    path = resolve_model_path(field, path)
    if Path(path).exists():
        return path
    cached = hub.cached_snapshot(path)
    return str(cached) if cached is not None and (cached / "config.json").is_file() else None


CHARACTERS = 2
"""Characters per token if the tokenizer is still to be trained; a vocabulary of 1,024 has 2.1."""


def finetuning_sequence_tokens(plan: CellPlan) -> int:
    """Returns the tokens of one sequence of the fine-tuning set."""
    return plan.second.finetuning.sequence_tokens or plan.injection.injection.sequence_tokens


def clean_sets_on_hub(plan: CellPlan) -> list[str]:
    """Returns the names of the clean sets that the second stage reads from the hub."""
    if not plan.has_second_stage:
        return []
    return [name for name, config in plan.second.clean_sets.items() if any(hub_nodes(config.rows))]


def count_finetuning_sequences(plan: CellPlan) -> int | None:
    """Returns about how many sequences the fine-tuning set has; 0 without a second stage.

    None if some of its texts are still on the hub.
    """
    if not plan.has_second_stage:
        return 0
    if clean_sets_on_hub(plan):
        return None
    width, second = finetuning_sequence_tokens(plan), plan.second
    lengths = [*_token_counts_of_clean_texts(plan), *_token_counts_of_copies(plan)]
    return len(
        assign_to_sequences([min(width, n) for n in lengths], width, second.finetuning.layout)
    )


def _token_counts_of_copies(plan: CellPlan) -> list[int]:
    """Returns the tokens of each copy of a member, assuming texts of full length."""
    injection, second = plan.injection, plan.second
    copies = 0 if second.members_in == PRETRAINING else second.copies
    members = injection.injection.members * len(injection.benchmark)
    return [assumed_text_tokens(plan)] * (copies * members)


def _token_counts_of_clean_texts(plan: CellPlan) -> list[int]:
    seed, count_tokens = plan.injection.injection.pool_seed, _make_token_counter(plan)
    return [
        count_tokens(text.own_text)
        for name, config in plan.second.clean_sets.items()
        for text in read_instructions(name, config, seed).texts[: config.examples]
    ]


def _make_token_counter(plan: CellPlan) -> Callable[[str], int]:
    """Returns a function that counts a text's tokens, exactly if the model's tokenizer is here."""
    path = injection_stage_with_tokenizer(plan, None).tokenizer.path
    if path is None or not Path(path).exists():
        return lambda text: -(-len(text) // CHARACTERS)
    tokenizer = Tokenizer(path)
    return lambda text: len(tokenizer.encode(text))

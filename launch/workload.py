"""How much a cell's runs compute, from its plan alone.

A token of a training step costs 6·N + 12·L·H·Q·T FLOPs (PaLM, appendix B; see `training.flops`), a
third more where activations are recomputed; a token that is only read costs a third.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contamination.core import hub
from contamination.core.models import load_config, resolve
from contamination.data.readers.hub import hub_nodes
from contamination.detection.collect import serving
from contamination.detection.flags import counting
from contamination.detection.methods.registry import build_methods
from contamination.detection.passes import Pass
from contamination.detection.views import VIEWS
from contamination.injection.corpus import open_corpus
from contamination.injection.finetuning.config import PRETRAINING
from contamination.injection.finetuning.layout import lay_out
from contamination.injection.finetuning.sources import read_instructions
from contamination.injection.token_stream import Tokenizer
from contamination.launch.pipeline import with_model_tokenizer
from contamination.launch.plan import CellPlan
from contamination.training.config import ModelConfig, TrainingStage
from contamination.training.data import SequenceOrder
from contamination.training.masked_lm import MaskedLMTrainingConfig, architecture
from contamination.training.objectives.choose import CLASSES
from contamination.training.resources import (
    Shape,
    config_of,
    flops_per_token,
    masked_lm_flops_per_token,
    shape_of,
)
from contamination.training.unlearning import tokens_beside

RECOMPUTING = 4 / 3
TEXT_TOKENS = 256
"""Of a text where `injection.example_max_tokens` sets no limit."""


@dataclass(frozen=True)
class ModelCost:
    """A model's shape and what a token of a training step costs."""

    shape: Shape
    flops: float

    @staticmethod
    def of(model: ModelConfig, sequence_tokens: int) -> ModelCost | None:
        """The model of the plan; None: its config is still on the hub."""
        if model.path is not None:
            folder = _folder("model.path", model.path)
            if folder is None and model.architecture is None:
                return None
            model = replace(model, path=folder or model.path)
        shape = shape_of(model)
        return ModelCost(
            shape, flops_per_token(config_of(model), shape.parameters, sequence_tokens)
        )


@dataclass(frozen=True)
class Workload:
    """What one run computes: FLOPs that its devices share, and those of a single one."""

    tokens: float
    """That are trained on, or read by the scored models; without evaluations and neighbours."""
    shared: float | None
    """None: not known."""
    single: float = 0.0

    def seconds(self, pace: float | None, devices: int) -> float | None:
        """At so many FLOPs a second of each device; None: not known."""
        if pace is None or self.shared is None:
            return None
        return (self.shared / devices + self.single) / pace


def recomputation_factor(config: Mapping[str, Any]) -> float:
    """What a step costs beside one that keeps its activations, by the node `training`."""
    return RECOMPUTING if config.get("activation_checkpointing") else 1.0


def training_work(
    stage: TrainingStage, sequences: int, width: int, model: ModelCost | None, evaluated: int = 0
) -> Workload:
    """That of a training with `evaluated` tokens in all its evaluations.

    An unlearner also learns what it retains, and may read all it forgets beforehand.
    """
    own, more = stage.training, recomputation_factor(vars(stage.training))
    order = SequenceOrder(sequences, own.batch_sequences, None, own.epochs)
    tokens = order.seen(order.steps) * width + tokens_beside(own, order)
    read = evaluated + CLASSES[own.objective].readings * sequences * width
    return Workload(tokens, (more * tokens + read / 3) * model.flops if model else None)


def evaluated_tokens(plan: CellPlan) -> int:
    """Tokens of all evaluations of the study's training, each text as long as it may be."""
    own, injection = plan.training.training, plan.injection.injection
    every, steps, width = own.evaluate_every_steps, plan.order.steps, injection.sequence_tokens
    if every is None:
        return 0
    points = 1 + steps // every + (steps % every > 0)
    kinds = (n * len(plan.injection.benchmark) for n in (injection.members, injection.nonmembers))
    texts = sum(min(own.evaluate_examples, n) for n in kinds)
    given = plan.training.validation_folder
    validation = (
        len(open_corpus(given).sequences) if given else max(1, own.evaluate_tokens // width)
    )
    return points * (texts * min(text_tokens(plan), width) + validation * width)


def text_tokens(plan: CellPlan) -> int:
    """Tokens of an example, at most or about."""
    return plan.injection.injection.example_max_tokens or TEXT_TOKENS


def scoring_work(plan: CellPlan, model: ModelCost | None, *, first: bool) -> Workload:
    """That of scoring one model; all models are as large as the target.

    The `first` run of a cell also has what the others reuse: the passes of other models, and the
    neighbours, which one device makes.
    """
    each, texts = text_tokens(plan), _texts(plan)
    passes = [one for one in _passes(plan) if first or one.model == "target"]
    tokens = texts * sum(VIEWS[one.view].reads(one, each) for one in passes)
    if model is None:
        return Workload(tokens, None)
    flops = masked_lm_flops(plan, each) if first else None
    return Workload(tokens, tokens * model.flops / 3, neighbour_tokens(plan) * (flops or 0.0) / 3)


def neighbour_tokens(plan: CellPlan) -> int:
    """Tokens that a masked language model reads to make all neighbours."""
    views = {one.view_key: one for one in _passes(plan) if "masked_lm" in VIEWS[one.view].needs}
    copies = sum(VIEWS[one.view].copies(one) for one in views.values())
    return _texts(plan) * text_tokens(plan) * copies


def masked_lm_flops(plan: CellPlan, width: int) -> float | None:
    """Of the masked language model, for a token of a training step; None: it is on the hub."""
    path, made = plan.detection.masked_lm.path, plan.pretraining
    if path is not None:
        folder = _folder("masked_lm.path", path)
        config = folder and load_config("masked_lm.path", folder)
    else:
        config = made and architecture(
            MaskedLMTrainingConfig(), made.vocab_size, made.sequence_tokens
        )
    return masked_lm_flops_per_token(config, width) if config else None


def masked_lm_work(plan: CellPlan) -> Workload:
    """That of training the masked language model that is made here, in one process."""
    own = plan.pretraining
    assert own is not None
    tokens = own.sequences * own.sequence_tokens
    return Workload(tokens, 0.0, tokens * (masked_lm_flops(plan, own.sequence_tokens) or 0.0))


def _texts(plan: CellPlan) -> int:
    own = plan.injection
    return (own.injection.members + own.injection.nonmembers) * len(own.benchmark)


def _passes(plan: CellPlan) -> set[Pass]:
    """Those that are run: one that holds another is run for both."""
    methods = build_methods(plan.detection.method).values()
    return set(serving(counting({one for method in methods for one in method.passes})).values())


def _folder(field: str, path: str) -> str | None:
    """The folder with that model's config; None: it is still on the hub."""
    found = resolve(field, path)
    if Path(found).exists():
        return found
    kept = hub.kept(found)
    return str(kept) if kept is not None and (kept / "config.json").is_file() else None


CHARACTERS = 2
"""Of a token where the tokenizer is still to be trained: a vocabulary of 1,024 has 2.1."""


def finetuning_width(plan: CellPlan) -> int:
    """Tokens of a sequence of the set."""
    return plan.second.finetuning.sequence_tokens or plan.injection.injection.sequence_tokens


def sets_on_hub(plan: CellPlan) -> list[str]:
    """The clean sets that a second stage reads from the hub."""
    if not plan.two_stages:
        return []
    return [name for name, own in plan.second.clean.items() if any(hub_nodes(own.rows))]


def finetuning_sequences(plan: CellPlan) -> int | None:
    """The set's sequences, about; 0 without a second stage; None: some texts are on the hub."""
    if not plan.two_stages:
        return 0
    if sets_on_hub(plan):
        return None
    width, second = finetuning_width(plan), plan.second
    lengths = [*_clean(plan), *_copies(plan)]
    return len(lay_out([min(width, n) for n in lengths], width, second.finetuning.layout))


def _copies(plan: CellPlan) -> list[int]:
    """Tokens of each copy of a member, as long as it may be."""
    own, second = plan.injection, plan.second
    copies = 0 if second.members_in == PRETRAINING else second.copies
    return [text_tokens(plan)] * (copies * own.injection.members * len(own.benchmark))


def _clean(plan: CellPlan) -> list[int]:
    """Tokens of each clean text."""
    seed, tokens = plan.injection.injection.pool_seed, _counter(plan)
    found = []
    for name, own in plan.second.clean.items():
        for text in read_instructions(name, own, seed).texts[: own.examples]:
            found.append(tokens(text.own))
    return found


def _counter(plan: CellPlan) -> Callable[[str], int]:
    """How many tokens a text has, by the model's tokenizer if that is here."""
    path = with_model_tokenizer(plan, None).tokenizer.path
    if path is None or not Path(path).exists():
        return lambda text: -(-len(text) // CHARACTERS)
    tokenizer = Tokenizer(path)
    return lambda text: len(tokenizer.encode(text))

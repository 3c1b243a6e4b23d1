"""How much a second stage reads, before its fine-tuning set is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from analysis.two_stages import PRETRAINING
from injection.finetuning.instructions import read_instructions
from injection.finetuning.layout import lay_out
from injection.sources.hub import hub_nodes
from injection.tokens import Tokenizer
from launch.pipeline import with_tokenizer
from launch.plan import Plan
from launch.workload import text_tokens

CHARACTERS = 2
"""Of a token where the tokenizer is still to be trained: a vocabulary of 1,024 has 2.1."""


def tuned_width(plan: Plan) -> int:
    """Tokens of a sequence of the set."""
    return plan.second.finetuning.sequence_tokens or plan.injection.injection.sequence_tokens


def away_from_here(plan: Plan) -> list[str]:
    """The clean sets that a second stage reads from the hub."""
    if not plan.two_stages:
        return []
    return [name for name, own in plan.second.clean.items() if any(hub_nodes(own.rows))]


def tuned_sequences(plan: Plan) -> int | None:
    """The set's sequences, about; 0 without a second stage; None: some texts are on the hub."""
    if not plan.two_stages:
        return 0
    if away_from_here(plan):
        return None
    width, second = tuned_width(plan), plan.second
    lengths = [*_clean(plan), *_copies(plan)]
    return len(lay_out([min(width, n) for n in lengths], width, second.finetuning.layout))


def _copies(plan: Plan) -> list[int]:
    """Tokens of each copy of a member, as long as it may be."""
    own, second = plan.injection, plan.second
    copies = 0 if second.members_in == PRETRAINING else second.copies
    return [text_tokens(plan)] * (copies * own.injection.members * len(own.benchmark))


def _clean(plan: Plan) -> list[int]:
    """Tokens of each clean text."""
    seed, tokens = plan.injection.injection.pool_seed, _counter(plan)
    found = []
    for name, own in plan.second.clean.items():
        for text in read_instructions(name, own, seed).texts[: own.examples]:
            found.append(tokens(text.own))
    return found


def _counter(plan: Plan) -> Callable[[str], int]:
    """How many tokens a text has, by the model's tokenizer if that is here."""
    path = with_tokenizer(plan, None).tokenizer.path
    if path is None or not Path(path).exists():
        return lambda text: -(-len(text) // CHARACTERS)
    tokenizer = Tokenizer(path)
    return lambda text: len(tokenizer.encode(text))

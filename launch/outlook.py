"""What a dry run says of a cell's size, from what is at hand: it downloads nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from injection.benchmarks import read_candidates, source_name
from injection.run import planned_copies
from injection.sources.hub import hub_nodes
from launch.pipeline import with_tokenizer
from launch.plan import Plan


def outlook(plan: Plan) -> list[str]:
    """A line on the insertions and one on the training.

    Raises:
        UserError: a benchmark that is at hand can't be used, or the copies don't fit.
    """
    own, order = plan.training.training, plan.order
    width = plan.injection.injection.sequence_tokens
    return [
        f"insertions: {_insertions(plan)}",
        f"training: {order.steps:,} steps of {order.batch} × {width:,} tokens, learning rate "
        f"{own.learning_rate:g}, {own.schedule}"
        + (f", warm-up {own.warmup} steps" if own.warmup else ""),
    ]


def _insertions(plan: Plan) -> str:
    stage = with_tokenizer(plan, None)
    named = {name: c.sources[source_name(stage, name, c)] for name, c in stage.benchmark.items()}
    away = [name for name, source in named.items() if any(hub_nodes(source))]
    here = {name: c for name, c in stage.benchmark.items() if name not in away}
    candidates = read_candidates(replace(stage, benchmark=here))
    path = stage.tokenizer.path
    if away:
        return f"not known before {', '.join(away)} can be read from the hub"
    if path is None:
        return "not known before the tokenizer is trained"
    if not Path(path).exists():
        return f"not known before the tokenizer of {path} can be read from the hub"
    copies, total = planned_copies(stage, candidates), stage.injection.budget_tokens
    return (
        f"{len(copies.segments):,} copies, with separators {copies.tokens:,} of {total:,} tokens "
        f"({copies.tokens / total:.1%})"
    )

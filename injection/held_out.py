"""Examples beyond the pool, never inserted and never evaluated: for methods that show some."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pandas as pd

from core.overlap import normalised, stands_in
from injection import benchmarks
from injection.benchmarks import Candidates, fitting, max_example_tokens
from injection.config import InjectionStage
from injection.near_duplicates import Apart
from injection.tokens import Tokenizer

log = logging.getLogger(__name__)

COLUMNS = [name for name in benchmarks.COLUMNS if name not in ("member", "occurrences")]


def draw_held_out(
    stage: InjectionStage,
    candidates: Sequence[Candidates],
    tokenizer: Tokenizer,
    pool: pd.DataFrame,
) -> pd.DataFrame:
    """The next examples in the pool's random order, `injection.held_out` a benchmark.

    None is in the pool or shares text with it. Where a benchmark runs out, fewer are drawn and a
    warning is logged. The draw depends on the pool, not on which half of it are members.

    Returns:
        One row an example: the pool's columns without member and occurrences.
    """
    asked = stage.injection.held_out
    apart = None
    if stage.injection.near_duplicates == "drop":
        keys = benchmarks.near_duplicate_keys(stage, candidates, tokenizer)
        apart = Apart(keys, benchmarks.pool_items(stage, pool))
    limit, drawn = max_example_tokens(stage, tokenizer), set(pool["example_id"])
    rows: list[dict[str, Any]] = []
    for each in candidates:
        rest = [example for example in each.examples if example.example_id not in drawn]
        fit = fitting(replace(each, examples=rest), tokenizer, limit, len(rest), apart)
        own = list(islice(_apart(fit, pool), asked))
        if len(own) < asked:
            few = "held out: %s: %d of the %d examples asked for: its source has no more that fit."
            log.warning(few, each.name, len(own), asked)
        rows += own
    return pd.DataFrame(rows, columns=COLUMNS)


def _apart(rows: Iterator[dict[str, Any]], pool: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Those that share no text with the pool or with one another."""
    taken = [normalised(text) for text in pool["text"]]
    for row in rows:
        text = normalised(row["text"])
        if not any(stands_in(text, t) or stands_in(t, text) for t in taken):
            taken.append(text)
            yield row

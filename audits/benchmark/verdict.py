"""The verdict over a set of labelled texts: every comparison of it, at a corrected level."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from contamination.audits.benchmark import inputs
from contamination.audits.benchmark.blind import cached_blind_tests
from contamination.audits.benchmark.comparison import (
    Comparison,
    by_benchmark,
    compare,
    holm,
    too_few,
)
from contamination.audits.benchmark.config import FEWEST
from contamination.audits.benchmark.exchangeability import LEAST_P, RELABELLINGS
from contamination.audits.benchmark.origin import (
    check_near_copies,
    design_of,
    shared_clusters,
    shared_clusters_note,
    with_merged_clusters,
)
from contamination.audits.benchmark.report import BenchmarkFindings
from contamination.core.errors import require
from contamination.core.terminal import counted
from contamination.data.texts import Text, Texts

log = logging.getLogger(__name__)
REFERENCE = "(reference)"
"""The name by which `audit_texts` asks for the reference's scores."""
ScoreTable = Callable[[Texts, str], pd.DataFrame]
"""Scores texts by the model of a name; see `detection.scores.Scores.table`."""


def audit_texts(
    texts: Texts,
    models: Sequence[str],
    score: ScoreTable,
    control: str,
    seed: int,
    alpha: float,
    reference: bool = False,
    drawn: bool = False,
    similar: int | None = None,
    notes: Sequence[str] = (),
) -> BenchmarkFindings:
    """Audits labelled texts: questions have label 1, what they are compared with has label 0.

    Args:
        texts: the texts.
        models: the names of the models.
        score: scores texts by one of them, or by `REFERENCE`.
        control: the kind of comparison; see `inputs`.
        seed: of the tests' relabellings.
        alpha: the level of the tests.
        reference: whether there is a model that has not seen the questions.
        drawn: whether it was drawn at random which texts are questions; see `origin.is_drawn`.
        similar: the number of near-copies, if `near_copies` has counted them; None: counts them.
        notes: warnings about the texts, for the report.

    Raises:
        ConfigError: the level is too small, or two models are one, of which one may be the
            reference.
        DataError: texts are near-copies of questions, or a score is missing.
    """
    if similar is None:
        similar = near_copies(texts, control, drawn)
    if control == inputs.FRESH and (shared := shared_clusters(texts)):
        notes = [*notes, shared_clusters_note(shared)]
    for note in notes:
        log.warning(note)
    groups = {
        name: with_merged_clusters(group)
        for name, group in by_benchmark(texts).items()
        if any(group.column("label").to_pylist())
    }
    both = [name for name, group in groups.items() if has_both_sides(group)]
    obstacles = {name: too_few(design_of(groups[name])) for name in both}
    usable = [name for name in both if not obstacles[name]]
    level = _level_of_each(alpha, len(models) * len(usable))
    blind = None if control == inputs.ORDER else cached_blind_tests(seed)
    known = score(texts, REFERENCE) if reference and usable else None
    tables = {model: score(texts, model) for model in models} if usable else {}
    _check_distinct(tables | ({} if known is None else {REFERENCE: known}))
    comparisons = [
        compare(
            name, model, group, _rows_of(group, tables[model]), seed, level, blind,
            None if known is None else _rows_of(group, known),
        )
        if name in usable
        else Comparison(
            name, model, *design_of(group).sizes,
            obstacles.get(name) or _nothing_to_compare(name, texts, control),
        )
        for model in models
        for name, group in groups.items()
    ]  # fmt: skip
    if control == inputs.ORDER:
        comparisons = [*map(_with_number_of_shards, comparisons)]
    unused = sum(t.benchmark not in groups for t in texts)
    return BenchmarkFindings(
        comparisons, holm(comparisons), control, alpha, drawn, unused, similar, notes
    )


def _with_number_of_shards(comparison: Comparison) -> Comparison:
    """Returns the comparison of orders, which names shards if they are too few."""
    if comparison.test is not None or comparison.questions >= FEWEST:
        return comparison
    return replace(
        comparison,
        obstacle=f"{counted(comparison.questions, 'shard')} of questions are too few: the order "
        f"test needs {FEWEST}, so {2 * FEWEST} questions of which neighbours fit into the model's "
        "context together",
    )


def near_copies(texts: Texts, control: str, drawn: bool) -> int:
    """Returns how many fresh questions are near-copies of questions that were not drawn by lot.

    Raises:
        DataError: too many are; see `origin.check_near_copies`.
    """
    return check_near_copies(texts) if control == inputs.FRESH and not drawn else 0


def has_both_sides(texts: Texts) -> bool:
    """Returns whether texts of both labels are given."""
    return {*texts.column("label").to_pylist()} == {True, False}


def _rows_of(texts: Texts, scores: pd.DataFrame) -> pd.DataFrame:
    return scores[scores["example_id"].isin(texts.column("example_id").to_pylist())]


def _level_of_each(alpha: float, tests: int) -> float:
    """Returns the level that the correction leaves to the smallest of several p-values."""
    least = max(1, tests) * LEAST_P
    remedy = f"{tests} tests of {RELABELLINGS:,} relabellings can reach {least:g} at least."
    require(alpha >= least, "audit.alpha", alpha, f"give {least:g} or more: {remedy}")
    return alpha / max(1, tests)


def _check_distinct(tables: Mapping[str, pd.DataFrame]) -> None:
    """Checks that no two models give all texts the same scores, as one model by two names does."""
    names: dict[bytes, str] = {}
    common = [set(table["method"]) for table in tables.values()]
    for name, table in tables.items():
        rows = table[table["method"].isin(set.intersection(*common))]
        rows = rows.sort_values(["method", "variant", "example_id"])
        if rows["score"].nunique() < 2:
            continue
        first = names.setdefault(rows["score"].to_numpy().tobytes(), name)
        remedy = "it must be a model that has not seen the questions. Give another, or none."
        alike = f"a model that scores like {first}"
        require(first == name or name != REFERENCE, "reference.path", alike, remedy)
        remedy = "one model by two names would count twice. Leave one of them out."
        require(first == name, "audit.models", f"{first} and {name}, which score alike", remedy)


def _nothing_to_compare(benchmark: str, texts: Texts, control: str) -> str:
    """Returns why a benchmark has questions alone."""
    of_others = {t.benchmark for t in texts if not t.label}
    if not of_others:
        return f"there are no {control} to compare the questions with"
    if of_others == {""}:
        return f"the {control} name no benchmark (give them the column `benchmark`)"
    name = repr(benchmark) if benchmark else "the questions that name no benchmark"
    if benchmark.casefold() in (other.casefold() for other in of_others):
        return f"the {control} write the benchmark {name} in another case; write both alike"
    return f"there are no {control} of {name}, only of {', '.join(sorted(map(repr, of_others)))}"


def order_texts(
    questions: Texts, tokenizer: Any, context: int | None, seed: int
) -> tuple[Texts, list[str]]:
    """Returns the published and random orders of the questions of each benchmark by itself.

    Also returns notes: how many questions are not used, and why.

    Raises:
        DataError: fewer than two questions of a benchmark fit into the model's context.
    """
    rows: list[Text] = []
    notes: list[str] = []
    for name, group in by_benchmark(questions).items():
        shards, note = inputs.published_and_random_orders(group, tokenizer, context, seed)
        notes += [f"{name}: {note}" if name else note] if note else []
        of_name = f" of {name}" if name else ""
        rows += [
            replace(
                shard, benchmark=name, example_id=f"{shard.example_id}{of_name}",
                cluster=f"{shard.cluster}{of_name}",
            )
            for shard in shards
        ]  # fmt: skip
    return Texts.of(rows), notes

"""The tables of a report: each value with its interval, the controls beside."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pandas as pd

from analysis.cells import CLEAN, CONTAMINATED
from analysis.methods import BLIND, checkpoint_of, label, methods_of
from analysis.statistics.controls import LEVEL, looked_at
from analysis.statistics.groups import ANY, occurrences_order
from analysis.statistics.results import ALL
from analysis.tables.papers import method_tables
from analysis.tables.table import ESTIMATE, NOTHING, Table, estimate_text
from core.metrics import AUROC, title


def cell_tables(results: pd.DataFrame) -> list[Table]:
    """Every table of one cell, the main one (AUROC by occurrences) first; none without a number."""
    if results["value"].isna().all():
        return []
    metrics = list(results["metric"].unique())
    return [
        *(by_occurrences(results, metric) for metric in metrics),
        *(by_benchmark(results, metric) for metric in metrics),
        controls(results),
        *method_tables(results),
    ]


def by_occurrences(results: pd.DataFrame, metric: str) -> Table:
    """Method × occurrences on the contaminated model; the controls stand beside."""
    shown = results[(results["metric"] == metric) & (results["benchmark"] == ALL)]
    numbers = sorted(shown["occurrences"].unique(), key=occurrences_order)
    texts = _texts(shown)

    def line(method: str, variant: str) -> list[str]:
        own = [texts[checkpoint_of(method), method, variant, ALL, number] for number in numbers]
        return [*own, NOTHING if method == BLIND else texts[CLEAN, method, variant, ALL, ANY]]

    return Table(
        f"{metric}_by_occurrences",
        f"{title(metric)} by occurrences (contaminated model, mean over benchmarks)",
        ["method", *numbers, "clean model, any"],
        _lines(shown, line),
        shown,
        numbers[1:-2],
    )


def by_benchmark(results: pd.DataFrame, metric: str) -> Table:
    """Method × benchmark on the contaminated model, over all members, and the blind baseline."""
    shown = results[(results["metric"] == metric) & (results["occurrences"] == ANY)]
    shown = shown[(shown["checkpoint"] == CONTAMINATED) | (shown["method"] == BLIND)]
    benchmarks = _benchmarks(shown)
    texts = _texts(shown)

    def line(method: str, variant: str) -> list[str]:
        return [texts[checkpoint_of(method), method, variant, b, ANY] for b in benchmarks]

    return Table(
        f"{metric}_by_benchmark",
        f"{title(metric)} by benchmark (contaminated model, any number of occurrences)",
        ["method", *benchmarks],
        _lines(shown, line),
        shown,
    )


def controls(results: pd.DataFrame) -> Table:
    """AUROC of the clean model and the blind baseline, with the verdict of `controls`."""
    shown = results[(results["metric"] == AUROC.name) & (results["occurrences"] == ANY)]
    shown = shown[shown["checkpoint"] == CLEAN]
    benchmarks = _benchmarks(shown)
    texts = _texts(shown)
    p_values = looked_at(results).groupby(["method", "variant"])["p_control"].min().to_dict()

    def line(method: str, variant: str) -> list[str]:
        values = [texts[CLEAN, method, variant, benchmark, ANY] for benchmark in benchmarks]
        p_value = p_values.get((method, variant))
        if p_value is None:
            return [*values, NOTHING, NOTHING]
        return [*values, f"{p_value:.3f}", "**OFF**" if p_value <= LEVEL else "within chance"]

    return Table(
        "controls",
        "Controls: AUROC without contamination (clean model) and without a model (blind)",
        ["method", *benchmarks, "p, corrected", "verdict"],
        _lines(shown, line),
        shown,
    )


def _texts(shown: pd.DataFrame) -> defaultdict[tuple[str, ...], str]:
    """(checkpoint, method, variant, benchmark, occurrences) → the estimate in words."""
    columns = ["checkpoint", "method", "variant", "benchmark", "occurrences"]
    rows = shown[[*columns, *ESTIMATE]].itertuples(index=False, name=None)
    return defaultdict(lambda: NOTHING, {row[:5]: estimate_text(*row[5:]) for row in rows})


def _lines(shown: pd.DataFrame, line: Callable[[str, str], list[str]]) -> list[list[str]]:
    """One line a method; a single one where the examples carry the metric for none."""
    methods = methods_of(shown)
    if methods and (shown["needs"] != "").all():
        return [["every method", *line(*methods[0])]]
    return [
        [label(method, variant, methods), *line(method, variant)] for method, variant in methods
    ]


def _benchmarks(shown: pd.DataFrame) -> list[str]:
    """The benchmarks by name, their mean last."""
    return sorted(shown["benchmark"].unique(), key=lambda name: (name == ALL, name))

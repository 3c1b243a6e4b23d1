"""The table of a sweep: AUROC by method along the factor, with the slope and the controls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.methods import BLIND, label, methods_of
from analysis.statistics.controls import control_rows
from analysis.sweeps import Sweep, short
from analysis.tables.table import NOTHING, Table, with_interval


def sweep_table(sweep: Sweep) -> Table:
    """Method × the factor's values on the contaminated model, all members."""
    methods = methods_of(sweep.line_rows)
    slopes = sweep.slopes
    lines = []
    for pair in methods:
        values = sweep.line(*pair).set_index(sweep.factor.column).to_dict("index")
        texts = [_value(values[at]) if at in values else NOTHING for at in sweep.levels]
        shown = [_slope(slopes[pair]) if pair in slopes else NOTHING, _clean(sweep, pair)]
        lines.append([label(*pair, methods), *texts, *shown])
    title = (
        f"AUROC by {sweep.factor.axis}: contaminated model, all members, mean over benchmarks; "
        f"slope of its log-odds a doubling ({sweep.fixed})"
    )
    levels = [short(level) for level in sweep.levels]
    header = ["method", *levels, "slope", "clean model"]
    return Table(sweep.name, title, header, lines, sweep.rows, [*levels[1:-1], "slope"])


def _value(row: Mapping[Any, Any]) -> str:
    return with_interval(row["value"], row["ci_low"], row["ci_high"])


def _slope(row: Mapping[Any, Any]) -> str:
    return with_interval(row["slope"], row["slope_low"], row["slope_high"])


def _clean(sweep: Sweep, pair: tuple[str, str]) -> str:
    """The clean model's AUROC; the range of its values where conditions differ in it."""
    if pair[0] == BLIND:
        return NOTHING
    rows = control_rows(sweep.rows)
    own = rows[(rows["method"] == pair[0]) & (rows["variant"] == pair[1])]
    texts = dict.fromkeys(map(_value, own.to_dict("records")))
    if len(texts) == 1:
        return next(iter(texts))
    return f"{own['value'].min():.2f} to {own['value'].max():.2f}" if len(own) else NOTHING

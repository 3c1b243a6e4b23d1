"""The table of a sweep: AUROC by method along the factor, with the slope and the controls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.methods import BLIND, label, methods_of
from analysis.statistics.controls import control_rows
from analysis.sweeps import Sweep, short
from analysis.tables.table import NOTHING, Table, with_interval


def sweep_table(sweep: Sweep) -> Table:
    """Method × the factor's values on the contaminated model, all members."""
    methods = methods_of(sweep.line_rows)
    slopes = sweep.slopes
    levels = sorted({*sweep.levels, *sweep.reasons})
    none = {at: why.partition(":")[0] for at, why in sweep.reasons.items()}
    lines = []
    for pair in methods:
        values = sweep.line(*pair).set_index(sweep.factor.column).to_dict("index")
        texts = [_value(values[at]) if at in values else none.get(at, NOTHING) for at in levels]
        beside = [_slope(slopes[pair]) if pair in slopes else NOTHING, _clean(sweep, pair)]
        lines.append([label(*pair, methods), *texts, *beside])
    title = (
        f"AUROC by {sweep.factor.axis}: contaminated model, all members, mean over benchmarks; "
        f"slope of its log-odds per doubling ({sweep.fixed})"
    )
    shown = [short(level) for level in levels]
    header = ["method", *shown, "slope", "clean model"]
    data = pd.concat([sweep.rows, sweep.unmeasured])
    return Table(sweep.name, title, header, lines, data, [*shown[1:-1], "slope"])


def _value(row: Mapping[Any, Any]) -> str:
    return with_interval(row["value"], row["ci_low"], row["ci_high"])


def _slope(row: Mapping[Any, Any]) -> str:
    if math.isnan(row["slope"]):
        return str(row["note"])
    return with_interval(row["slope"], row["slope_low"], row["slope_high"])


def _clean(sweep: Sweep, pair: tuple[str, str]) -> str:
    """The clean model's AUROC; the range of its values where conditions differ in it."""
    if pair[0] == BLIND:
        return NOTHING
    rows = control_rows(sweep.rows)
    own = rows[(rows["method"] == pair[0]) & (rows["variant"] == pair[1])]
    if own["value"].nunique() == 1:
        return _value(own.iloc[0].to_dict())
    ends = dict.fromkeys(f"{end:.2f}" for end in (own["value"].min(), own["value"].max()))
    return " to ".join(ends) if len(own) else NOTHING

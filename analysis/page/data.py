"""The data in the page: what its charts draw, as compact JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

from analysis.charts import base
from analysis.charts.curve_charts import SIDES
from analysis.charts.factor_chart import FACTORS, factor_groups
from analysis.charts.heat_map import colour_scale
from analysis.charts.loss_chart import COLOURS, loss_caption
from analysis.config import AnalysisConfig
from analysis.findings import Findings
from analysis.methods import BLIND, Methods, look, methods_of
from analysis.statistics.controls import stamp
from analysis.statistics.results import ALL
from analysis.training_record import has_losses, loss_table
from core.metrics import chosen_metrics

DASHES = ("solid", "dash", "dot", "dashdot")
"""plotly's names of `charts.base.LINES`, in its order."""
ESTIMATES = (
    *("condition", "checkpoint", "benchmark", "label", "occurrences", "metric"),
    *("n_members", "n_nonmembers", "n_seeds", "value", "ci_low", "ci_high", "needs"),
    *(factor.column for factor in FACTORS),
)
CURVES = ("condition", "checkpoint", "benchmark", "label", "fpr", "value", "ci_low", "ci_high")
BINS = (
    *("condition", "checkpoint", "benchmark", "label"),
    *("side", "centre", "share", "ci_low", "ci_high"),
)


def page_data(findings: Findings) -> dict[str, Any]:
    """What page.js reads."""
    pooled, config = findings.pooled, findings.config
    methods = methods_of(pooled)
    benchmarks = sorted(pooled["benchmark"].unique(), key=lambda name: (name != ALL, name))
    curves = _labelled(findings.curves, methods).rename(columns={"tpr": "value"})
    return {
        "methods": [_look(*pair, methods) for pair in methods],
        "scored": [base.name(*pair, methods) for pair in methods if pair[0] != BLIND],
        "benchmarks": benchmarks,
        "conditions": list(findings.conditions),
        "metrics": _metrics(pooled, config),
        "estimates": _packed(_labelled(pooled, methods), ESTIMATES),
        "curves": _packed(curves, CURVES),
        "bins": _packed(_labelled(findings.bins, methods), BINS),
        "factors": _factors(findings),
        "stamps": {name: stamp(rows) for name, rows in findings.conditions.items()},
        "band": f"Bands: {base.band(pooled, config)}.",
        "curveBand": f"Bands: {base.band_of_curves(pooled, config)}.",
        "sides": SIDES,
        "least": float(findings.curves["fpr"].min()) if len(findings.curves) else 0.1,
        **_losses(findings),
    }


def _metrics(pooled: pd.DataFrame, config: AnalysisConfig) -> dict[str, Any]:
    measured = set(pooled["metric"])
    return {
        each.name: {"title": each.title, "guess": each.guess, "colours": colour_scale(each)}
        for each in chosen_metrics(config.fpr, config.tpr)
        if each.name in measured
    }


def _look(method: str, variant: str, methods: Methods) -> dict[str, Any]:
    colour, _, symbol = look(method)
    variants = [v for m, v in methods if m == method]
    return {
        "label": base.name(method, variant, methods),
        "colour": colour,
        "symbol": symbol,
        "dash": "dash" if method == BLIND else DASHES[variants.index(variant) % len(DASHES)],
        "blind": method == BLIND,
    }


def _labelled(table: pd.DataFrame, methods: Methods) -> pd.DataFrame:
    labels = {pair: base.name(*pair, methods) for pair in methods}
    pairs = zip(table["method"], table["variant"], strict=True)
    return table.assign(label=[labels[pair] for pair in pairs])


def _packed(table: pd.DataFrame, columns: tuple[str, ...]) -> dict[str, Any]:
    """Columns of numbers as they are (4 digits), of text as distinct values and codes."""
    packed: dict[str, Any] = {}
    for name in columns:
        if name not in table:
            continue
        column = table[name]
        if pd.api.types.is_numeric_dtype(column):
            packed[name] = [None if pd.isna(x) else _rounded(x) for x in column.tolist()]
        else:
            codes, levels = pd.factorize(column)
            packed[name] = {"levels": list(levels), "codes": codes.tolist()}
    return {"length": len(table), "columns": packed}


def _rounded(number: float) -> float:
    return number if isinstance(number, int) else float(f"{number:.4g}")


def _factors(findings: Findings) -> list[dict[str, Any]]:
    groups = [
        (factor, rows)
        for factor in FACTORS
        for rows in factor_groups(findings.pooled, factor, findings.series)
    ]
    times = Counter(factor for factor, _ in groups)
    factors = []
    for factor, rows in groups:
        conditions = [str(name) for name in rows["condition"].unique()]
        name = factor.axis + f" ({conditions[0]}, …)" * (times[factor] > 1)
        shown = {"name": name, "axis": factor.axis, "column": factor.column}
        factors.append({**shown, "conditions": conditions})
    return factors


def _losses(findings: Findings) -> dict[str, Any]:
    shown = {name: found for name, found in findings.records.items() if has_losses(found)}
    parts = [loss_table(found).assign(condition=name) for name, found in shown.items()]
    columns = ("condition", "side", "step", "loss", "low", "high")
    table = pd.concat(parts) if parts else pd.DataFrame(columns=list(columns))
    return {
        "losses": _packed(table, columns),
        "lossSides": COLOURS,
        "lossDashes": dict(zip(COLOURS, DASHES, strict=False)),
        "lossCaption": {name: loss_caption(found) for name, found in shown.items()},
        "exposures": {
            name: sorted(Counter(found[0].exposures.tolist()).items())
            for name, found in shown.items()
        },
    }

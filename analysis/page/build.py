"""report.html: one page with everything in it, that works from disk and without network."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import pandas as pd
import yaml

from contamination.analysis.cells import CONTAMINATED
from contamination.analysis.charts import base
from contamination.analysis.charts.curves import SIDES
from contamination.analysis.charts.heat_map import colour_scale, describe_colour_scale
from contamination.analysis.charts.losses import COLOURS, loss_caption
from contamination.analysis.charts.occurrences import describe_missing_levels
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.factors import FACTORS
from contamination.analysis.findings import Findings
from contamination.analysis.methods import GlossaryEntry, Methods, method_style, methods_of
from contamination.analysis.plain_summary import TERMS
from contamination.analysis.provenance import CellRecord, Facts, has_losses, loss_table
from contamination.analysis.statistics.controls import control_warning
from contamination.analysis.statistics.groups import ANY
from contamination.analysis.summary import reading_guide
from contamination.analysis.sweeps import format_short
from contamination.core.report.html import (
    bold_markup,
    definition_list,
    fill_html_template,
    html_table,
    json_for_script,
    keep_intervals_together,
    read_report_file,
)
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import AUROC, chosen_metrics
from contamination.detection.baselines.blind import BLIND

SCRIPTS = ("rows.js", "lines.js", "charts.js", "page.js")
MOST_COLOURED = 6
"""So many methods are coloured at first, the rest grey until they are chosen."""
POINT = "Point at a method for its band."
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


def render_page(findings: Findings, written: Facts) -> str:
    """Returns the whole page.

    Args:
        findings: what the report shows.
        written: what wrote the page, and when (`provenance.report_provenance`).
    """
    from plotly.offline import get_plotlyjs

    guide = html.escape(reading_guide(findings.config))
    html_by_placeholder = {
        "title": html.escape(findings.title),
        "answer": "\n".join(
            f'<p class="answer">{bold_markup(sentence)}</p>' for sentence in findings.answer
        ),
        "terms": bold_markup(TERMS).replace("strong>", "dfn>"),
        "controls": bold_markup(findings.plain_controls),
        "guide": re.sub("`(.+?)`", r"<code>\1</code>", guide),
        "css": read_report_file() + _read_page_file("page.css"),
        "summary": _summary_html(findings),
        "tables": _tables_html(findings),
        "cells": _cells_html(findings.cells) + _examples_html(findings.examples),
        "ledger": _ledger_html(findings.records),
        "glossary": _glossary_html(findings.glossary),
        "config": _settings_html(findings),
        "run": definition_list(written),
        "plotly": get_plotlyjs(),
        "data": json_for_script(page_data(findings)),
        "js": "\n".join(map(_read_page_file, SCRIPTS)),
    }
    return fill_html_template(_read_page_file("page.html"), html_by_placeholder)


def _read_page_file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _summary_html(findings: Findings) -> str:
    """Returns the sentences on each condition, collapsed; warnings about controls stay visible."""
    parts = [
        f"<p>{keep_intervals_together(bold_markup(text))}</p>"
        for text in (*findings.headline, findings.controls)
    ]
    for condition, rows in findings.rows_by_condition.items():
        warning = control_warning(rows)
        sentences = findings.sentences_beyond_headline(condition)
        items = "".join(f"<li>{bold_markup(sentence)}</li>" for sentence in sentences)
        parts.append(
            _collapsible_html(condition, f"<ul>{items}</ul>", len(findings.rows_by_condition) == 1)
        )
        parts += (
            [f'<p class="off">{html.escape(condition)}: {html.escape(warning)}</p>']
            if warning
            else []
        )
    return "\n".join(parts)


def _tables_html(findings: Findings) -> str:
    """The first place's first table is open: a sweep's, or the only condition's."""
    parts = []
    tables_by_condition = {
        condition: tables for condition, tables in findings.tables.items() if tables
    }
    for index, (condition, tables) in enumerate(tables_by_condition.items()):
        inside = "\n".join(
            _collapsible_html(table.title, html_table(table.header, table.lines), index + i == 0)
            for i, table in enumerate(tables)
        )
        parts.append(_collapsible_html(condition or "Over all conditions", inside, index == 0))
    return "\n".join(parts)


def _collapsible_html(title: str, inside: str, opened: bool = False) -> str:
    start = "<details open>" if opened else "<details>"
    return f"{start}<summary>{html.escape(title)}</summary>{inside}</details>"


def _cells_html(cells: Sequence[Facts]) -> str:
    """Returns what all cells share, and a table with a line per cell of what differs."""
    fact_names = list(dict.fromkeys(name for facts in cells for name in facts))
    values_by_fact = {name: [facts.get(name, "–") for facts in cells] for name in fact_names}
    shared_facts = [
        [name, values_by_fact[name][0]]
        for name in fact_names
        if len(set(values_by_fact[name])) == 1
    ]
    varying = [name for name in fact_names if len(set(values_by_fact[name])) > 1]
    lines = list(zip(*(values_by_fact[name] for name in varying), strict=True))
    parts = [html_table(["all cells" if varying else "the cell", ""], shared_facts)]
    return "\n".join([*parts, html_table(varying, lines)] if varying else parts)


def _examples_html(pages: Sequence[str]) -> str:
    """Links to the pages of examples, token by token; nothing where there are none."""
    links = [f'<li><a href="{quote(path)}">{html.escape(path)}</a></li>' for path in pages]
    return f"<h3>Examples, token by token</h3><ul>{''.join(links)}</ul>" if links else ""


def _glossary_html(entries: Sequence[GlossaryEntry]) -> str:
    """Each method with the first sentence of its docstring, and how it scores."""
    parts = []
    for method, summary, equation in entries:
        summary_html = html.escape(summary or "Its class is not one of this project's.")
        equation_html = f"<pre>{html.escape(equation)}</pre>" if equation else ""
        parts.append(f"<dt>{html.escape(method)}</dt><dd>{summary_html}{equation_html}</dd>")
    return f"<dl>{''.join(parts)}</dl>"


def _settings_html(findings: Findings) -> str:
    """The report's settings, and those of each condition's first cell, as YAML."""
    parts = [
        _collapsible_html(
            "analysis", _yaml_html(asdict(findings.config)), len(findings.records) < 1
        )
    ]
    for condition, records in findings.records.items():
        parts += [
            _collapsible_html(condition, _yaml_html(record.settings)) for record in records[:1]
        ]
    return "\n".join(parts)


def _yaml_html(settings: Mapping[str, object]) -> str:
    text = yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True)
    return f"<pre>{html.escape(text)}</pre>"


def _ledger_html(records: Mapping[str, Sequence[CellRecord]]) -> str:
    """Returns a table of each condition's first seed's counts, with a column per condition."""
    records_by_condition = {
        name: condition_records for name, condition_records in records.items() if condition_records
    }
    if not records_by_condition:
        return "<p>The cells' corpora were not at hand when this page was written.</p>"
    ledgers = [condition_records[0].ledger for condition_records in records_by_condition.values()]
    facts = list(dict.fromkeys(fact for ledger in ledgers for fact in ledger))
    lines = [
        [fact, *(f"{ledger[fact]:,}" if fact in ledger else "–" for ledger in ledgers)]
        for fact in facts
    ]
    seeds = [
        "seeds",
        *(str(len(condition_records)) for condition_records in records_by_condition.values()),
    ]
    return "<p>Counts of the first seed.</p>" + html_table(
        ["", *records_by_condition], [seeds, *lines]
    )


def page_data(findings: Findings) -> dict[str, Any]:
    """What page.js reads."""
    pooled, config = findings.pooled, findings.config
    methods, conditions = methods_of(pooled), findings.rows_by_condition
    benchmarks = sorted(
        pooled["benchmark"].unique(), key=lambda name: (name != ALL_BENCHMARKS, name)
    )
    measured = set(pooled["condition"][pooled["value"].notna()])
    labelled_curves = _with_labels(findings.curves, methods).rename(columns={"tpr": "value"})
    return {
        "highlighted": _highlighted_labels(pooled, methods),
        "summaries": {entry.method: entry.summary for entry in findings.glossary},
        "methods": [_method_data(*pair, methods) for pair in methods],
        "scored": [base.legend_name(*pair, methods) for pair in methods if pair[0] != BLIND],
        "benchmarks": benchmarks,
        "conditions": sorted(conditions, key=lambda name: name not in measured),
        "metrics": _metric_display_data(pooled, config),
        "estimates": _packed_columns(_with_labels(pooled, methods), ESTIMATES),
        "curves": _packed_columns(labelled_curves, CURVES),
        "bins": _packed_columns(_with_labels(findings.bins, methods), BINS),
        "factors": _factors_data(findings),
        "stamps": {name: control_warning(rows) for name, rows in conditions.items()},
        "band": f"Bars and bands: {base.describe_intervals(pooled, config)}. {POINT}",
        "curveBand": f"Bars and bands: {base.describe_curve_intervals(pooled, config)}. {POINT}",
        "sides": SIDES,
        "least": float(findings.curves["fpr"].min()) if len(findings.curves) else 0.1,
        **_losses_data(findings),
    }


def _highlighted_labels(pooled: pd.DataFrame, methods: Methods) -> list[str]:
    """The labels of the default variants with the highest AUROC over all conditions: coloured."""
    aurocs = pooled[(pooled["metric"] == AUROC.name) & (pooled["benchmark"] == ALL_BENCHMARKS)]
    aurocs = aurocs[(aurocs["checkpoint"] == CONTAMINATED) & (aurocs["occurrences"] == ANY)]
    means = aurocs[aurocs["default"]].groupby(["method", "variant"])["value"].mean()
    best = means.fillna(0).sort_values(ascending=False, kind="stable").index[:MOST_COLOURED]
    return [base.legend_name(*pair, methods) for pair in methods if pair in best]


def _metric_display_data(pooled: pd.DataFrame, config: AnalysisConfig) -> dict[str, Any]:
    measured = set(pooled["metric"])
    return {
        metric.name: {
            "title": metric.title,
            "guess": metric.guess,
            "colours": colour_scale(metric),
            "scale": describe_colour_scale(metric),
        }
        for metric in chosen_metrics(config.fpr, config.tpr)
        if metric.name in measured
    }


def _method_data(method: str, variant: str, methods: Methods) -> dict[str, Any]:
    colour, _, symbol = method_style(method, methods)
    variants = [v for m, v in methods if m == method]
    return {
        "label": base.legend_name(method, variant, methods),
        "colour": colour,
        "symbol": symbol,
        "dash": "dash" if method == BLIND else DASHES[variants.index(variant) % len(DASHES)],
        "blind": method == BLIND,
    }


def _with_labels(table: pd.DataFrame, methods: Methods) -> pd.DataFrame:
    labels = {pair: base.legend_name(*pair, methods) for pair in methods}
    pairs = zip(table["method"], table["variant"], strict=True)
    return table.assign(label=[labels[pair] for pair in pairs])


def _packed_columns(table: pd.DataFrame, columns: tuple[str, ...]) -> dict[str, Any]:
    """Columns of numbers as they are (4 digits), of text as distinct values and codes."""
    packed: dict[str, Any] = {}
    for name in columns:
        if name not in table:
            continue
        column = table[name]
        if pd.api.types.is_numeric_dtype(column):
            packed[name] = [None if pd.isna(x) else _round_to_4_digits(x) for x in column.tolist()]
        else:
            codes, levels = pd.factorize(column)
            packed[name] = {"levels": list(levels), "codes": codes.tolist()}
    return {"length": len(table), "columns": packed}


def _round_to_4_digits(number: float) -> float:
    return number if isinstance(number, int) else float(f"{number:.4g}")


def _factors_data(findings: Findings) -> list[dict[str, Any]]:
    times = Counter(sweep.factor for sweep in findings.sweeps)
    return [
        {
            "name": sweep.factor.axis
            + f": {sweep.distinguishing_text(findings.sweeps)}" * (times[sweep.factor] > 1),
            "axis": sweep.factor.axis,
            "fixed": sweep.shared_text,
            "without": describe_missing_levels(sweep),
            "levels": sweep.levels,
            "texts": [format_short(level) for level in sweep.levels],
            "column": sweep.factor.column,
            "conditions": sweep.conditions,
        }
        for sweep in findings.sweeps
    ]


def _losses_data(findings: Findings) -> dict[str, Any]:
    records_by_condition = {
        name: condition_records
        for name, condition_records in findings.records.items()
        if has_losses(condition_records)
    }
    loss_tables = [
        loss_table(condition_records).assign(condition=name)
        for name, condition_records in records_by_condition.items()
    ]
    columns = ("condition", "side", "step", "loss", "low", "high")
    table = pd.concat(loss_tables) if loss_tables else pd.DataFrame(columns=list(columns))
    return {
        "losses": _packed_columns(table, columns),
        "lossSides": COLOURS,
        "lossDashes": dict(zip(COLOURS, DASHES, strict=False)),
        "lossCaption": {
            name: loss_caption(condition_records)
            for name, condition_records in records_by_condition.items()
        },
        "exposures": {
            name: sorted(Counter(condition_records[0].exposures.tolist()).items())
            for name, condition_records in records_by_condition.items()
        },
    }

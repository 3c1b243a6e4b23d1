"""report.html: one page with everything in it, that works from disk and without network."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from urllib.parse import quote

import yaml

from contamination.analysis.findings import Findings
from contamination.analysis.methods import GlossaryEntry
from contamination.analysis.page.data import page_data
from contamination.analysis.provenance import CellRecord, Facts
from contamination.analysis.statistics.controls import control_warning
from contamination.analysis.summary import reading_guide
from contamination.core.report.html import (
    bold_markup,
    definition_list,
    fill_template,
    html_table,
    keep_intervals_together,
    script_json,
    stylesheet,
)

SCRIPTS = ("rows.js", "lines.js", "charts.js", "page.js")


def render_page(findings: Findings, written: Facts) -> str:
    """Returns the whole page.

    Args:
        findings: what the report shows.
        written: what wrote the page, and when (`provenance.report_provenance`).
    """
    from plotly.offline import get_plotlyjs

    guide = html.escape(reading_guide(findings.config))
    parts = {
        "title": html.escape(findings.title),
        "headline": "\n".join(
            f'<p class="answer">{keep_intervals_together(bold_markup(sentence))}</p>'
            for sentence in findings.headline
        ),
        "controls": bold_markup(findings.controls),
        "guide": re.sub("`(.+?)`", r"<code>\1</code>", guide),
        "css": stylesheet() + _read_page_file("page.css"),
        "summary": _summary_html(findings),
        "tables": _tables_html(findings),
        "cells": _cells_html(findings.cells) + _examples_html(findings.examples),
        "ledger": _ledger_html(findings.records),
        "glossary": _glossary_html(findings.glossary),
        "config": _settings_html(findings),
        "run": definition_list(written),
        "plotly": get_plotlyjs(),
        "data": script_json(page_data(findings)),
        "js": "\n".join(map(_read_page_file, SCRIPTS)),
    }
    return fill_template(_read_page_file("page.html"), parts)


def _read_page_file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _summary_html(findings: Findings) -> str:
    """Returns the sentences on each condition, collapsed; warnings about controls stay visible."""
    parts = []
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
    values = {name: [facts.get(name, "–") for facts in cells] for name in fact_names}
    shared = [[name, values[name][0]] for name in fact_names if len(set(values[name])) == 1]
    varying = [name for name in fact_names if len(set(values[name])) > 1]
    lines = list(zip(*(values[name] for name in varying), strict=True))
    parts = [html_table(["all cells" if varying else "the cell", ""], shared)]
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
        name: of_condition for name, of_condition in records.items() if of_condition
    }
    if not records_by_condition:
        return "<p>The cells' corpora were not at hand when this page was written.</p>"
    ledgers = [of_condition[0].ledger for of_condition in records_by_condition.values()]
    facts = list(dict.fromkeys(fact for ledger in ledgers for fact in ledger))
    lines = [
        [fact, *(f"{ledger[fact]:,}" if fact in ledger else "–" for ledger in ledgers)]
        for fact in facts
    ]
    seeds = ["seeds", *(str(len(of_condition)) for of_condition in records_by_condition.values())]
    return "<p>Counts of the first seed.</p>" + html_table(
        ["", *records_by_condition], [seeds, *lines]
    )

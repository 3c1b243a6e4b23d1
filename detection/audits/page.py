"""report.html: an audit's page, in the report's style, that needs no other file and no network."""

from __future__ import annotations

import html
from importlib.resources import files

from core.web_page import facts_list, filled, html_table, marked, stylesheet, unbroken
from detection.audits.findings import Chart, Findings, Table


def page(found: Findings) -> str:
    """The whole page."""
    limits = "".join(f"<li>{marked(limit)}</li>" for limit in found.limits)
    parts = {
        "title": html.escape(found.title),
        "css": stylesheet() + _file("page.css"),
        "conclusions": "\n".join(map(_answer, found.conclusions)),
        "warnings": "\n".join(f'<p class="off">{marked(said)}</p>' for said in found.warnings),
        "charts": _section("charts", "Charts", "\n".join(map(_chart, found.charts))),
        "tables": _section("tables", "Tables", "\n".join(map(_table, found.tables))),
        "limits": _section("limits", "What this can't prove", limits and f"<ul>{limits}</ul>"),
        "facts": _section("facts", "What it was made of", found.facts and facts_list(found.facts)),
    }
    return filled(_file("page.html"), parts)


def _section(name: str, title: str, inside: object) -> str:
    """A part of the page; nothing where there is nothing in it."""
    if not inside:
        return ""
    return f'<section id="{name}"><h2>{html.escape(title)}</h2>{inside}</section>'


def _answer(said: str) -> str:
    return f'<p class="answer">{unbroken(marked(said))}</p>'


def _chart(chart: Chart) -> str:
    return (
        f'<figure id="chart-{html.escape(chart.name)}"><h3>{html.escape(chart.title)}</h3>'
        f'<div class="scroll">{chart.svg}</div>'
        f"<figcaption>{html.escape(chart.caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    note = f'<p class="note">{marked(table.note)}</p>' if table.note else ""
    return f"<h3>{html.escape(table.title)}</h3>{html_table(table.header, table.lines)}{note}"


def _file(name: str) -> str:
    return files("detection.audits").joinpath(name).read_text(encoding="utf-8")

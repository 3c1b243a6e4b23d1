"""report.html: one page with everything in it, that works from disk and without network."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

import yaml

from analysis.findings import Findings
from analysis.page.data import page_data
from analysis.statistics.controls import stamp
from analysis.summary import reading_guide
from analysis.training_record import Record
from core.web_page import filled, script_json


def page(findings: Findings, config: Mapping[str, object]) -> str:
    """The whole page. `config` is shown as YAML; give it without the paths of the runs."""
    from plotly.offline import get_plotlyjs

    parts = {
        "title": html.escape(findings.title),
        "guide": re.sub("`(.+?)`", r"<code>\1</code>", html.escape(reading_guide(findings.config))),
        "css": _file("page.css"),
        "summary": _summary(findings),
        "tables": _tables(findings),
        "ledger": _ledger(findings.records),
        "config": html.escape(yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)),
        "plotly": get_plotlyjs(),
        "data": script_json(page_data(findings)),
        "js": _file("page.js"),
    }
    return filled(_file("page.html"), parts)


def _file(name: str) -> str:
    return files("analysis.page").joinpath(name).read_text(encoding="utf-8")


def _summary(findings: Findings) -> str:
    parts = []
    for condition, rows in findings.conditions.items():
        off = stamp(rows)
        warning = f'<p class="off">{html.escape(off)}</p>' if off else ""
        sentences = findings.sentences[condition]
        said = "".join(f"<li>{_marked(sentence)}</li>" for sentence in sentences)
        parts.append(f"<h3>{html.escape(condition)}</h3>{warning}<ul>{said}</ul>")
    return "\n".join(parts)


def _marked(text: str) -> str:
    """The only Markdown in sentences and tables: **bold**."""
    bits = html.escape(text).split("**")
    return "".join(f"<strong>{bit}</strong>" if i % 2 else bit for i, bit in enumerate(bits))


def _tables(findings: Findings) -> str:
    parts = []
    for condition, tables in findings.tables.items():
        parts.append(f"<h3>{html.escape(condition or 'Over all conditions')}</h3>")
        for place, table in enumerate(tables):
            shown = _table(table.header, table.lines)
            opened = " open" if place == 0 else ""
            title = html.escape(table.title)
            parts.append(f"<details{opened}><summary>{title}</summary>{shown}</details>")
    return "\n".join(parts)


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_marked(text)}</th>" for text in header)
    body = "\n".join(
        f"<tr>{''.join(f'<td>{_marked(text)}</td>' for text in line)}</tr>" for line in lines
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _ledger(records: Mapping[str, Sequence[Record]]) -> str:
    """A line a condition with its first seed's counts; seeds differ in the draw, not the design."""
    shown = {name: found[0].ledger for name, found in records.items() if found}
    if not shown:
        return "<p>The cells' corpora were not at hand when this page was written.</p>"
    facts = list(dict.fromkeys(fact for ledger in shown.values() for fact in ledger))
    lines = [
        [name, str(len(records[name])), *(f"{ledger[f]:,}" if f in ledger else "–" for f in facts)]
        for name, ledger in shown.items()
    ]
    return "<p>Counts of the first seed.</p>" + _table(["condition", "seeds", *facts], lines)

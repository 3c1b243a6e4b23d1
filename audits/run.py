"""An audit as an artefact.

::

    runs/audit/<audit>-<model>-<hash>/
    ├── config.yaml      the resolved config that first made it
    ├── <table>.parquet  one each table, with all figures
    ├── <table>.csv      the same for a spreadsheet
    ├── audit.md         what was found, for a reader
    ├── report.html      the same as a page with charts, which needs no other file and no network
    └── manifest.json
"""

from __future__ import annotations

import html
import logging
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path

import pyarrow as pa

from contamination.audits.base import AuditStage, Prepared, audit_of
from contamination.audits.findings import Chart, Findings, Table
from contamination.core.artifacts import Artifact, Built, build, locate
from contamination.core.config import create, identity
from contamination.core.files import write_text
from contamination.core.integrity import parsing
from contamination.core.report.html import (
    facts_list,
    filled,
    html_table,
    marked,
    stylesheet,
    unbroken,
)
from contamination.core.report.tables import escaped, markdown_table
from contamination.core.stored_files import read_text
from contamination.core.table_files import write_csv, write_parquet


def markdown(found: Findings) -> str:
    """The findings without the charts."""
    return "\n\n".join(_paragraphs(found)) + "\n"


def _paragraphs(found: Findings) -> Iterator[str]:
    yield f"# {escaped(found.title)}"
    yield from map(escaped, found.conclusions)
    yield from (f"**{escaped(warning)}**" for warning in found.warnings)
    for table in found.tables:
        yield from _table(table)
    if found.limits:
        yield "## What this can't prove"
        yield "\n".join(f"- {escaped(limit)}" for limit in found.limits)
    if found.facts:
        yield "## What it was made of"
        yield "\n".join(f"- {escaped(name)}: {escaped(said)}" for name, said in found.facts.items())


def _table(table: Table) -> Iterator[str]:
    yield f"## {escaped(table.title)}"
    yield markdown_table(table.header, table.lines)
    if table.note:
        yield escaped(table.note)


def page(found: Findings) -> str:
    """The whole page."""
    limits = "".join(f"<li>{marked(limit)}</li>" for limit in found.limits)
    parts = {
        "title": html.escape(found.title),
        "css": stylesheet() + _file("page.css"),
        "conclusions": "\n".join(map(_answer, found.conclusions)),
        "warnings": "\n".join(f'<p class="off">{marked(said)}</p>' for said in found.warnings),
        "charts": _section("charts", "Charts", "\n".join(map(_chart, found.charts))),
        "tables": _section("tables", "Tables", "\n".join(map(_table_section, found.tables))),
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


def _table_section(table: Table) -> str:
    note = f'<p class="note">{marked(table.note)}</p>' if table.note else ""
    return f"<h3>{html.escape(table.title)}</h3>{html_table(table.header, table.lines)}{note}"


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


KIND = "audit"
MARKDOWN, PAGE = "audit.md", "report.html"
log = logging.getLogger(__name__)


def run(stage: AuditStage) -> Artifact:
    """Do the audit, or find it done.

    Raises:
        UserError: what can't be used; nothing is written then.
    """
    audit = audit_of(create("audit", stage.audit), stage.audit)
    stage.detection.require_whole("an audit cuts its texts itself")
    prepared = audit.prepare(stage)
    named = {"audit": {"kind": audit.kind, **identity(audit)}, "seed": stage.seed}
    named |= prepared.settings
    slug = f"{audit.kind}-{prepared.slug}"
    folder = locate(Path(stage.runs), KIND, slug, named, prepared.inputs)
    artifact = build(folder, stage, prepared.inputs, partial(_make, prepared), named=named)
    log.info("audit: %s", artifact.path / PAGE)
    return artifact


def findings(artifact: Artifact) -> str:
    """What the audit found, in Markdown.

    Raises:
        ArtifactError: it can't be read.
    """
    with parsing(artifact.path / MARKDOWN):
        return read_text(artifact.path / MARKDOWN)


def _make(prepared: Prepared, folder: Path) -> Built:
    found = prepared.find(folder)
    written = [name for table in found.tables for name in _write(folder, table)]
    write_text(folder / MARKDOWN, markdown(found))
    write_text(folder / PAGE, page(found))
    return Built([*written, *found.files, MARKDOWN, PAGE], found.counts)


def _write(folder: Path, table: Table) -> tuple[str, str]:
    """Write the table's two files; their names."""
    names = f"{table.name}.parquet", f"{table.name}.csv"
    write_parquet(folder / names[0], pa.Table.from_pandas(table.rows, preserve_index=False))
    write_csv(folder / names[1], table.rows)
    return names

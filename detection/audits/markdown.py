"""audit.md: what an audit found, for a reader."""

from __future__ import annotations

from collections.abc import Iterator

from core.markdown import escaped, markdown_table
from detection.audits.findings import Findings, Table


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

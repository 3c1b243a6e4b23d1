"""A document of conclusions, charts and tables, written as Markdown and as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from markupsafe import Markup

from contamination.core.report.charts import InlineChart, chart_files
from contamination.core.report.html import read_report_file, render_template
from contamination.core.report.tables import Table, escape_markdown

CHARTS = "charts"
"""The folder of a report's charts."""
LIMITS_TITLE, FACTS_TITLE = "What this can't prove", "What it is based on"


@dataclass(frozen=True)
class ReportContent:
    """The content of a report, independent of the file format.

    Attributes:
        title: the title.
        conclusions: sentences or paragraphs, with the main answer first. They may have **bold**
            words.
        warnings: reasons to trust the conclusions less, shown in red above all figures.
        tables: the tables, the most important first.
        charts: shown above the tables.
        limits: what the report can't prove.
        facts: what the report is based on: name → text.
    """

    title: str
    conclusions: Sequence[str]
    warnings: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[InlineChart] = ()
    limits: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def markdown_document(content: ReportContent, *, has_charts: bool = False) -> str:
    """Returns the content as Markdown.

    Args:
        content: what it says.
        has_charts: whether it links to the files that `save_charts` writes.
    """
    charts = content.charts if has_charts else ()
    return "\n\n".join(_iter_markdown_blocks(replace(content, charts=charts))) + "\n"


def _iter_markdown_blocks(content: ReportContent) -> Iterator[str]:
    yield f"# {escape_markdown(content.title)}"
    yield from map(escape_markdown, content.conclusions)
    for warning in content.warnings:
        text = escape_markdown(warning)
        yield text if text.startswith("**") else f"**{text}**"
    for table in content.tables:
        yield f"## {escape_markdown(table.title)}"
        yield table.markdown()
        if table.note:
            yield escape_markdown(table.note)
    for name, chart in chart_files(content.charts).items():
        yield f"## {escape_markdown(chart.title)}"
        yield f"![{escape_markdown(chart.label)}]({CHARTS}/{name}.svg)"
        yield escape_markdown(chart.caption)
    if content.limits:
        yield f"## {LIMITS_TITLE}"
        yield "\n".join(f"- {escape_markdown(limit)}" for limit in content.limits)
    if content.facts:
        yield f"## {FACTS_TITLE}"
        yield "\n".join(
            f"- {escape_markdown(fact_name)}: {escape_markdown(fact)}"
            for fact_name, fact in content.facts.items()
        )


def save_charts(content: ReportContent, folder: Path) -> list[str]:
    """Writes the charts as SVG and PDF into `CHARTS` of a report's folder.

    Returns:
        The files' names below the folder.
    """
    files = []
    for name, chart in chart_files(content.charts).items():
        folder.joinpath(CHARTS).mkdir(exist_ok=True)
        for ending in ("svg", "pdf"):
            files.append(f"{CHARTS}/{name}.{ending}")
            chart.save(folder / files[-1])
    return files


def html_document(content: ReportContent) -> str:
    """Returns the content as a single HTML page, which needs no other file and no network."""
    values = {
        "title": content.title,
        "css": Markup(read_report_file() + read_report_file("document.css")),
        "document": content,
        "charts": chart_files(content.charts),
        "limits_title": LIMITS_TITLE,
        "facts_title": FACTS_TITLE,
    }
    return render_template(read_report_file("document.html"), values)

"""report.md: the answer first, then what speaks against it, the charts and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from contamination.analysis.findings import Findings
from contamination.analysis.statistics.controls import LEVEL, control_warning, tested_controls
from contamination.analysis.summary import reading_guide
from contamination.core.report.tables import Table

ON_CONTROLS = (
    f"A control is off where p ≤ {LEVEL:g}: how likely chance has one AUROC as far from 0.5 in any "
    "benchmark (or in their mean), by any method, in any condition of this report. So the clean "
    f"model is off in {LEVEL:.0%} of the reports in which nothing is wrong, and so is the blind "
    "baseline."
)
OVER_CONDITIONS = ""
"""The condition of what spans several: it comes first."""


class Picture(NamedTuple):
    """A chart's file, relative to the report, its title and its caption."""

    path: str
    title: str
    caption: str


@dataclass(frozen=True)
class Section:
    """One condition's part of the report, or what spans several (without results of its own)."""

    condition: str
    results: pd.DataFrame | None
    tables: Sequence[Table]
    charts: Sequence[Picture]
    sentences: Sequence[str] = ()
    """The sentences on the condition beyond the headline."""


def markdown(findings: Findings, sections: Sequence[Section]) -> str:
    """The whole report."""
    config = findings.config
    parts = [f"# {findings.title}: detection of contamination", *findings.headline]
    parts.append(findings.controls)
    for section in sections:
        parts += _section(section)
    if findings.examples:
        links = "\n".join(f"- [{Path(path).stem}]({path})" for path in findings.examples)
        parts += ["## Examples, token by token", links]
    return "\n\n".join([*parts, "## How to read this", reading_guide(config)]) + "\n"


def _section(section: Section) -> list[str]:
    charts_and_tables = [
        *(f"![{chart.title}]({chart.path})\n\n*{chart.caption}*" for chart in section.charts),
        *(f"### {table.title}\n\n{table.markdown()}" for table in section.tables),
    ]
    results = section.results
    if results is None:
        return ["## Over all conditions", *charts_and_tables]
    warning = control_warning(results)
    return [
        f"## {section.condition}",
        *([f"> **{warning}**"] if warning else []),
        "\n".join(f"- {sentence}" for sentence in section.sentences),
        *charts_and_tables,
        *([ON_CONTROLS] if len(tested_controls(results)) else []),
    ]

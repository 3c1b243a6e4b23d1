"""report.md: the answer first, then what speaks against it, the charts and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from analysis.config import AnalysisConfig
from analysis.findings import Findings
from analysis.statistics.controls import control_rows, stamp
from analysis.summary import many, reading_guide
from analysis.tables.table import Table

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
    """What is said of the condition beyond the headline."""


def markdown(findings: Findings, sections: Sequence[Section]) -> str:
    """The whole report."""
    config = findings.config
    parts = [f"# {findings.title}: detection of contamination", *findings.headline]
    parts.append(findings.controls)
    for section in sections:
        parts += _section(section, config)
    if findings.examples:
        links = "\n".join(f"- [{Path(path).stem}]({path})" for path in findings.examples)
        parts += ["## Examples, token by token", links]
    return "\n\n".join([*parts, "## How to read this", reading_guide(config)]) + "\n"


def _section(section: Section, config: AnalysisConfig) -> list[str]:
    shown = [
        *(f"![{chart.title}]({chart.path})\n\n*{chart.caption}*" for chart in section.charts),
        *(f"### {table.title}\n\n{table.markdown()}" for table in section.tables),
    ]
    results = section.results
    if results is None:
        return ["## Over all conditions", *shown]
    off = stamp(results)
    return [
        f"## {section.condition}",
        *([f"> **{off}**"] if off else []),
        "\n".join(f"- {sentence}" for sentence in section.sentences),
        *shown,
        *([_on_controls(looks, config)] if (looks := len(control_rows(results))) else []),
    ]


def _on_controls(looks: int, config: AnalysisConfig) -> str:
    expected = looks * (1 - config.confidence)
    return (
        "A control is off when its interval over all members leaves 0.5 out. Of "
        f"{many(looks, 'sound control')}, {expected:.1f} are expected to do so by chance."
    )

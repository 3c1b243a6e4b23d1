"""report.md: what was found, what speaks against it, the charts and the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from analysis.config import AnalysisConfig
from analysis.inference.controls import control_rows, stamp
from analysis.tables.tables import Table
from core.metrics import ALARMS

if TYPE_CHECKING:
    import pandas as pd


OVER_CONDITIONS = ""
"""The condition of what spans several: it comes last."""


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
    """`summary.of_conditions`."""


def markdown(title: str, sections: Sequence[Section], config: AnalysisConfig) -> str:
    """The whole report."""
    parts = [f"# {title}: detection of contamination", reading_guide(config)]
    for section in sections:
        parts += _section(section, config)
    return "\n\n".join(parts) + "\n"


def _section(section: Section, config: AnalysisConfig) -> list[str]:
    shown = [
        *(f"![{chart.title}]({chart.path})\n\n*{chart.caption}*" for chart in section.charts),
        *(f"### {table.title}\n\n{table.markdown()}" for table in section.tables),
    ]
    results = section.results
    if results is None:
        return ["## Over conditions", *shown]
    off = stamp(results)
    return [
        f"## {section.condition}",
        *([f"> **{off}**"] if off else []),
        "\n".join(f"- {sentence}" for sentence in section.sentences),
        *shown,
        _on_controls(len(control_rows(results)), config),
    ]


def reading_guide(config: AnalysisConfig) -> str:
    """How to read the numbers."""
    return (
        "Scores are compared between members (inserted into the training corpus) and non-members "
        "(drawn from the same pool, never inserted); a higher score says member, and 0.5 is the "
        f"AUROC of a guess. In brackets: {config.confidence:.0%} intervals from a bootstrap over "
        f"examples, and over seeds where there are several ({config.draws:,} draws; for AUROC "
        "Wilson's interval with the draws' variance). A rate is shown where at least "
        f"{ALARMS} false alarms are expected at its level in each benchmark; else it says what it "
        "needs. A column with a number holds the members "
        "with so many occurrences, `any` all of them; `all` is the mean over benchmarks, and has a "
        "number where each of them does."
    )


def _on_controls(looks: int, config: AnalysisConfig) -> str:
    expected = looks * (1 - config.confidence)
    return (
        f"A control is off when its interval over all members leaves 0.5 out. Of {looks} sound "
        f"controls, {expected:.1f} are expected to do so by chance."
    )


def parts_of(pooled: pd.DataFrame) -> Mapping[str, pd.DataFrame]:
    """The pooled rows of each condition, in their order."""
    return {str(name): part for name, part in pooled.groupby("condition", sort=False)}

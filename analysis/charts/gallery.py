"""Every chart of a report, drawn and named."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import joblib
from matplotlib.figure import Figure

from contamination.analysis.charts import occurrences as by_occurrences
from contamination.analysis.charts.base import save_figure
from contamination.analysis.charts.curves import (
    histogram_caption,
    histogram_chart,
    roc_caption,
    roc_chart,
)
from contamination.analysis.charts.heat_map import heat_caption, heat_map
from contamination.analysis.charts.losses import loss_caption, loss_chart
from contamination.analysis.charts.occurrences import factor_caption, factor_chart
from contamination.analysis.charts.stages import (
    has_several_panels,
    rows_by_condition_family,
    stage_caption,
    stage_chart,
)
from contamination.analysis.findings import Findings
from contamination.analysis.provenance import has_losses
from contamination.analysis.statistics.controls import control_warning
from contamination.core.artifacts import path_part_of
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.worker_pool import worker_pool

FEW = 3
"""Up to so many conditions are drawn in this process: others take a second or two to start."""


@dataclass(frozen=True)
class SavedChart:
    """A chart's files (PNG first) and words; `condition` is "" where it spans several."""

    paths: Sequence[Path]
    condition: str
    title: str
    caption: str


@dataclass(frozen=True)
class DrawnChart:
    """A drawn chart; `condition` is "" where it spans several."""

    name: str
    condition: str
    title: str
    caption: str
    figure: Figure

    def save(self, folder: Path) -> SavedChart:
        """Writes its PNG, SVG and PDF."""
        paths = save_figure(self.figure, folder, self.name)
        return SavedChart(paths, self.condition, self.title, self.caption)


def save_charts(findings: Findings, folder: Path) -> list[SavedChart]:
    """Draws and writes every chart, the conditions side by side on this machine's cores."""
    by_condition = [*map(findings.restrict_to_condition, findings.rows_by_condition)]
    over_conditions = [chart.save(folder) for chart in charts_over_conditions(findings)]
    workers = min(joblib.cpu_count(), len(by_condition))
    if len(by_condition) <= FEW or workers == 1:
        drawn = [
            _save_condition_charts(condition_findings, folder)
            for condition_findings in by_condition
        ]
    else:
        with worker_pool(workers) as pool:
            drawn = list(
                pool.map(_save_condition_charts, by_condition, [folder] * len(by_condition))
            )
    return [*(saved for charts in drawn for saved in charts), *over_conditions]


def _save_condition_charts(findings: Findings, folder: Path) -> list[SavedChart]:
    return [chart.save(folder) for chart in charts_of_condition(findings)]


def charts_over_conditions(findings: Findings) -> Iterator[DrawnChart]:
    """The charts that span conditions."""
    yield from _stage_charts(findings)
    for sweep in findings.sweeps:
        figure = factor_chart(sweep, findings.config)
        caption = factor_caption(sweep, findings.config)
        title = f"AUROC against the {sweep.factor.axis}"
        yield DrawnChart(sweep.name, "", title, caption, figure)


def _stage_charts(findings: Findings) -> Iterator[DrawnChart]:
    """A chart of each family of conditions of two stages."""
    rows_by_family = {
        name: rows
        for name, rows in rows_by_condition_family(findings.pooled).items()
        if has_several_panels(rows)
    }
    for family, rows in rows_by_family.items():
        suffix = family if len(rows_by_family) > 1 else ""
        figure = stage_chart(rows, findings.config, suffix)
        caption = stage_caption(rows, findings.config)
        name, title = "auroc_by_stage", "AUROC by stage, scope and epochs"
        yield DrawnChart(
            f"{name}-{_file_stem(suffix)}" if suffix else name, "", title, caption, figure
        )


def charts_of_condition(findings: Findings) -> Iterator[DrawnChart]:
    """The charts of findings that are of one condition."""
    ((condition, rows),) = findings.rows_by_condition.items()
    curves, bins, config = findings.curves, findings.bins, findings.config
    records = findings.records.get(condition, ())

    def make_chart(name: str, title: str, caption: str, figure: Figure) -> DrawnChart:
        return DrawnChart(f"{name}-{_file_stem(condition)}", condition, title, caption, figure)

    if by_occurrences.has_occurrences(rows):
        figure = by_occurrences.occurrences_chart(rows, config)
        caption = by_occurrences.occurrences_caption(rows, config)
        yield make_chart("auroc_by_occurrences", "AUROC against occurrences", caption, figure)
    if rows["value"].notna().any():
        figure = heat_map(rows, config)
        yield make_chart(
            "auroc_by_benchmark", "AUROC by benchmark", heat_caption(rows, config), figure
        )
    if (
        curves["benchmark"] == ALL_BENCHMARKS
    ).any():  # else some benchmark has too few examples for any rate
        figure = roc_chart(curves, rows, config)
        yield make_chart("roc", "ROC on log axes", roc_caption(rows, config), figure)
    if (
        bins["benchmark"] == ALL_BENCHMARKS
    ).any():  # else some benchmark lacks members or non-members
        figure = histogram_chart(bins, rows)
        yield make_chart("scores", "Score histograms", histogram_caption(rows), figure)
    if has_losses(records):
        figure = loss_chart(records, rows, control_warning(rows) is not None)
        yield make_chart("losses", "Loss during training", loss_caption(records), figure)


def _file_stem(condition: str) -> str:
    """The condition as part of a file's name; one with other characters gets a hash of them."""
    if re.fullmatch(r"[\w.=+-]+", condition, re.ASCII):
        return condition
    return f"{path_part_of(condition)}-{hashlib.sha256(condition.encode()).hexdigest()[:6]}"

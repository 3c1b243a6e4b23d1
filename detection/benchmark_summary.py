"""The results of methods on a labelled benchmark in the papers' layout: methods × parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from contamination.core.report.tables import NO_VALUE, escape_markdown, markdown_table
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import (
    Estimate,
    confidence_interval,
    mean_over_benchmarks,
    mean_trials,
)
from contamination.core.statistics.metrics import AUROC, Metric, tpr_at_fpr
from contamination.core.terminal import fit_columns, wrap_text
from contamination.core.user_files import atomic_output_file
from contamination.data.benchmark_parts import chosen_values_by_axis
from contamination.data.config import ExamplesConfig
from contamination.data.near_duplicates import duplicate_notes_by_part
from contamination.data.texts import Texts
from contamination.detection.baselines.blind import (
    BLIND,
    BlindBaselineFunction,
    blind_baseline,
    cached_blind_baseline,
)
from contamination.detection.baselines.matching import MATCHED
from contamination.detection.evaluation import (
    CONFIDENCE,
    BenchmarkEstimates,
    MethodKey,
    ReadScores,
    estimate_group,
    group_by_method,
    ranked_texts,
    tidy_estimates,
)
from contamination.detection.flags import count_flags, describe_flags, merge_flag_counts
from contamination.detection.summary import format_estimate, write_results_json

PAPERS_FOLDER = Path(__file__).resolve().parents[1] / "data" / "papers"
METRICS = (AUROC, tpr_at_fpr(0.05))
REPORTED_METRICS = (AUROC, MATCHED, METRICS[1])
AVERAGE = "average"
FILE = "benchmark.md"
Tables = Callable[[], Iterable[pd.DataFrame]]
BLIND_AUROC_NOTE = (
    "Where the texts alone tell members from non-members, a method's AUROC may measure dates and "
    "style, not memory. The matched AUROC is what it adds to what the texts alone tell."
)
LEFTOVER_STYLE_NOTE = (
    "Matching does not remove all style, so that a matched AUROC above 0.5 is no evidence of "
    "memory. The matched AUROC of a score of style alone is"
)
CLUSTER_NOTE = "Texts of one cluster are not independent: intervals resample whole clusters."
BLIND_MATCHED_NOTE = (
    "The row `blind` is a score of style alone, learnt from one half of the texts and matched on "
    "the other half: 0.5 if matching removes all style."
)


@dataclass(frozen=True)
class MetricTable:
    """One metric of all methods, models and parts."""

    title: str
    header: list[str]
    lines: list[list[str]]
    notes: list[str]

    def text(self) -> str:
        """The table for a terminal, with the columns that fit."""
        return "\n".join([self.title, *fit_columns(self.header, self.lines).lines(), *self.notes])

    def markdown(self) -> str:
        """The table in Markdown."""
        table = markdown_table(self.header, self.lines)
        notes = map(escape_markdown, self.notes)
        return "\n\n".join([f"### {escape_markdown(self.title)}", table, *notes])


def render_benchmark_report(
    config: ExamplesConfig, examples: Texts, models: Mapping[str, Tables], out: Path | None
) -> str:
    """Returns the tables of several models' scores below notes on unusual scores and texts.

    Args:
        config: the configuration of the benchmark.
        examples: the texts.
        models: by the model's path, a function that reads its scores in parts.
        out: a folder for `benchmark.md` and the numbers in `results.json`, or None.
    """
    groups, notes = {}, []
    baseline = cached_blind_baseline()
    for path, tables in models.items():
        texts = ranked_texts(examples, next(iter(tables())))
        groups[path] = estimate_parts(partial(_iter_ranked_scores, tables), texts, config, baseline)
        flag_counts = merge_flag_counts(map(count_flags, tables()))
        notes += [f"{path}: {note}" for note in describe_flags(flag_counts)]
    first = next(iter(groups.values()))
    notes += [
        describe_sizes(first, config),
        *duplicate_notes_by_part(examples, partial(column_label, config=config)),
    ]
    notes += blind_notes(first, config)
    tables_by_metric = make_metric_tables(groups, config)
    if out is not None:
        title = f"{config.name}: {', '.join(models)}"
        sections = [
            f"# {escape_markdown(title)}",
            *map(escape_markdown, notes),
            *(t.markdown() for t in tables_by_metric),
        ]
        with atomic_output_file(out / FILE) as temporary:
            temporary.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
        tidied = [
            tidy_estimates(part_groups).assign(model=path) for path, part_groups in groups.items()
        ]
        write_results_json(out / "results.json", pd.concat(tidied), notes)
    return "\n\n".join([*map(wrap_text, notes), *(table.text() for table in tables_by_metric)])


def _iter_ranked_scores(tables: Tables) -> Iterator[tuple[MethodKey, pd.DataFrame]]:
    return group_by_method(tables())


def estimate_parts(
    read_scores: ReadScores,
    examples: Texts,
    config: ExamplesConfig,
    baseline: BlindBaselineFunction = blind_baseline,
) -> list[BenchmarkEstimates]:
    """Returns the estimates of each part in the benchmark's order, and their average if several.

    Args:
        read_scores: see `estimate_benchmarks_and_all`.
        examples: the ranked texts.
        config: the configuration of the benchmark.
        baseline: computes the blind baseline.
    """
    indices: dict[str, list[int]] = {}
    for index, name in enumerate(examples.column("benchmark").to_pylist()):
        indices.setdefault(name, []).append(index)
    texts_by_part = {
        name: examples.take(np.array(part_indices)) for name, part_indices in indices.items()
    }
    groups = [
        estimate_group(n, read_scores(), part_texts, True, METRICS, True, baseline)
        for n, part_texts in texts_by_part.items()
    ]
    return [*groups, average_over_parts(groups, config)] if len(groups) > 1 else groups


def make_metric_tables(
    models: Mapping[str, Sequence[BenchmarkEstimates]], config: ExamplesConfig
) -> list[MetricTable]:
    """Returns one table per metric; below each method are the papers' values for the model."""
    return [_metric_table(models, config, metric) for metric in REPORTED_METRICS]


def describe_sizes(groups: Sequence[BenchmarkEstimates], config: ExamplesConfig) -> str:
    """Returns a note with the numbers of members and non-members of each part."""
    parts = [part for part in groups if part.name != AVERAGE]
    sizes = (
        f"{column_label(part.name, config)} {part.members} + {part.nonmembers}{part.clusters_text}"
        for part in parts
    )
    note = f"Members + non-members: {', '.join(sizes)}."
    return f"{note} {CLUSTER_NOTE}" if any(part.clusters for part in parts) else note


def blind_notes(groups: Sequence[BenchmarkEstimates], config: ExamplesConfig) -> list[str]:
    """Returns notes on parts whose texts alone distinguish members, before or after matching."""
    parts = [part for part in groups if part.name != AVERAGE]
    notes = [
        f"{column_label(part.name, config)}: {note}"
        for part in parts
        if (BLIND, "") not in part.estimates
        for note in part.notes
    ]
    if off_chance := _list_parts_off_chance(parts, config, AUROC, below=True):
        notes.append(f"Blind AUROC off 0.5: {off_chance}. {BLIND_AUROC_NOTE}")
    if off_chance := _list_parts_off_chance(parts, config, MATCHED, below=False):
        notes.append(f"{LEFTOVER_STYLE_NOTE} {off_chance}.")
    return notes


def _list_parts_off_chance(
    parts: Sequence[BenchmarkEstimates], config: ExamplesConfig, metric: Metric, *, below: bool
) -> str:
    """Lists the parts whose blind metric is above 0.5, or also below if `below`, with intervals.

    Any of the parts is listed by chance in 5% of the cases (Bonferroni).
    """
    rows = {part.name: part.estimates.get((BLIND, ""), {}).get(metric.name) for part in parts}
    measured = {
        name: estimate for name, estimate in rows.items() if estimate and not estimate.needs
    }
    descriptions = []
    for name, estimate in measured.items():
        low, high = confidence_interval(estimate, 1 - (1 - CONFIDENCE) / len(measured))
        if low > 0.5 or (below and high < 0.5):
            low, high = confidence_interval(estimate, CONFIDENCE)
            descriptions.append(
                f"{column_label(name, config)} {estimate.value:.2f} [{low:.2f}, {high:.2f}]"
            )
    return "; ".join(descriptions)


def column_label(part_name: str, config: ExamplesConfig) -> str:
    """Returns a part's column label: "32 original" for `wikimia/32/original`."""
    return part_name.removeprefix(f"{config.name}/").replace("/", " ")


def _metric_table(
    models: Mapping[str, Sequence[BenchmarkEstimates]], config: ExamplesConfig, metric: Metric
) -> MetricTable:
    lines: list[list[str]] = []
    parts_by_need: dict[str, list[str]] = {}
    columns = [part.name for part in next(iter(models.values()))]
    for model, groups in models.items():
        for method in dict.fromkeys(method for part in groups for method in part.estimates):
            cells = [part.estimates.get(method, {}).get(metric.name) for part in groups]
            if any(cells):
                lines.append([model, *method, *map(_format_cell, cells)])
            for name, estimate in zip(columns, cells, strict=True):
                if estimate is not None and estimate.needs and name != AVERAGE:
                    parts_by_need.setdefault(estimate.needs, []).append(column_label(name, config))
            rows = _published_rows(
                config, model_name_in_papers(model), method, metric.name, columns
            )
            lines += [line for row in rows if (line := [model, *row]) not in lines]
    notes = [
        f"{NO_VALUE} needs {needs}: {', '.join(dict.fromkeys(parts))}."
        for needs, parts in parts_by_need.items()
    ]
    if metric == MATCHED and any(BLIND in line for line in lines):
        notes.append(BLIND_MATCHED_NOTE)
    header = ["model", "method", "variant", *(column_label(name, config) for name in columns)]
    if len(models) == 1:
        header, lines = header[1:], [line[1:] for line in lines]
    title = f"{config.name}: {metric.title} (95% intervals)"
    return MetricTable(title, header, lines, notes)


def _format_cell(estimate: Estimate | None) -> str:
    return NO_VALUE if estimate is None or estimate.needs else format_estimate(estimate)


def _published_rows(
    config: ExamplesConfig, model: str, method: MethodKey, metric: str, columns: Sequence[str]
) -> list[list[str]]:
    """Returns the papers' values for this model and method, one row per source."""
    if config.papers is None or method == (BLIND, ""):
        return []
    published = read_published_figures(config.papers)
    published = published[
        (published["model"] == model)
        & (published["method"] == method[0])
        & (published["metric"] == metric)
    ]
    rows = []
    for source, source_rows in published.groupby("source", sort=False):
        value_by_column = {
            f"{row.length} {row.setting}": f"{row.value:.3f}" for row in source_rows.itertuples()
        }
        cells = [value_by_column.get(column_label(name, config), NO_VALUE) for name in columns]
        rows.append([f"  {method[0]}", str(source), *cells])
    return rows


@cache
def read_published_figures(file: str) -> pd.DataFrame:
    """Reads the papers' values: source, model, method, length, setting, metric, value."""
    return pd.read_csv(PAPERS_FOLDER / file, dtype={"length": str})


def model_name_in_papers(path: str) -> str:
    """Returns a model's name in the papers: `llama-7b` for huggyllama/llama-7b or a folder."""
    return path.rstrip("/").rpartition("/")[2].lower()


def average_over_parts(
    groups: Sequence[BenchmarkEstimates], config: ExamplesConfig
) -> BenchmarkEstimates:
    """Returns the mean over the parts for each method that all parts have."""
    members, nonmembers = sum(g.members for g in groups), sum(g.nonmembers for g in groups)
    estimates = {
        method: {
            metric.name: _mean_over_parts(
                {g.name: g.estimates[method][metric.name] for g in groups}, config
            )
            for metric in REPORTED_METRICS
            if all(metric.name in g.estimates[method] for g in groups)
        }
        for method in groups[0].estimates
        if all(method in g.estimates for g in groups)
    }
    return BenchmarkEstimates(AVERAGE, members, nonmembers, estimates)


def _mean_over_parts(parts: Mapping[str, Estimate], config: ExamplesConfig) -> Estimate:
    """Returns the mean over parts. Parts about the same texts are taken as fully correlated.

    This is conservative: whatever the correlation, the standard deviation of a mean is at most the
    mean of the standard deviations. Other parts are independent.
    """
    estimates_by_texts: dict[tuple[str, ...], list[Estimate]] = {}
    for name, estimate in parts.items():
        estimates_by_texts.setdefault(_same_texts_key(name, config), []).append(estimate)
    rng = np.random.default_rng(0)
    groups = list(estimates_by_texts.values())
    sums = [len(group) * _draws_of_correlated_mean(group, rng) for group in groups]
    trials = [_trials_of_mean(group) for group in groups]
    weights = [len(group) for group in groups]
    return replace(
        mean_over_benchmarks(parts),
        draws=np.sum(sums, axis=0) / len(parts),
        trials=mean_trials(trials, weights),
    )


def _same_texts_key(part_name: str, config: ExamplesConfig) -> tuple[str, ...]:
    benchmark_name, *axis_values = part_name.split("/")
    axes = list(chosen_values_by_axis(config))
    if len(axes) != len(axis_values):  # the rows name their parts
        return (benchmark_name,) if config.same_texts else (part_name,)
    pairs = zip(axes, axis_values, strict=True)
    return (benchmark_name, *(value for axis, value in pairs if axis not in config.same_texts))


def _draws_of_correlated_mean(parts: Sequence[Estimate], rng: np.random.Generator) -> Scores:
    """Returns draws of the mean of fully correlated parts, in a random order."""
    draws: Scores = np.mean([np.sort(part.draws) for part in parts], axis=0)
    rng.shuffle(draws)
    return draws


def _trials_of_mean(parts: Sequence[Estimate]) -> float | None:
    """Returns the trials of such a mean, which is as certain as the parts are on average."""
    trials = [part.trials for part in parts if part.trials is not None]
    return float(np.mean(np.power(trials, -0.5)) ** -2) if len(trials) == len(parts) else None

"""How methods do on a labelled benchmark, in the papers' layout: method × part, and the average."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from contamination.core.report.tables import markdown_table
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import Estimate, interval, mean_over, mean_trials
from contamination.core.statistics.metrics import AUROC, Metric, tpr_at_fpr
from contamination.core.terminal import fit, wrapped
from contamination.core.user_files import output_file
from contamination.data.benchmark_parts import chosen
from contamination.data.config import ExamplesConfig
from contamination.data.near_duplicates import part_notes
from contamination.data.texts import Texts
from contamination.detection.baselines.blind import BLIND, Baseline, blind_baseline, once
from contamination.detection.baselines.matching import MATCHED
from contamination.detection.evaluation import (
    CONFIDENCE,
    BenchmarkEstimates,
    Key,
    ReadScores,
    by_method,
    estimate_group,
    ranked_texts,
    tidy_table,
)
from contamination.detection.flags import counted, merge_flag_counts, said
from contamination.detection.summary import figure, write_rows

PAPERS = Path(__file__).resolve().parents[1] / "data" / "papers"
METRICS = (AUROC, tpr_at_fpr(0.05))
SHOWN = (AUROC, MATCHED, METRICS[1])
AVERAGE = "average"
FILE = "benchmark.md"
NOTHING = "–"
Tables = Callable[[], Iterable[pd.DataFrame]]
MEANS = (
    "Where the texts alone tell members from non-members, a method's AUROC may measure dates and "
    "style, not memory. The matched AUROC is what it adds to what the texts alone tell."
)
LEFT = (
    "Matching does not take all style away, so that a matched AUROC above 0.5 is no evidence of "
    "memory: a score that is style alone keeps"
)
WHOLE = "Texts of one cluster are not independent: intervals draw whole clusters."
BLIND_MATCHED = (
    "The row `blind` is a score of style alone, learnt from one half of the texts and matched on "
    "the other: 0.5 where matching takes all style away."
)


@dataclass(frozen=True)
class MetricTable:
    """One metric of all methods, models and parts."""

    title: str
    header: list[str]
    lines: list[list[str]]
    notes: list[str]

    def text(self) -> str:
        """For a terminal, with the columns that fit."""
        return "\n".join([self.title, *fit(self.header, self.lines).lines(), *self.notes])

    def markdown(self) -> str:
        """For a file."""
        table = markdown_table(self.header, self.lines)
        return "\n\n".join([f"### {self.title}", table, *self.notes])


def benchmark_report(
    config: ExamplesConfig, examples: Texts, models: Mapping[str, Tables], out: Path | None
) -> str:
    """The tables of some models' scores, below what is out of the ordinary about them.

    Args:
        config: what the examples were read by.
        examples: the texts.
        models: what reads a model's scores in parts, by the model's path.
        out: a folder that gets `benchmark.md`, and the numbers as `results.json`; None: nothing.
    """
    groups, notes = {}, []
    baseline = once()
    for path, tables in models.items():
        texts = ranked_texts(examples, next(iter(tables())))
        groups[path] = evaluated_parts(partial(_ranked, tables), texts, config, baseline)
        flag_counts = merge_flag_counts(map(counted, tables()))
        notes += [f"{path}: {note}" for note in said(flag_counts)]
    first = next(iter(groups.values()))
    notes += [sizes(first, config), *part_notes(examples, partial(column_label, config=config))]
    notes += blind_notes(first, config)
    metric_tables = benchmark_tables(groups, config)
    if out is not None:
        parts = [
            f"# {config.name}: {', '.join(models)}",
            *notes,
            *(t.markdown() for t in metric_tables),
        ]
        with output_file(out / FILE) as part:
            part.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
        tidied = [
            tidy_table(part_groups).assign(model=path) for path, part_groups in groups.items()
        ]
        write_rows(out / "results.json", pd.concat(tidied), notes)
    return "\n\n".join([*map(wrapped, notes), *(table.text() for table in metric_tables)])


def _ranked(tables: Tables) -> Iterator[tuple[Key, pd.DataFrame]]:
    return by_method(tables())


def evaluated_parts(
    read: ReadScores, examples: Texts, config: ExamplesConfig, baseline: Baseline = blind_baseline
) -> list[BenchmarkEstimates]:
    """Each part's estimates, in the benchmark's order, and their average where there are several.

    Args:
        read: as `evaluated` takes it.
        examples: the ranked texts.
        config: what they were read by.
        baseline: makes the blind baseline.
    """
    indices: dict[str, list[int]] = {}
    for index, name in enumerate(examples.column("benchmark").to_pylist()):
        indices.setdefault(name, []).append(index)
    texts_by_part = {
        name: examples.take(np.array(part_indices)) for name, part_indices in indices.items()
    }
    groups = [
        estimate_group(n, read(), part_texts, True, METRICS, True, baseline)
        for n, part_texts in texts_by_part.items()
    ]
    return [*groups, average_of(groups, config)] if len(groups) > 1 else groups


def benchmark_tables(
    models: Mapping[str, Sequence[BenchmarkEstimates]], config: ExamplesConfig
) -> list[MetricTable]:
    """A table a metric; a method's row stands above the papers' figures of the same model."""
    return [_table(models, config, index) for index in range(len(SHOWN))]


def sizes(groups: Sequence[BenchmarkEstimates], config: ExamplesConfig) -> str:
    """How many members and non-members each part has."""
    parts = [part for part in groups if part.name != AVERAGE]
    words = (
        f"{column_label(part.name, config)} {part.members} + {part.nonmembers}{part.of_clusters}"
        for part in parts
    )
    note = f"Members + non-members: {', '.join(words)}."
    return f"{note} {WHOLE}" if any(part.clusters for part in parts) else note


def blind_notes(groups: Sequence[BenchmarkEstimates], config: ExamplesConfig) -> list[str]:
    """Where the texts alone tell members from non-members, before or after matching."""
    parts = [part for part in groups if part.name != AVERAGE]
    without = [part for part in parts if (BLIND, "") not in part.estimates]
    notes = [
        f"{column_label(part.name, config)}: {note}" for part in without for note in part.notes
    ]
    if off_chance := _off(parts, config, AUROC, below=True):
        notes.append(f"Blind AUROC off 0.5: {off_chance}. {MEANS}")
    if left_after_matching := _off(parts, config, MATCHED, below=False):
        notes.append(f"{LEFT} {left_after_matching}.")
    return notes


def _off(
    parts: Sequence[BenchmarkEstimates], config: ExamplesConfig, metric: Metric, *, below: bool
) -> str:
    """The parts whose blind row has the metric above 0.5 (or below it, too), with its interval.

    One of several parts is named by chance in 5% of the cases, not each of them (Bonferroni).
    """
    rows = {part.name: part.estimates.get((BLIND, ""), {}).get(metric.name) for part in parts}
    measured = {
        name: estimate for name, estimate in rows.items() if estimate and not estimate.needs
    }
    descriptions = []
    for name, estimate in measured.items():
        low, high = interval(estimate, 1 - (1 - CONFIDENCE) / len(measured))
        if low > 0.5 or (below and high < 0.5):
            low, high = interval(estimate, CONFIDENCE)
            descriptions.append(
                f"{column_label(name, config)} {estimate.value:.2f} [{low:.2f}, {high:.2f}]"
            )
    return "; ".join(descriptions)


def column_label(name: str, config: ExamplesConfig) -> str:
    """A part as a column calls it: "32 original" of `wikimia/32/original`."""
    return name.removeprefix(f"{config.name}/").replace("/", " ")


def _table(
    models: Mapping[str, Sequence[BenchmarkEstimates]], config: ExamplesConfig, index: int
) -> MetricTable:
    metric, lines = SHOWN[index], []
    lacks: dict[str, list[str]] = {}
    columns = [part.name for part in next(iter(models.values()))]
    for model, groups in models.items():
        for method in dict.fromkeys(method for part in groups for method in part.estimates):
            cells = [part.estimates.get(method, {}).get(metric.name) for part in groups]
            if any(cells):
                lines.append([model, *method, *map(_cell, cells)])
            for name, estimate in zip(columns, cells, strict=True):
                if estimate is not None and estimate.needs and name != AVERAGE:
                    lacks.setdefault(estimate.needs, []).append(column_label(name, config))
            published_rows = _printed(config, paper_name(model), method, metric.name, columns)
            lines += [row for own in published_rows if (row := [model, *own]) not in lines]
    notes = [f"{NOTHING} needs {n}: {', '.join(dict.fromkeys(at))}." for n, at in lacks.items()]
    if metric == MATCHED and any(BLIND in line for line in lines):
        notes.append(BLIND_MATCHED)
    header = ["model", "method", "variant", *(column_label(name, config) for name in columns)]
    if len(models) == 1:
        header, lines = header[1:], [line[1:] for line in lines]
    title = f"{config.name}: {metric.title} (95% intervals)"
    return MetricTable(title, header, lines, notes)


def _cell(estimate: Estimate | None) -> str:
    return NOTHING if estimate is None or estimate.needs else figure(estimate)


def _printed(
    config: ExamplesConfig, model: str, method: Key, metric: str, columns: Sequence[str]
) -> list[list[str]]:
    """The papers' own figures of this model and method: a row a source."""
    if config.papers is None or method == (BLIND, ""):
        return []
    published = published_figures(config.papers)
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
        cells = [value_by_column.get(column_label(name, config), NOTHING) for name in columns]
        rows.append([f"  {method[0]}", str(source), *cells])
    return rows


@cache
def published_figures(file: str) -> pd.DataFrame:
    """A file of the papers' figures: source, model, method, length, setting, metric, value."""
    return pd.read_csv(PAPERS / file, dtype={"length": str})


def paper_name(path: str) -> str:
    """A model as the papers call it: `llama-7b` of huggyllama/llama-7b or of a folder."""
    return path.rstrip("/").rpartition("/")[2].lower()


def average_of(groups: Sequence[BenchmarkEstimates], config: ExamplesConfig) -> BenchmarkEstimates:
    """The mean over the parts, of each method that all have."""
    members, nonmembers = sum(g.members for g in groups), sum(g.nonmembers for g in groups)
    estimates = {
        method: {
            metric.name: _mean({g.name: g.estimates[method][metric.name] for g in groups}, config)
            for metric in SHOWN
            if all(metric.name in g.estimates[method] for g in groups)
        }
        for method in groups[0].estimates
        if all(method in g.estimates for g in groups)
    }
    return BenchmarkEstimates(AVERAGE, members, nonmembers, estimates)


def _mean(parts: Mapping[str, Estimate], config: ExamplesConfig) -> Estimate:
    """The mean over parts. Those about the same texts are taken to move together.

    No correlation makes a mean less certain than that: its standard deviation is at most the mean
    of theirs. Other parts vary on their own.
    """
    estimates_by_texts: dict[tuple[str, ...], list[Estimate]] = {}
    for name, estimate in parts.items():
        estimates_by_texts.setdefault(_apart(name, config), []).append(estimate)
    rng = np.random.default_rng(0)
    sums = [len(estimates) * _moving(estimates, rng) for estimates in estimates_by_texts.values()]
    trials = [_trials(estimates) for estimates in estimates_by_texts.values()]
    weights = [len(estimates) for estimates in estimates_by_texts.values()]
    return replace(
        mean_over(parts),
        draws=np.sum(sums, axis=0) / len(parts),
        trials=mean_trials(trials, weights),
    )


def _apart(name: str, config: ExamplesConfig) -> tuple[str, ...]:
    """What parts about the same texts have in common."""
    first, *values = name.split("/")
    axes = list(chosen(config))
    if len(axes) != len(values):  # rows name their parts themselves
        return (first,) if config.same_texts else (name,)
    pairs = zip(axes, values, strict=True)
    return (first, *(value for axis, value in pairs if axis not in config.same_texts))


def _moving(parts: Sequence[Estimate], rng: np.random.Generator) -> Scores:
    """The draws of a mean whose parts move together, in a random order."""
    draws: Scores = np.mean([np.sort(part.draws) for part in parts], axis=0)
    rng.shuffle(draws)
    return draws


def _trials(parts: Sequence[Estimate]) -> float | None:
    """The most trials of such a mean: as certain as the parts are on average."""
    trials = [part.trials for part in parts if part.trials is not None]
    return float(np.mean(np.power(trials, -0.5)) ** -2) if len(trials) == len(parts) else None

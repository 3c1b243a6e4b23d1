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
    Group,
    Key,
    Read,
    by_method,
    group,
    ranked_texts,
    tidy,
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
class Table:
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
    notes += [sizes(first, config), *part_notes(examples, partial(label, config=config))]
    notes += blind_notes(first, config)
    found = benchmark_tables(groups, config)
    if out is not None:
        parts = [f"# {config.name}: {', '.join(models)}", *notes, *(t.markdown() for t in found)]
        with output_file(out / FILE) as part:
            part.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
        tidied = [tidy(own).assign(model=path) for path, own in groups.items()]
        write_rows(out / "results.json", pd.concat(tidied), notes)
    return "\n\n".join([*map(wrapped, notes), *(table.text() for table in found)])


def _ranked(tables: Tables) -> Iterator[tuple[Key, pd.DataFrame]]:
    return by_method(tables())


def evaluated_parts(
    read: Read, examples: Texts, config: ExamplesConfig, baseline: Baseline = blind_baseline
) -> list[Group]:
    """Each part's estimates, in the benchmark's order, and their average where there are several.

    Args:
        read: as `evaluated` takes it.
        examples: the ranked texts.
        config: what they were read by.
        baseline: makes the blind baseline.
    """
    rows: dict[str, list[int]] = {}
    for place, name in enumerate(examples.column("benchmark").to_pylist()):
        rows.setdefault(name, []).append(place)
    parts = {name: examples.take(np.array(places)) for name, places in rows.items()}
    groups = [group(n, read(), own, True, METRICS, True, baseline) for n, own in parts.items()]
    return [*groups, average_of(groups, config)] if len(groups) > 1 else groups


def benchmark_tables(models: Mapping[str, Sequence[Group]], config: ExamplesConfig) -> list[Table]:
    """A table a metric; a method's row stands above the papers' figures of the same model."""
    return [_table(models, config, place) for place in range(len(SHOWN))]


def sizes(groups: Sequence[Group], config: ExamplesConfig) -> str:
    """How many members and non-members each part has."""
    parts = [one for one in groups if one.name != AVERAGE]
    words = (
        f"{label(one.name, config)} {one.members} + {one.nonmembers}{one.of_clusters}"
        for one in parts
    )
    note = f"Members + non-members: {', '.join(words)}."
    return f"{note} {WHOLE}" if any(one.clusters for one in parts) else note


def blind_notes(groups: Sequence[Group], config: ExamplesConfig) -> list[str]:
    """Where the texts alone tell members from non-members, before or after matching."""
    parts = [one for one in groups if one.name != AVERAGE]
    without = [one for one in parts if (BLIND, "") not in one.found]
    notes = [f"{label(one.name, config)}: {note}" for one in without for note in one.notes]
    if off := _off(parts, config, AUROC, below=True):
        notes.append(f"Blind AUROC off 0.5: {off}. {MEANS}")
    if left := _off(parts, config, MATCHED, below=False):
        notes.append(f"{LEFT} {left}.")
    return notes


def _off(parts: Sequence[Group], config: ExamplesConfig, metric: Metric, *, below: bool) -> str:
    """The parts whose blind row has the metric above 0.5 (or below it, too), with its interval.

    One of several parts is named by chance in 5% of the cases, not each of them (Bonferroni).
    """
    rows = {one.name: one.found.get((BLIND, ""), {}).get(metric.name) for one in parts}
    measured = {name: own for name, own in rows.items() if own and not own.needs}
    found = []
    for name, own in measured.items():
        low, high = interval(own, 1 - (1 - CONFIDENCE) / len(measured))
        if low > 0.5 or (below and high < 0.5):
            low, high = interval(own, CONFIDENCE)
            found.append(f"{label(name, config)} {own.value:.2f} [{low:.2f}, {high:.2f}]")
    return "; ".join(found)


def label(name: str, config: ExamplesConfig) -> str:
    """A part as a column calls it: "32 original" of `wikimia/32/original`."""
    return name.removeprefix(f"{config.name}/").replace("/", " ")


def _table(models: Mapping[str, Sequence[Group]], config: ExamplesConfig, place: int) -> Table:
    metric, lines = SHOWN[place], []
    lacks: dict[str, list[str]] = {}
    columns = [one.name for one in next(iter(models.values()))]
    for model, groups in models.items():
        for method in dict.fromkeys(method for one in groups for method in one.found):
            cells = [one.found.get(method, {}).get(metric.name) for one in groups]
            if any(cells):
                lines.append([model, *method, *map(_cell, cells)])
            for name, found in zip(columns, cells, strict=True):
                if found is not None and found.needs and name != AVERAGE:
                    lacks.setdefault(found.needs, []).append(label(name, config))
            printed = _printed(config, named(model), method, metric.name, columns)
            lines += [row for own in printed if (row := [model, *own]) not in lines]
    notes = [f"{NOTHING} needs {n}: {', '.join(dict.fromkeys(at))}." for n, at in lacks.items()]
    if metric == MATCHED and any(BLIND in line for line in lines):
        notes.append(BLIND_MATCHED)
    header = ["model", "method", "variant", *(label(name, config) for name in columns)]
    if len(models) == 1:
        header, lines = header[1:], [line[1:] for line in lines]
    title = f"{config.name}: {metric.title} (95% intervals)"
    return Table(title, header, lines, notes)


def _cell(found: Estimate | None) -> str:
    return NOTHING if found is None or found.needs else figure(found)


def _printed(
    config: ExamplesConfig, model: str, method: Key, metric: str, columns: Sequence[str]
) -> list[list[str]]:
    """The papers' own figures of this model and method: a row a source."""
    if config.papers is None or method == (BLIND, ""):
        return []
    own = figures(config.papers)
    own = own[(own["model"] == model) & (own["method"] == method[0]) & (own["metric"] == metric)]
    rows = []
    for source, some in own.groupby("source", sort=False):
        known = {f"{row.length} {row.setting}": f"{row.value:.3f}" for row in some.itertuples()}
        cells = [known.get(label(name, config), NOTHING) for name in columns]
        rows.append([f"  {method[0]}", str(source), *cells])
    return rows


@cache
def figures(file: str) -> pd.DataFrame:
    """A file of the papers' figures: source, model, method, length, setting, metric, value."""
    return pd.read_csv(PAPERS / file, dtype={"length": str})


def named(path: str) -> str:
    """A model as the papers call it: `llama-7b` of huggyllama/llama-7b or of a folder."""
    return path.rstrip("/").rpartition("/")[2].lower()


def average_of(groups: Sequence[Group], config: ExamplesConfig) -> Group:
    """The mean over the parts, of each method that all have."""
    members, nonmembers = sum(g.members for g in groups), sum(g.nonmembers for g in groups)
    found = {
        method: {
            metric.name: _mean({g.name: g.found[method][metric.name] for g in groups}, config)
            for metric in SHOWN
            if all(metric.name in g.found[method] for g in groups)
        }
        for method in groups[0].found
        if all(method in g.found for g in groups)
    }
    return Group(AVERAGE, members, nonmembers, found)


def _mean(parts: Mapping[str, Estimate], config: ExamplesConfig) -> Estimate:
    """The mean over parts. Those about the same texts are taken to move together.

    No correlation makes a mean less certain than that: its standard deviation is at most the mean
    of theirs. Other parts vary on their own.
    """
    alike: dict[tuple[str, ...], list[Estimate]] = {}
    for name, found in parts.items():
        alike.setdefault(_apart(name, config), []).append(found)
    rng = np.random.default_rng(0)
    sums = [len(some) * _moving(some, rng) for some in alike.values()]
    trials = [_trials(some) for some in alike.values()]
    weights = [len(some) for some in alike.values()]
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
    both = zip(axes, values, strict=True)
    return (first, *(value for axis, value in both if axis not in config.same_texts))


def _moving(parts: Sequence[Estimate], rng: np.random.Generator) -> Scores:
    """The draws of a mean whose parts move together, in a random order."""
    found: Scores = np.mean([np.sort(part.draws) for part in parts], axis=0)
    rng.shuffle(found)
    return found


def _trials(parts: Sequence[Estimate]) -> float | None:
    """The most trials of such a mean: as certain as the parts are on average."""
    trials = [part.trials for part in parts if part.trials is not None]
    return float(np.mean(np.power(trials, -0.5)) ** -2) if len(trials) == len(parts) else None

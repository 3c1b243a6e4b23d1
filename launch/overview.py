"""What a launch will do, before it does it: for one cell, and for a sweep.

A sweep's overview has what all cells share once, a table of what differs, totals in which shared
runs count once, and each distinct error once.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from omegaconf import DictConfig

from contamination.core.config import convert_config
from contamination.core.errors import UserError
from contamination.core.sweep_cells import compose_cell
from contamination.core.terminal import fit_columns, format_duration
from contamination.launch import downloads, forecast
from contamination.launch.cells import Launch
from contamination.launch.config import LaunchSettings
from contamination.launch.forecast import RunForecast
from contamination.launch.pipeline import make_checked_cell_plan
from contamination.launch.plan import CellPlan, run_names_by_stage
from contamination.launch.shared_runs import Key, key_by_run
from contamination.launch.stage_runner import Stages
from contamination.launch.text_checks import CheckedTexts, TextChecks

LEAST = ("steps", "GPU hours", "GB per device", "tokens scored", "tokens trained")
"""Columns of a sweep's table in the order in which a narrow terminal leaves them out."""


@dataclass
class CellOverview:
    """One cell before it runs."""

    overrides: list[str]
    plan: CellPlan | None = None
    stages: Stages | None = None
    checks: TextChecks | None = None
    texts: CheckedTexts | None = None
    error: UserError | None = None
    """Why the cell would fail."""
    forecasts: list[RunForecast] = field(default_factory=list)
    keys: Mapping[str, Key] = field(default_factory=dict)

    def facts(self) -> dict[str, str]:
        """Returns what is printed about the cell, by a name: one or several lines each."""
        if self.plan is None or self.stages is None:
            return {}
        facts = {"base": describe_base_model(self.plan)}
        if self.texts and self.checks:
            parts = {part.title: self.checks.describe_part(part) for part in self.texts.parts}
            facts |= parts | {line.partition(":")[0]: line for line in self.texts.adapted}
            facts["insertions"] = f"insertions: {self.texts.insertions.text}"
        facts["training"] = forecast.describe_training(self.plan)
        listed = downloads.describe_downloads(downloads.list_downloads(self.plan))
        return facts | {"downloads": "\n".join(listed)}


def survey_cell(
    config: DictConfig, overrides: Sequence[str], launch: Launch, checks: TextChecks
) -> CellOverview:
    """Returns what is known about a cell before it runs, with the error that it would end with."""
    cell = CellOverview(list(overrides), checks=checks)
    try:
        settings = convert_config(config, LaunchSettings)
        code = launch.folder / "code-…"
        stages = Stages(settings.cluster, launch.cell(overrides).folder, code)
        cell.stages = stages
        cell.plan = make_checked_cell_plan(config, settings, stages, read_benchmarks=False)
        cell.forecasts = forecast.forecast_runs(cell.plan, stages)
        cell.keys = key_by_run(cell.plan, stages)
        cell.texts = checks.check(cell.plan)
        cell.error = cell.texts.error
    except UserError as error:
        cell.error = error
    return cell


def survey_sweep(config: DictConfig, cells: Sequence[Sequence[str]]) -> list[CellOverview]:
    """Returns what is known about each cell of a sweep.

    Args:
        config: the sweep's configuration, with Hydra's node.
        cells: the overrides of each cell.

    Raises:
        HydraException: a cell's configuration can't be composed.
    """
    launch = Launch.of_command(config.runs, config.name, list(config.hydra.overrides.task))
    overviews = []
    with TemporaryDirectory() as folder:
        checks = TextChecks(Path(folder))
        for overrides in cells:
            cell = compose_cell(config, overrides)
            overviews.append(survey_cell(cell, overrides, launch, checks))
    return overviews


def describe_cell(cell: CellOverview) -> str:
    """Returns what a dry run of one cell prints.

    Raises:
        UserError: the cell's own error.
    """
    if cell.error is not None:
        raise cell.error
    assert cell.plan is not None
    assert cell.stages is not None
    facts = cell.facts()
    listed = facts.pop("downloads")
    lines = [" ".join(cell.overrides), *facts.values()]
    lines += forecast.describe_forecasts(cell.plan, cell.stages, cell.forecasts)
    return "\n".join([*lines, listed, *_describe_processes(cell)])


def describe_sweep(cells: Sequence[CellOverview]) -> str:
    """Returns an overview of all cells, without their errors (`group_errors`)."""
    common = [word for word in cells[0].overrides if all(word in c.overrides for c in cells)]
    common = [word for word in common if not word.startswith("launch.")]
    lines = [f"{len(cells)} cell{'s' * (len(cells) > 1)}: {' '.join(common)}".removesuffix(": ")]
    planned = [cell for cell in cells if cell.plan]
    if not planned:
        return lines[0]
    lines += _describe_facts(cells)
    first = planned[0]
    assert first.plan is not None
    assert first.stages is not None
    several = len(planned) > 1
    shared = [run for run in first.forecasts if several and _is_shared(run, first, planned)]
    if shared:
        title, *table = forecast.describe_forecasts(first.plan, first.stages, shared)
        lines += [f"made once, for all cells; {title}", *table]
    else:
        lines.append(forecast.describe_basis(first.plan))
    lines += _describe_table(cells, shared)
    return "\n".join([*lines, *_describe_processes(first)])


def group_errors(cells: Sequence[CellOverview]) -> list[str]:
    """Returns each distinct error once, with the cells that it concerns."""
    return _group([[str(cell.error)] if cell.error else [] for cell in cells])


def group_warnings(cells: Sequence[CellOverview]) -> list[str]:
    """Returns each distinct warning once, with the cells that it concerns."""
    return _group([cell.texts.warnings if cell.texts else [] for cell in cells])


def _group(texts_by_cell: Sequence[Sequence[str]]) -> list[str]:
    """Returns each distinct text once; for a sweep, with the numbers of its cells."""
    numbers_by_text: dict[str, list[int]] = {}
    for number, texts in enumerate(texts_by_cell, 1):
        for text in texts:
            numbers_by_text.setdefault(text, []).append(number)
    n_cells = len(texts_by_cell)
    return [
        f"{text} ({describe_cells(numbers, n_cells)})" if n_cells > 1 else text
        for text, numbers in numbers_by_text.items()
    ]


def describe_base_model(plan: CellPlan) -> str:
    """Returns a line about the model that the contaminated training starts from."""
    model, corpus_name = plan.training.model, plan.injection.corpus.get("name", "corpus")
    if plan.pretraining is None:
        tokenizer = plan.injection.tokenizer.path
        own = f"tokenizer.path={tokenizer}" if tokenizer else "its own tokenizer"
        return (
            f"base model: model.path={model.path}, with {own}; corpus {corpus_name} is trained "
            "on it"
        )
    pretraining, base_corpus_name = plan.pretraining, plan.base_corpus.get("name", "corpus")
    line = (
        f"base model: {model.name}, from random weights, trained on {pretraining.budget_tokens:,} "
        f"tokens of base_corpus {base_corpus_name}, which also makes its tokenizer "
        f"({pretraining.vocab_size:,} entries)"
    )
    if plan.base_corpus == plan.injection.corpus:
        return line
    return (
        f"{line}; corpus {corpus_name} comes after it (for another start: model.path=…, or "
        "corpus@base_corpus=local_jsonl base_corpus.paths=…)"
    )


def _is_shared(run: RunForecast, first: CellOverview, planned: Sequence[CellOverview]) -> bool:
    return all(cell.keys.get(run.run) == first.keys[run.run] for cell in planned)


def _describe_facts(cells: Sequence[CellOverview]) -> Iterator[str]:
    """Yields each fact once, with the cells that it concerns if cells differ.

    The trainings are left out if they differ: the table has their steps.
    """
    numbers_by_text: dict[str, dict[str, list[int]]] = {}
    for number, cell in enumerate(cells, 1):
        for name, text in cell.facts().items():
            numbers_by_text.setdefault(name, {}).setdefault(text, []).append(number)
    for name, texts in numbers_by_text.items():
        if len(texts) == 1:
            yield from texts
        elif name != "training":
            for text, numbers in texts.items():
                yield f"{text} ({describe_cells(numbers, len(cells))})"


def _describe_table(cells: Sequence[CellOverview], shared: Sequence[RunForecast]) -> list[str]:
    """Returns a table of the cells: what differs, and what each makes that no earlier one does."""
    fields = _swept_fields(cells)
    header = ["cell", *fields, "steps", "tokens trained", "tokens scored", "time", "GPU hours"]
    header += ["GB per device", "GB on disk"]
    has_errors = any(cell.error for cell in cells)
    blank = [""] * (len(fields) + 1)
    made: set[Key] = {key for cell in cells for run in shared if (key := cell.keys.get(run.run))}
    all_runs, rows = list(shared), []
    if shared:
        rows.append(["shared", *blank, *_totals(shared), ""])
    for number, cell in enumerate(cells, 1):
        own = [run for run in cell.forecasts if cell.keys[run.run] not in made]
        made |= {cell.keys[run.run] for run in own}
        all_runs += own
        values = [_value(cell.overrides, name) for name in fields]
        steps = f"{cell.plan.sequence_order.steps:,}" if cell.plan else "–"
        error = "error" if cell.error else "ok"
        rows.append([str(number), *values, steps, *_totals(own), error])
    rows.append(["total", *blank, *_totals(all_runs), ""])
    if not has_errors:
        rows = [row[:-1] for row in rows]
    columns = [*header, *["check"] * has_errors]
    table = fit_columns(columns, rows, least=LEAST).lines(n_left_aligned=1 + len(fields))
    return ["each cell, without what an earlier one has made:", *table]


def _totals(runs: Sequence[RunForecast]) -> list[str]:
    """Returns the sums of the runs: tokens trained and scored, time, GPU hours, memory, disk."""
    trained_tokens, scored_tokens = (
        sum(run.tokens for run in runs if run.run.startswith(stage))
        for stage in ("train", "detect")
    )
    timed = [run for run in runs if not run.run.startswith("inject")]
    is_known = all(run.seconds is not None for run in timed)
    seconds = sum(run.seconds or 0 for run in timed)
    hours = sum((run.seconds or 0) * run.devices for run in timed) / 3600
    device_bytes = max((run.device_bytes or 0 for run in runs), default=0)
    return [
        f"{trained_tokens:,.0f}",
        f"{scored_tokens:,.0f}",
        format_duration(seconds) if is_known else "–",
        f"{hours:.2f}" if is_known else "–",
        forecast.format_gigabytes(device_bytes) if device_bytes else "–",
        forecast.format_gigabytes(sum(run.disk_bytes for run in runs)),
    ]


def _swept_fields(cells: Sequence[CellOverview]) -> list[str]:
    overridden = dict.fromkeys(word.partition("=")[0] for cell in cells for word in cell.overrides)
    return [
        name for name in overridden if len({_value(cell.overrides, name) for cell in cells}) > 1
    ]


def _value(overrides: Iterable[str], name: str) -> str:
    values = [word.partition("=")[2] for word in overrides if word.partition("=")[0] == name]
    return values[-1] if values else "–"


def describe_cells(numbers: Sequence[int], n_cells: int) -> str:
    """Returns for example "all 6 cells", "cell 2" or "cells 1, 3 and 5"."""
    if len(numbers) == n_cells:
        return f"all {n_cells} cells"
    if len(numbers) == 1:
        return f"cell {numbers[0]}"
    *others, last = map(str, numbers)
    return f"cells {', '.join(others)} and {last}"


def _describe_processes(cell: CellOverview) -> Iterator[str]:
    """Yields how the stages are started."""
    assert cell.plan is not None
    assert cell.stages is not None
    tasks, where = cell.plan.injection.cluster, "in one process"
    if tasks.kind == "datatrove":
        where = f"by {tasks.workers} datatrove tasks ({tasks.executor})"
    yield f"inject: {where}"
    for stage, runs in run_names_by_stage(cell.plan).items():
        processes = cell.stages.processes(stage)
        if processes.is_in_process:
            yield f"{stage}: in one process"
        else:
            yield from (shlex.join(processes.command(run)) for run in runs)

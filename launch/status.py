"""`python -m launch status`: the status of each cell, read from the launches' folders alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contamination.core import process_records
from contamination.core.errors import ConfigError
from contamination.core.terminal import (
    fit_columns,
    format_approximate_duration,
    format_duration,
    wrap_text,
)
from contamination.launch.cells import KIND, CellFolder, Launch, Outcome
from contamination.launch.config import STAGES
from contamination.launch.run_records import Cost, is_process_dead, read_costs

HEADER = ("cell", "state", "doing", "left", "where")
LEAST = ("where", "left", "doing", *STAGES)


@dataclass(frozen=True)
class CellState:
    """The state of a cell, as the table shows it."""

    name: str  # `waiting`, `running`, `done` or `failed`
    doing: str = ""  # its current step, or what it waits for
    left: str = ""  # the time left
    where: str = ""  # host and job
    problem: str = ""  # why it failed or stopped


def status(runs: Path, *, cost: bool = False) -> str:
    """Returns tables of all launches of a runs folder, the newest last, or of one launch.

    Args:
        runs: the runs folder, or the folder of one launch.
        cost: whether to add each stage's wall time and the GPU hours.

    Raises:
        ConfigError: there is no launch.
    """
    if (runs / "cells").is_dir():
        folders = [runs]
    else:
        folders = [cells.parent for cells in (runs / KIND).glob("*/cells")]
    if not folders:
        raise ConfigError(
            f"runs is {str(runs)!r}: no launch is there. Give the folder of a launch's "
            "artefacts (runs=DIR), or one of its runs/launches/."
        )
    folders.sort(key=lambda folder: folder.stat().st_mtime)
    return "\n\n".join(_format_launch(Launch(folder), cost) for folder in folders)


def _format_launch(launch: Launch, cost: bool) -> str:
    cells = [(name, cell, read_cell_state(cell)) for name, cell in launch.named_cells()]
    counts = Counter(now.name for *_, now in cells)
    head = f"{launch.folder}: " + ", ".join(f"{n} {name}" for name, n in counts.items())
    head += _format_sweep_left([cell for _, cell, now in cells if now.name == "running"])
    rows = [
        [_shorten_overrides(name), now.name, now.doing, now.left, now.where]
        for name, _, now in cells
    ]
    problems = [f"{name}: {now.problem}" for name, _, now in cells if now.problem]
    header = list(HEADER)
    if cost:
        costs_by_cell = [read_costs(cell.folder) for _, cell, _ in cells]
        header += [*STAGES, "GPU hours"]
        rows = [
            [*row, *_format_costs(costs)] for row, costs in zip(rows, costs_by_cell, strict=True)
        ]
        all_costs = [run for costs in costs_by_cell for run in costs]
        rows.append(["all", "", "", "", "", *_format_costs(all_costs)])
        for (name, *_), costs in zip(cells, costs_by_cell, strict=True):
            problems += [f"{name}: {_format_killed_run(run)}" for run in costs if run.killed]
    columns = [i for i in range(len(header)) if any(row[i] for row in rows)]
    header, rows = [header[i] for i in columns], [[row[i] for i in columns] for row in rows]
    return "\n".join(
        [head, *fit_columns(header, rows, least=LEAST).lines(), *map(wrap_text, problems)]
    )


def _shorten_overrides(overrides: str) -> str:
    """Shortens fields to their last names, such as learning_rate=1e-3, if these are unique."""
    pairs = [word.partition("=") for word in overrides.split(" ")]
    names = [name.rpartition(".")[2] for name, *_ in pairs]
    if len({*names}) < len(names):
        return overrides
    return " ".join(
        f"{name}{equals}{value}" for name, (_, equals, value) in zip(names, pairs, strict=True)
    )


def _format_sweep_left(running: Sequence[CellFolder]) -> str:
    """Returns the time left of a sweep whose cells run one after another; empty if not known."""
    progress = [process_records.read_progress(cell.folder) for cell in running]
    seconds_left = [now.sweep_left for now in progress if now and now.sweep_left is not None]
    return f"; {format_approximate_duration(max(seconds_left))} left" if seconds_left else ""


def _format_killed_run(run: Cost) -> str:
    return f"{run.stage} {run.run} was killed: at least {format_duration(run.seconds)}, no record"


def _format_costs(costs: Sequence[Cost]) -> list[str]:
    """Returns each stage's wall time and the GPU hours; "≥" if a run did not record its end."""
    times = []
    for stage in STAGES:
        of_stage = [cost for cost in costs if cost.stage == stage]
        seconds = sum(cost.seconds for cost in of_stage)
        times.append(_at_least_sign(of_stage) + format_duration(seconds) if of_stage else "")
    hours = sum(cost.gpu_hours for cost in costs)
    return [*times, f"{_at_least_sign(costs)}{hours:.2f}" if hours else ""]


def _at_least_sign(costs: Sequence[Cost]) -> str:
    return "≥ " if any(cost.killed for cost in costs) else ""


def read_cell_state(cell: CellFolder) -> CellState:
    """Returns the state of the cell according to the records in its folder."""
    running, outcome = cell.read_running(), cell.read_outcome()
    if running is not None:
        process, seconds_silent = running
        where = process.host + (f", job {process.job}" if process.job else "")
        doing, left = _format_progress(cell)
        if not is_process_dead(process.host, process.pid, seconds_silent):
            return CellState("running", doing, left, where)
        problem = (
            f"no sign of life for {format_duration(seconds_silent)} on {where}: its process ended "
            "without a message. Run the same command again to resume."
        )
        return CellState("failed", doing, problem=problem)
    if outcome is None or outcome.state in ("waiting", "stopped"):
        return _read_waiting_state(cell, outcome or Outcome("waiting"))
    return CellState(outcome.state, problem=outcome.error or "")


def _read_waiting_state(cell: CellFolder, outcome: Outcome) -> CellState:
    """Returns the state of a cell that waits for its next stage, its slices or its jobs."""
    if outcome.error:
        return CellState("waiting", problem=f"stopped: {outcome.error}")
    next_stage = STAGES[STAGES.index(outcome.stage) + 1] if outcome.stage else STAGES[0]
    slices = (
        [read_cell_state(folder) for folder in cell.slice_folders()]
        if next_stage == "detect"
        else []
    )
    counts = Counter(one_slice.name for one_slice in slices)
    doing = []
    if outcome.stage:
        doing.append(f"{outcome.stage} done")
    if slices:
        states = ", ".join(f"{n} {name}" for name, n in counts.items())
        doing.append(f"of {len(slices)} slices {states}")
    jobs = cell.read_jobs()
    if next_stage in jobs:
        doing.append(f"{next_stage}: job {jobs[next_stage]}")
    problems = "; ".join(one_slice.problem for one_slice in slices if one_slice.problem)
    name = "running" if counts["running"] else "waiting"
    return CellState(name, "; ".join(doing), problem=problems)


def _format_progress(cell: CellFolder) -> tuple[str, str]:
    """Returns the cell's current step with its progress, and the time left."""
    now = process_records.read_progress(cell.folder)
    if now is None:
        return "", ""
    share = f"/{now.total} ({now.n / now.total:.0%})" if now.total else ""
    left = "" if now.seconds_left is None else format_duration(now.seconds_left)
    return f"{now.title} · {now.unit} {now.n}{share}", left

"""`python -m launch status`: what became of each cell, read from the run folders alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contamination.core import process_records
from contamination.core.errors import ConfigError
from contamination.core.terminal import about, duration, fit, wrapped
from contamination.launch.cells import KIND, CellFolder, Launch, Outcome
from contamination.launch.config import STAGES
from contamination.launch.run_records import Cost, is_dead, read_costs

HEADER = ("cell", "state", "doing", "left", "where")
LEAST = ("where", "left", "doing", *STAGES)


@dataclass(frozen=True)
class State:
    """How a cell stands."""

    name: str  # `waiting`, `running`, `done` or `failed`
    doing: str = ""
    left: str = ""
    where: str = ""
    problem: str = ""  # why it failed or stopped


def status(runs: Path, *, cost: bool = False) -> str:
    """All launches of a runs folder, the newest last, or the one launch whose folder is given.

    With `cost` each stage's wall time and the GPU hours.

    Raises:
        ConfigError: there is none.
    """
    own = [runs] if (runs / "cells").is_dir() else list((runs / KIND).glob("*/cells"))
    folders = [p if p == runs else p.parent for p in own]
    if not folders:
        raise ConfigError(
            f"runs is {str(runs)!r}: no launch is there. Give the folder of a launch's "
            "artefacts (runs=DIR), or one of its runs/launches/."
        )
    folders.sort(key=lambda folder: folder.stat().st_mtime)
    return "\n\n".join(_launch(Launch(folder), cost) for folder in folders)


def _launch(launch: Launch, cost: bool) -> str:
    cells = [(own, cell, state(cell)) for own, cell in launch.cells_by_name()]
    counts = Counter(now.name for *_, now in cells)
    head = f"{launch.folder}: " + ", ".join(f"{n} {name}" for name, n in counts.items())
    head += _sweep_left([cell for _, cell, now in cells if now.name == "running"])
    rows = [[_short(own), now.name, now.doing, now.left, now.where] for own, _, now in cells]
    problems = [f"{own}: {now.problem}" for own, _, now in cells if now.problem]
    header = list(HEADER)
    if cost:
        each = [read_costs(cell.folder) for _, cell, _ in cells]
        header += [*STAGES, "GPU hours"]
        rows = [[*row, *_costs(costs)] for row, costs in zip(rows, each, strict=True)]
        rows.append(["all", "", "", "", "", *_costs([c for costs in each for c in costs])])
        for (own, *_), costs in zip(cells, each, strict=True):
            problems += [f"{own}: {_killed(one)}" for one in costs if one.killed]
    used = [i for i in range(len(header)) if any(row[i] for row in rows)]
    header, rows = [header[i] for i in used], [[row[i] for i in used] for row in rows]
    return "\n".join([head, *fit(header, rows, least=LEAST).lines(), *map(wrapped, problems)])


def _short(overrides: str) -> str:
    """Overrides by their fields' last names, such as learning_rate=1e-3, where these differ."""
    pairs = [word.partition("=") for word in overrides.split(" ")]
    names = [name.rpartition(".")[2] for name, *_ in pairs]
    if len({*names}) < len(names):
        return overrides
    each = zip(names, pairs, strict=True)
    return " ".join(f"{name}{equals}{value}" for name, (_, equals, value) in each)


def _sweep_left(running: Sequence[CellFolder]) -> str:
    """What is left of a sweep whose cells run one after another."""
    progress = [process_records.read_progress(cell.folder) for cell in running]
    left = [now.sweep_left for now in progress if now and now.sweep_left is not None]
    return f"; {about(max(left))} left" if left else ""


def _killed(one: Cost) -> str:
    return f"{one.stage} {one.run} was killed: at least {duration(one.seconds)}, no record"


def _costs(costs: Sequence[Cost]) -> list[str]:
    """Each stage's wall time and the GPU hours; "≥": a part has no record of its end."""
    by_stage = [[cost for cost in costs if cost.stage == stage] for stage in STAGES]
    hours = sum(cost.gpu_hours for cost in costs)
    times = [_least(own) + duration(sum(c.seconds for c in own)) if own else "" for own in by_stage]
    return [*times, f"{_least(costs)}{hours:.2f}" if hours else ""]


def _least(costs: Sequence[Cost]) -> str:
    return "≥ " if any(cost.killed for cost in costs) else ""


def state(cell: CellFolder) -> State:
    """How the cell stands, as far as its folder says."""
    running, outcome = cell.read_running(), cell.read_outcome()
    if running is not None:
        now, quiet = running
        where = now.host + (f", job {now.job}" if now.job else "")
        doing, left = _progress(cell)
        if not is_dead(now.host, now.pid, quiet):
            return State("running", doing, left, where)
        lost = (
            f"no sign of life for {duration(quiet)} on {where}: its process ended without a word. "
            "Run the same command again to resume."
        )
        return State("failed", doing, problem=lost)
    if outcome is None or outcome.state in ("waiting", "stopped"):
        return _waits(cell, outcome or Outcome("waiting"))
    return State(outcome.state, problem=outcome.error or "")


def _waits(cell: CellFolder, outcome: Outcome) -> State:
    """What the cell waits for, as far as is known here."""
    if outcome.error:
        return State("waiting", problem=f"stopped: {outcome.error}")
    following = STAGES[STAGES.index(outcome.stage) + 1] if outcome.stage else STAGES[0]
    done = [f"{outcome.stage} done"] if outcome.stage else []
    jobs, slices = cell.read_jobs(), []
    if following == "detect":
        slices = [state(each) for each in cell.slices()]
    counts = Counter(each.name for each in slices)
    made = [f"of {len(slices)} slices " + ", ".join(f"{n} {name}" for name, n in counts.items())]
    job = [f"{following}: job {jobs[following]}"] if following in jobs else []
    problems = "; ".join(each.problem for each in slices if each.problem)
    doing = "; ".join([*done, *made * bool(slices), *job])
    return State("running" if counts["running"] else "waiting", doing, problem=problems)


def _progress(cell: CellFolder) -> tuple[str, str]:
    """What the cell does, and how long that will take."""
    now = process_records.read_progress(cell.folder)
    if now is None:
        return "", ""
    share = f"/{now.total} ({now.n / now.total:.0%})" if now.total else ""
    left = "" if now.seconds_left is None else duration(now.seconds_left)
    return f"{now.title} · {now.unit} {now.n}{share}", left

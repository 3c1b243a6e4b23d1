"""Commands that are killed at random times, and started again until they end.

A chain is one command on one runs folder: it is started, killed, started again, and after some
kills left to finish. Then its artefacts are compared with those of a run that was left alone.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from contamination.core.integrity import MANIFEST
from contamination.core.lock import LOCKS_FOLDER
from tests.faults.fork_server import ForkedCommand, ForkServer
from tests.launch.started import ENVIRONMENT
from tests.small import contents

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TARGETS = ("all", "launcher")
KINDS = {"corpus": "inject", "model": "train", "passes": "detect", "scores": "detect",
         "report": "analyse"}  # fmt: skip
"""The stage that makes a kind of folder; another kind has a command of its own."""
MARK = "FAULT_RUN"
KILLS_IN_A_ROW = 6
AT_WORK = 0.75
"""The share of kills that hit forks of a warm process at work: else most would hit the imports."""
ORPHAN_SECONDS = 15.0
OBEY_SECONDS = 10.0
STEP_SECONDS = 2.0  # of the toy's training, on a busy machine

Contents = dict[str, dict[str, str]]  # artefact → file → checksum
Draw = tuple[random.Random, signal.Signals, str]


@dataclass(frozen=True)
class Command:
    """What is killed.

    Attributes:
        name: for the table.
        words: the module and its arguments, given its runs folder.
        prepare: makes the runs folder that it starts with.
    """

    name: str
    words: Callable[[Path], list[str]]
    prepare: Callable[[Path], object] = lambda runs: runs.mkdir()


@dataclass(frozen=True)
class Seconds:
    """How long a command took that was left alone, and how long its work of that took.

    Attributes:
        whole: from the start of Python to its end.
        work: of a fork of a warm process, from its first lease to its end.
    """

    whole: float
    work: float

    @property
    def to_obey(self) -> float:
        """Within which a signal ends it; half of a command that takes long on a busy machine.

        It was left alone, and others are killed beside it.
        """
        return max(OBEY_SECONDS + STEP_SECONDS, self.whole / 2)


@dataclass(frozen=True)
class Kill:
    """One kill, and what came of it.

    Attributes:
        seconds: from the signal to the command's end.
        limit: the most seconds that this may take.
        asleep: it came before Python had loaded any library.
        orphans: the command lines of what was alive ORPHAN_SECONDS later.
    """

    command: str
    signal: signal.Signals
    target: str
    stage: str
    status: int
    seconds: float
    limit: float
    asleep: bool
    traceback: bool
    orphans: list[str]

    @property
    def obeyed(self) -> bool:
        """Whether the status says the signal, in time; SIGKILL asks for no obedience."""
        if self.signal == signal.SIGKILL:
            return True
        over = self.stage == "end" and self.status == 0  # its last act was done
        by_default = self.status == -self.signal and (self.asleep or self.stage == "end")
        said = over or self.status == 128 + self.signal or by_default
        return said and not self.traceback and self.seconds < self.limit


@dataclass
class Tally:
    """What all chains came to."""

    kills: list[Kill] = field(default_factory=list)
    finished: int = 0
    others: list[str] = field(default_factory=list)
    """Artefacts that are not those of the run left alone."""
    interventions: list[str] = field(default_factory=list)
    """Runs that ended badly though nobody killed them: what they said."""


class Run:
    """A command that runs, with every process that it starts: of its session, or with its mark."""

    def __init__(self, words: list[str], log: Path, warm: ForkServer | None = None) -> None:
        self.log, self.began, self.mark = log, time.time(), f"{MARK}={uuid.uuid4()}".encode()
        name, _, value = self.mark.decode().partition("=")
        log.write_bytes(b"")
        self.process: subprocess.Popen | ForkedCommand
        if warm is not None:
            self.process = warm.start(words, log, {name: value})
            return
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *words], env={**ENVIRONMENT, name: value}, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def alive(self) -> dict[int, str]:
        """Its processes with their command lines; zombies have ended."""
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                pid, words = int(place.name), (place / "cmdline").read_bytes()
                is_ours = self.process.pid in (pid, os.getsid(pid))
                is_ours |= self.mark in (place / "environ").read_bytes().split(b"\0")
                if is_ours and words:  # a zombie has none
                    found[pid] = words.replace(b"\0", b" ").decode(errors="replace")[:200]
        return found

    def signal(self, number: signal.Signals, target: str) -> None:
        """To the launcher, or to every process as systemd, SLURM and containers do it."""
        for pid in self.alive() if target == "all" else [self.process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self) -> None:
        """Kill what is left."""
        for _ in range(100):
            left = self.alive()
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.05)
        self.process.wait()

    def asleep(self) -> bool:
        """Whether Python has loaded no library of the project's yet."""
        with suppress(OSError):
            return b"site-packages" not in Path(f"/proc/{self.process.pid}/maps").read_bytes()
        return False


def stage_of(runs: Path, began: float, whole: Contents | None = None) -> str:
    """What the run is at, by the leases that it took and the cell that it says it runs.

    With the artefacts of a run that was left alone, one that finds all of them is at its end.
    """

    def fresh(place: Path) -> float:
        with suppress(OSError):
            return place.stat().st_mtime if place.stat().st_mtime >= began else 0.0
        return 0.0

    leases = [(fresh(p), p.name.split("-")[0]) for p in runs.glob(f"{LOCKS_FOLDER}/*.lease")]
    since, kind = max(leases, default=(0.0, ""))
    if since:
        return KINDS.get(kind, kind)
    if any(fresh(p) for p in runs.glob("launches/*/cells/*/running.json")):
        return "between"
    done = [p for p in runs.glob("launches/*/cells/*/outcome.json") if fresh(p)]
    artefacts = [*runs.glob(f"*/*/{MANIFEST}")]
    over = done or any(map(fresh, artefacts)) or len(artefacts) == len(whole or {}) > 0
    return "end" if over else "start"


def kill(command: Command, runs: Path, log: Path, after: float, warm: ForkServer | None,
         number: signal.Signals, target: str, limit: float, whole: Contents,
         tally: Tally) -> bool:  # fmt: skip
    """Start the command and kill it after so many seconds; whether it lived.

    With `warm` it is a fork of that process, and the seconds are those of its work. To obey a
    signal it has `limit` seconds. `whole` are the artefacts of a run left alone.
    """
    run = Run(command.words(runs), log, warm)
    try:
        while warm and run.process.poll() is None and stage_of(runs, run.began) == "start":
            time.sleep(0.02)
        with suppress(subprocess.TimeoutExpired):
            run.process.wait(after)
            _ended(run, tally)
            return False
        stage, asleep, sent = stage_of(runs, run.began, whole), run.asleep(), time.monotonic()
        run.signal(number, target)
        with suppress(subprocess.TimeoutExpired):
            run.process.wait(120)
        seconds = time.monotonic() - sent
        while (left := run.alive()) and time.monotonic() < sent + ORPHAN_SECONDS:
            time.sleep(0.1)
        status = run.process.poll()
        said = run.said()
        if asleep and "Fatal Python error: init_import_site" in said:
            status, said = -number, ""  # Ctrl-C ended Python's own start, before any of our code
        tally.kills.append(
            Kill(command.name, number, target, stage, -999 if status is None else status, seconds,
                 limit, asleep, _traceback(said), sorted(left.values()))
        )  # fmt: skip
        if not tally.kills[-1].obeyed or left:
            print(tally.kills[-1], said[-3000:], sep="\n", flush=True)
        elif len(tally.kills) % 10 == 0:
            print(f"{len(tally.kills)} kills, {tally.finished} compared", flush=True)
    finally:
        run.end()
    return True


def finish(command: Command, runs: Path, log: Path, warm: ForkServer, whole: Contents,
           tally: Tally) -> None:  # fmt: skip
    """The command once more, left alone; then its artefacts are compared."""
    run = Run(command.words(runs), log, warm)
    try:
        with suppress(subprocess.TimeoutExpired):
            run.process.wait(600)
        _ended(run, tally)
    finally:
        run.end()
    _compare(runs, whole, tally)


def _traceback(said: str) -> bool:
    """Whether there is one, but for those of libraries whose own processes got the signal, too."""
    libraries = "torch/distributed/elastic", "wandb/sdk/lib/service"
    found = said.split("Traceback (most recent call last)")[1:]
    return not all(any(library in text for library in libraries) for text in found)


def _ended(run: Run, tally: Tally) -> None:
    """Whoever ended by itself ended well, or a hand is needed."""
    said = run.said()
    if run.process.poll() != 0 or _traceback(said):
        tally.interventions.append(f"status {run.process.poll()}: {said[-4000:]}")


def chain(command: Command, place: Path, warm: ForkServer, whole: Contents, seconds: Seconds,
          draws: Iterator[Draw], tally: Tally) -> None:  # fmt: skip
    """Kill and start again on one runs folder after another, until the draws are used up.

    Args:
        command: what is killed.
        place: where the runs folders go.
        warm: the process whose forks are killed at work.
        whole: the artefacts of a run that was left alone.
        seconds: those of that one.
        draws: of each kill, its random numbers, signal and target.
        tally: where it is counted.
    """
    log = place / "log"
    runs, kills, folders = None, 0, 0
    for draw, number, target in draws:
        killed = False
        while not killed:
            if runs is None:
                folders += 1
                runs, kills = place / f"runs-{folders}", 0
                command.prepare(runs)
            forked = warm if draw.random() < AT_WORK else None
            after = draw.uniform(0, seconds.work if forked else seconds.whole)
            killed = kill(
                command, runs, log, after, forked, number, target, seconds.to_obey, whole, tally
            )
            if not killed:  # it had ended before
                runs = _compare(runs, whole, tally)
        kills += 1
        if kills == KILLS_IN_A_ROW:
            runs = finish(command, runs, log, warm, whole, tally)
    if runs is not None:
        finish(command, runs, log, warm, whole, tally)


def _compare(runs: Path, whole: Contents, tally: Tally) -> None:
    tally.finished += 1
    found = contents(runs)
    others = [name for name in {*found, *whole} if found.get(name) != whole.get(name)]
    tally.others += sorted(f"{runs}: {name}" for name in others)


def plan(count: int, seed: str) -> list[Draw]:
    """The kills: every signal at every target equally often, in a random order."""
    draw = random.Random(seed)
    every = list(product(SIGNALS, TARGETS))
    draw.shuffle(every)  # of fewer kills, not always the first signals
    cases = [every[i % len(every)] for i in range(count)]
    draw.shuffle(cases)
    return [(random.Random(draw.getrandbits(64)), *case) for case in cases]


def table(tally: Tally) -> str:
    """The kills by command, signal, target and stage, and what came of them."""
    lines = [f"{'command':24} signal   target     kills  obeyed  slowest s  orphans  statuses"]
    groups: dict[tuple[str, signal.Signals, str], list[Kill]] = {}
    for one in tally.kills:
        groups.setdefault((one.command, one.signal, one.target), []).append(one)
    for (command, number, target), kills in sorted(groups.items(), key=str):
        obeyed = "" if number == signal.SIGKILL else sum(k.obeyed for k in kills)
        statuses = ", ".join(f"{n} × {s}" for s, n in Counter(k.status for k in kills).items())
        lines.append(
            f"{command:24} {number.name:8} {target:9} {len(kills):6} {obeyed:7} "
            f"{max(k.seconds for k in kills):10.1f} {sum(len(k.orphans) for k in kills):8}  "
            f"{statuses}"
        )
    stages = Counter(f"{k.command} {k.stage}" for k in tally.kills)
    lines.append("hit: " + ", ".join(f"{n} × {stage}" for stage, n in sorted(stages.items())))
    lines.append(
        f"{len(tally.kills)} kills, {tally.finished} runs compared: {len(tally.others)} other "
        f"artefacts, {len(tally.interventions)} interventions, "
        f"{sum(len(k.orphans) for k in tally.kills)} orphans, "
        f"{sum(not k.obeyed for k in tally.kills)} disobeyed"
    )
    return "\n".join(lines)

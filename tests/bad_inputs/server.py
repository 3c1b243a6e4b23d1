"""Runs rows of the table, each in a child of one warm process: the commands themselves, `__main__`.

    python -m tests.bad_inputs.server FOLDER < [names of rows]

The modules are imported once; a child is a fork, so that no row sees another's state. Prints one
JSON object, a row's name → what it did.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from hydra._internal.hydra import Hydra

from tests.bad_inputs.places import PLACES
from tests.bad_inputs.row import Row
from tests.bad_inputs.table import ROWS

MODULES = (
    "contamination.core.cli",
    "contamination.launch.run",
    "contamination.launch.adopt",
    "contamination.injection.run",
    "contamination.training.run",
    "contamination.training.models",
    "contamination.training.deepspeed_engine",
    "contamination.training.memory_plan",
    "contamination.detection.run",
    "contamination.detection.building.run",
    "contamination.detection.building.overlap_selection",
    "contamination.detection.tasks.accuracy",
    "contamination.audits.run",
    "contamination.detection.tasks.extraction",
    "contamination.detection.tasks.online",
    "contamination.detection.tasks.calibration",
    "contamination.detection.viewer.run",
    "contamination.analysis.run",
    "contamination.analysis.wandb.read",
    "transformers.models.llama.modeling_llama",
)
SECONDS = 60.0  # after which a child is killed: a row that hangs must not hang the tests


@dataclass(frozen=True)
class Done:
    """What a row did.

    Attributes:
        status: its exit status.
        stdout, stderr: what it said.
        changed: files and folders of the working directory that came, went or changed.
        seconds: of processor time.
    """

    status: int
    stdout: str
    stderr: str
    changed: list[str]
    seconds: float


def serve(base: Path, rows: Mapping[str, Row]) -> dict[str, Done]:
    """Run the rows below `base`, as many at once as there are processors."""
    from tests.bad_inputs.material import make

    for module in MODULES:
        __import__(module)
    # Hydra composes everything once more to learn `hydra.mode`, which no row and no file gives.
    Hydra.get_mode = lambda *_, **__: None
    material = _child(lambda: make(base / "material"), base / "material.log")
    if _waited(material)[1]:
        raise RuntimeError((base / "material.log.err").read_text())
    gc.collect()
    gc.freeze()  # the children touch, and so copy, less of the memory
    done: dict[str, Done] = {}
    running: dict[int, tuple[str, Path, dict[str, str]]] = {}
    left = list(enumerate(rows.items()))
    while left or running:
        while left and len(running) < (os.cpu_count() or 1):
            number, (name, row) = left.pop(0)
            folder = base / "rows" / str(number)
            pid, before = _start(row, folder)
            running[pid] = name, folder, before
        pid, status, seconds = _waited()
        name, folder, before = running.pop(pid)
        said = [(folder.parent / f"{folder.name}{end}").read_text() for end in (".log", ".log.err")]
        done[name] = Done(status, *said, _changed(before, _tree(folder)), seconds)
    return done


def _start(row: Row, folder: Path) -> tuple[int, dict[str, str]]:
    folder.mkdir(parents=True)
    for name, content in row.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(folder / name)
        else:
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    before = _tree(folder)

    def run() -> None:
        os.chdir(folder)
        if row.place:
            PLACES[row.place]()
        module, *tool = row.command.split(" ")
        sys.argv = [module, *tool, *row.arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)

    return _child(run, folder.parent / f"{folder.name}.log"), before


def _child(work: Callable[[], object], log: Path) -> int:
    """Start a process that does the work; its output goes to `log` and `log`.err."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        for stream, place in ((1, log), (2, log.with_name(f"{log.name}.err"))):
            os.dup2(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        signal_after(SECONDS)
        work()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def signal_after(seconds: float) -> None:
    """Let the kernel end this process, whatever it does."""
    import signal

    signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _waited(pid: int = -1) -> tuple[int, int, float]:
    """A child that ended, its exit status, and its seconds of processor time."""
    ended, status, used = os.wait4(pid, 0)
    return ended, os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime


def _tree(folder: Path) -> dict[str, str]:
    """What is below a folder; of files the size and the time of the last change."""
    found = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        said = "folder" if path.is_dir() else f"{about.st_size} {about.st_mtime_ns}"
        found[str(path.relative_to(folder))] = said
    return found


def _changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    names = before.keys() | after.keys()
    return sorted(name for name in names if before.get(name) != after.get(name))


if __name__ == "__main__":
    asked = set(json.load(sys.stdin))
    made = serve(Path(sys.argv[1]), {name: row for name, row in ROWS.items() if name in asked})
    print(json.dumps({name: asdict(done) for name, done in made.items()}))

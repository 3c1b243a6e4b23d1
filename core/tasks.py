"""Tasks that do not need one another: run here, by processes, or by datatrove's executors.

Each piece of a task leaves a file of JSON, written last, that says what it made. So what was
finished before a run was killed is found, whatever ran it, and the results are the same at any
number of workers.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import contamination
from contamination.core.config import Ranged, at_least, limited, one_of
from contamination.core.errors import ConfigError, DataError
from contamination.core.files import read_sealed, sealed, sync, temporary, write_text
from contamination.core.hashing import digests
from contamination.core.parent_process import end_with_parent
from contamination.core.progress import progress


@dataclass(frozen=True)
class TasksConfig(Ranged, node="cluster"):
    """What makes the parts of a corpus (node `cluster`)."""

    kind: str = limited("local", one_of(("local", "datatrove")))
    """`local`: this process, or injection.num_proc. `datatrove`: an executor of datatrove, a task
    an input file and then a task a part of the packed corpus."""
    executor: str = limited("local", one_of(("local", "slurm", "ray")))
    """Datatrove's: processes of this machine, SLURM's jobs, or Ray (of RAY_ADDRESS, or here)."""
    workers: int = limited(1, at_least(1))
    """Tasks at a time, each one process of one thread."""
    retries: int = limited(2, at_least(0))
    """How often what crashed or was killed is started again, from what it had finished."""
    memory_gb: int = limited(4, at_least(1))
    """Memory that SLURM or Ray reserves for a task."""
    time: str = "24:00:00"
    """The longest that a job of SLURM may take: one task, or a thousandth of them."""
    partition: str | None = None
    """SLURM's partition; it needs one."""
    sbatch: dict[str, Any] = field(default_factory=dict)
    """Further options of sbatch, by their names there, such as {account: mine}."""

    def __post_init__(self) -> None:
        super().__post_init__()
        named = (self.kind, self.executor) != ("datatrove", "slurm") or self.partition is not None
        self.require(named, "partition", "name the partition that the tasks go to.")


log = logging.getLogger(__name__)


class Task(Protocol):
    """Work of one kind in pieces, numbered from 0. It is pickled where others run it."""

    def __len__(self) -> int:
        """How many pieces."""
        ...

    def files(self, piece: int) -> list[Path]:
        """What a piece writes."""
        ...

    def make(self, piece: int) -> dict[str, Any]:
        """Write the files and give the result, plain data for JSON."""
        ...


def made_or_found(
    done: Path, files: Sequence[Path], make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """What `make` gives, kept in `done`, which is written last; found if the files are whole."""
    if (found := _found(done, files)) is not None:
        return found
    done.unlink(missing_ok=True)
    made = make()
    for path in {*files, *(path.parent for path in files)}:
        sync(path)
    write_text(done, sealed({"made": made, "sha256": _hashes(files)}))
    return dict(read_sealed(done)["made"])


def _found(done: Path, files: Sequence[Path]) -> dict[str, Any] | None:
    """What `done` says; None: it is not there, or it or the files are damaged."""
    with suppress(OSError, ValueError):
        found = read_sealed(done)
        if found["sha256"] == _hashes(files):
            return dict(found["made"])
    return None


def _hashes(files: Sequence[Path]) -> list[str]:
    return [*digests({path.name: path for path in files}).values()]


@dataclass(frozen=True)
class Stored:
    """A task in its folder, which a worker reads once, whatever the number of its pieces."""

    folder: Path

    def __call__(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Finish a piece: as datatrove calls a step of its pipelines."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self.finish(rank)

    def finish(self, piece: int) -> dict[str, Any]:
        """A piece's result, made or found."""
        return _finish(_load(self.folder), self.folder, piece)

    def result(self, piece: int) -> dict[str, Any] | None:
        """What a piece that is finished says, its files unread; None: it is not."""
        with suppress(OSError, ValueError):
            return dict(read_sealed(_done(self.folder, piece))["made"])
        return None


@dataclass(frozen=True)
class Runner:
    """What runs the tasks of one corpus."""

    folder: Path
    """For the tasks, a folder each; of the corpus nothing is kept there."""
    cluster: TasksConfig = TasksConfig()
    num_proc: int = 1
    """Processes, where `cluster` is this machine."""

    def run(self, kind: str, task: Task) -> list[dict[str, Any]]:
        """The results of all pieces, in order; `kind` is what they are called in names and logs.

        Raises:
            DataError: datatrove's workers ended without them.
        """
        folder, pieces = self.folder / kind, range(len(task))
        folder.mkdir(parents=True, exist_ok=True)
        if self.cluster.kind == "datatrove":
            _forget_damaged(task, folder)
            return run(_store(task, folder), len(task), self.cluster)
        workers = min(self.num_proc, len(task))
        if workers <= 1:
            return [_finish(task, folder, piece) for piece in pieces]
        with ProcessPoolExecutor(workers, get_context("spawn"), initializer=one_thread) as pool:
            return [*pool.map(_store(task, folder).finish, pieces)]


def one_thread() -> None:
    """A worker is one thread, and ends with the process that started it."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    end_with_parent(signal.SIGKILL, os.getppid())


def _done(folder: Path, piece: int) -> Path:
    return folder / f"{piece:05d}.json"


def _finish(task: Task, folder: Path, piece: int) -> dict[str, Any]:
    return made_or_found(_done(folder, piece), task.files(piece), partial(task.make, piece))


def _forget_damaged(task: Task, folder: Path) -> None:
    """Leave to be made again what an earlier run finished, and is not what it was."""
    for piece in range(len(task)):
        done = _done(folder, piece)
        if done.exists() and _found(done, task.files(piece)) is None:
            log.warning("%s of an earlier run is damaged: it is made again", done)
            done.unlink()


def _store(task: Task, folder: Path) -> Stored:
    part = temporary(folder / "task.pickle")
    part.write_bytes(pickle.dumps(task))
    part.rename(folder / "task.pickle")
    return Stored(folder)


@lru_cache(maxsize=1)
def _load(folder: Path) -> Task:
    with (folder / "task.pickle").open("rb") as stream:
        task: Task = pickle.load(stream)
    return task


HOME = Path(contamination.__file__).resolve().parents[1]
ARRAY = 1000  # SLURM's own limit of jobs in an array


def run(stored: Stored, pieces: int, cluster: TasksConfig) -> list[dict[str, Any]]:
    """The results of all pieces; what ends without one is started again, `cluster.retries` times.

    Raises:
        ConfigError: datatrove, SLURM or Ray is not there.
        DataError: pieces have no result still.
    """
    _import("datatrove.executor", "LocalPipelineExecutor")
    _import("loguru", "logger").disable("datatrove")  # it says the same in its logs
    start = {"local": _locally, "slurm": _on_slurm, "ray": _on_ray}[cluster.executor]
    kind, missing = stored.folder.name, _missing(stored, pieces)
    with progress(total=pieces, desc=kind, stage="inject", unit="task") as bar:
        bar.update(pieces - len(missing))
        for _ in range(cluster.retries + 1):
            if missing:
                start(stored, pieces, missing, cluster)
                missing = _missing(stored, pieces)
                bar.update(pieces - len(missing) - bar.n)
    if missing:
        raise DataError(
            f"{kind}: {len(missing)} of {pieces} tasks ended without a result, the first is "
            f"{missing[0]}: see {stored.folder}/logs/task_{missing[0]:05d}.log. Give the same "
            "command again: what is finished of a corpus is kept."
        )
    return [found for found in map(stored.result, range(pieces)) if found is not None]


def _missing(stored: Stored, pieces: int) -> list[int]:
    """The pieces without a result, which datatrove then counts as not completed either."""
    missing = [piece for piece in range(pieces) if stored.result(piece) is None]
    for piece in missing:
        (stored.folder / f"completions/{piece:05d}").unlink(missing_ok=True)
    return missing


def _import(module: str, name: str) -> Any:
    """A class of datatrove, or Ray.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        found = __import__(module, fromlist=[name])
    except ImportError as error:
        raise ConfigError(
            f"cluster=datatrove needs {error.name}, which is not installed here: pip install "
            "'contamination-testbed[datatrove]' (pip install '.[datatrove]' in a checkout)."
        ) from error
    return getattr(found, name)


def _locally(stored: Stored, pieces: int, missing: Sequence[int], cluster: TasksConfig) -> None:
    """Datatrove's local executor, with processes of our own: its pool waits for a killed one."""
    workers, method = min(cluster.workers, len(missing)), get_context("spawn")
    with ProcessPoolExecutor(workers, method, initializer=one_thread) as pool:
        jobs = [pool.submit(_one, stored, pieces, piece) for piece in missing]
        try:
            for job in as_completed(jobs):
                job.result()
        except BrokenProcessPool:
            log.warning("a worker was killed; what it had not finished is started again")
        finally:
            for job in jobs:
                job.cancel()


def _one(stored: Stored, pieces: int, piece: int) -> None:
    """A rank, as the executor's own processes run it; but for the first they log to files alone."""
    executor = _import("datatrove.executor", "LocalPipelineExecutor")
    executor([stored], pieces, logging_dir=str(stored.folder))._run_for_rank(piece, 1)


def _on_slurm(stored: Stored, pieces: int, missing: Sequence[int], cluster: TasksConfig) -> None:
    """An array job, in place of what an earlier run of this corpus left in the queue."""
    executor = _import("datatrove.executor.slurm", "SlurmPipelineExecutor")
    if shutil.which("sbatch") is None:
        raise ConfigError(
            "cluster.executor is slurm, but there is no sbatch here: give the command on a machine "
            "that can submit jobs, or choose cluster.executor=local."
        )
    name = re.sub(r"\W+", "-", f"{stored.folder.parents[2].name}-{stored.folder.name}").strip("-")
    made = executor(
        *([stored], pieces, cluster.time, cluster.partition),
        workers=cluster.workers,
        mem_per_cpu_gb=cluster.memory_gb,
        job_name=name,
        qos=None,
        env_command=f"export PATH={Path(sys.executable).parent}:$PATH PYTHONPATH={HOME}",
        # it is submitted once the others of its name have ended, and waited for
        sbatch_args={"wait": "", "dependency": "singleton", **cluster.sbatch},
        tasks_per_job=-(-len(missing) // ARRAY),
        logging_dir=str(stored.folder),
        with_srun=False,
    )
    made.launch_merge_stats = _no_statistics
    subprocess.run(["scancel", "--me", f"--name={name}"], capture_output=True)
    try:
        made.run()
    except subprocess.CalledProcessError as error:
        if not error.output:  # else a job failed, which its results show
            raise ConfigError(
                f"cluster.executor is slurm, but sbatch refuses with status {error.returncode}; "
                "what it said stands above. Give the command where SLURM takes jobs, mend "
                "cluster.sbatch or cluster.partition, or choose cluster.executor=local."
            ) from error


def _no_statistics() -> None:
    """Instead of another job."""


def _on_ray(stored: Stored, pieces: int, missing: Sequence[int], cluster: TasksConfig) -> None:
    """The Ray cluster of RAY_ADDRESS, or one that is started here."""
    executor = _import("datatrove.executor", "RayPipelineExecutor")
    if not _import("ray", "is_initialized")():
        init, environment = _import("ray", "init"), {"env_vars": {"PYTHONPATH": str(HOME)}}
        init(runtime_env=environment, log_to_driver=False, include_dashboard=False)
    logs, memory = str(stored.folder), cluster.memory_gb
    executor([stored], pieces, cluster.workers, logging_dir=logs, mem_per_cpu_gb=memory).run()

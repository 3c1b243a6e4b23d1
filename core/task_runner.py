"""Runs independent tasks in this process, in local processes or with datatrove's executors.

Each piece of a task writes a JSON file with its result, after its other files. Finished pieces of a
killed run are therefore reused, and results are the same for any executor and number of workers.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import contamination
from contamination.core.config import Ranged, at_least, one_of, ranged_field
from contamination.core.errors import ConfigError, DataError
from contamination.core.files import (
    hashed_json,
    read_verified_json,
    sync_to_disk,
    temporary_path,
    write_text_atomically,
)
from contamination.core.hashing import digests_by_name
from contamination.core.progress import progress_bar
from contamination.core.tokenizer_panics import tokenizer_panics_as_config_errors
from contamination.core.worker_pool import worker_pool


@dataclass(frozen=True)
class TasksConfig(Ranged, node="cluster"):
    """How the parts of a corpus are processed (node `cluster`)."""

    kind: str = ranged_field("local", one_of(("local", "datatrove")))
    """`local`: this process, or injection.num_proc processes. `datatrove`: an executor of
    datatrove, with one task per input file and then one per part of the packed corpus."""
    executor: str = ranged_field("local", one_of(("local", "slurm", "ray")))
    """Datatrove's executor: local processes, SLURM jobs, or Ray (at RAY_ADDRESS, or started
    here)."""
    workers: int = ranged_field(1, at_least(1))
    """How many tasks run at a time, each in one process with one thread."""
    retries: int = ranged_field(2, at_least(0))
    """How often tasks that crashed or were killed are started again; finished pieces are kept."""
    memory_gb: int = ranged_field(4, at_least(1))
    """Memory that SLURM or Ray reserves per task, in GB."""
    time: str = "24:00:00"
    """Time limit of a SLURM job, which runs one task, or several if there are over 1,000 tasks."""
    partition: str | None = None
    """The SLURM partition; required for executor=slurm."""
    sbatch: dict[str, Any] = field(default_factory=dict)
    """Further options of sbatch by name, such as {account: mine}."""

    def __post_init__(self) -> None:
        super().__post_init__()
        has_partition = self.partition is not None
        is_slurm = (self.kind, self.executor) == ("datatrove", "slurm")
        self.require(
            has_partition or not is_slurm, "partition", "give the partition for the tasks."
        )


log = logging.getLogger(__name__)


class Task(Protocol):
    """Work in pieces that are numbered from 0; it is pickled for other processes."""

    def __len__(self) -> int:
        """Returns the number of pieces."""
        ...

    def files(self, piece: int) -> list[Path]:
        """Returns the files that a piece writes."""
        ...

    def process_piece(self, piece: int) -> dict[str, Any]:
        """Writes the files and returns the result: plain data for JSON."""
        ...


def run_unless_stored(
    result_file: Path, files: Sequence[Path], make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Returns the stored result if it and `files` are intact, or else the result of `make`.

    Args:
        result_file: the JSON file for the result, which is written last.
        files: the files that `make` writes.
        make: writes the files and returns plain data for JSON.
    """
    if (stored_result := _stored_result(result_file, files)) is not None:
        return stored_result
    result_file.unlink(missing_ok=True)
    result = make()
    for path in {*files, *(path.parent for path in files)}:
        sync_to_disk(path)
    record = {"made": result, "sha256": _file_hashes(files)}
    write_text_atomically(result_file, hashed_json(record))
    return dict(read_verified_json(result_file)["made"])


def _stored_result(result_file: Path, files: Sequence[Path]) -> dict[str, Any] | None:
    """The stored result; None if it does not exist, or if it or the files are damaged."""
    with suppress(OSError, ValueError):
        record = read_verified_json(result_file)
        if record["sha256"] == _file_hashes(files):
            return dict(record["made"])
    return None


def _file_hashes(files: Sequence[Path]) -> list[str]:
    return [*digests_by_name({path.name: path for path in files}).values()]


@dataclass(frozen=True)
class StoredTask:
    """A task that is stored in a folder; each worker loads it once for all its pieces."""

    folder: Path

    def __call__(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Finishes the piece `rank`. This is how datatrove calls the steps of its pipelines."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self.finish(rank)

    def finish(self, piece: int) -> dict[str, Any]:
        """Returns the piece's result, which is computed unless it is stored."""
        return _finish_piece(_load_task(self.folder), self.folder, piece)

    def result(self, piece: int) -> dict[str, Any] | None:
        """Returns the piece's stored result without checking its files; None if unfinished."""
        with suppress(OSError, ValueError):
            return dict(read_verified_json(_result_path(self.folder, piece))["made"])
        return None


@dataclass(frozen=True)
class TaskRunner:
    """Runs the tasks of one corpus."""

    folder: Path
    """The folder for stored tasks, with one subfolder per task; it has no files of the corpus."""
    cluster: TasksConfig = TasksConfig()
    num_proc: int = 1
    """The number of processes if `cluster.kind` is local."""

    def run(self, kind: str, task: Task) -> list[dict[str, Any]]:
        """Returns the results of all pieces, in order.

        Args:
            kind: the name of the task in paths and logs.
            task: the work.

        Raises:
            DataError: datatrove's workers ended without a result.
        """
        folder, pieces = self.folder / kind, range(len(task))
        folder.mkdir(parents=True, exist_ok=True)
        if self.cluster.kind == "datatrove":
            _remove_damaged_results(task, folder)
            return run_on_datatrove(_store_task(task, folder), len(task), self.cluster)
        workers = min(self.num_proc, len(task))
        if workers <= 1:
            return [_finish_piece(task, folder, piece) for piece in pieces]
        with worker_pool(workers) as pool:
            return [*pool.map(_store_task(task, folder).finish, pieces)]


def _result_path(folder: Path, piece: int) -> Path:
    return folder / f"{piece:05d}.json"


@tokenizer_panics_as_config_errors()  # a panic can't be sent to another process
def _finish_piece(task: Task, folder: Path, piece: int) -> dict[str, Any]:
    return run_unless_stored(
        _result_path(folder, piece), task.files(piece), partial(task.process_piece, piece)
    )


def _remove_damaged_results(task: Task, folder: Path) -> None:
    """Removes results of an earlier run whose files are damaged; they are then computed again."""
    for piece in range(len(task)):
        result_file = _result_path(folder, piece)
        if result_file.exists() and _stored_result(result_file, task.files(piece)) is None:
            log.warning("%s of an earlier run is damaged: it is computed again", result_file)
            result_file.unlink()


def _store_task(task: Task, folder: Path) -> StoredTask:
    unfinished = temporary_path(folder / "task.pickle")
    unfinished.write_bytes(pickle.dumps(task))
    unfinished.rename(folder / "task.pickle")
    return StoredTask(folder)


@lru_cache(maxsize=1)
def _load_task(folder: Path) -> Task:
    with (folder / "task.pickle").open("rb") as stream:
        task: Task = pickle.load(stream)
    return task


CODE_ROOT = Path(contamination.__file__).resolve().parents[1]
MAX_ARRAY_JOBS = 1000  # SLURM's default limit of jobs in an array


def run_on_datatrove(
    stored_task: StoredTask, n_pieces: int, cluster: TasksConfig
) -> list[dict[str, Any]]:
    """Returns the results of all pieces; failed ones are retried up to `cluster.retries` times.

    Raises:
        ConfigError: datatrove, SLURM or Ray is not available.
        DataError: some pieces still have no result.
    """
    _import_optional("datatrove.executor", "LocalPipelineExecutor")
    # its log files contain the same messages
    _import_optional("loguru", "logger").disable("datatrove")
    executors = {"local": _run_on_local_processes, "slurm": _run_on_slurm, "ray": _run_on_ray}
    run_missing = executors[cluster.executor]
    kind, missing = stored_task.folder.name, _unmark_missing_pieces(stored_task, n_pieces)
    with progress_bar(total=n_pieces, desc=kind, stage="inject", unit="task") as bar:
        bar.update(n_pieces - len(missing))
        for _ in range(cluster.retries + 1):
            if missing:
                run_missing(stored_task, n_pieces, missing, cluster)
                missing = _unmark_missing_pieces(stored_task, n_pieces)
                bar.update(n_pieces - len(missing) - bar.n)
    if missing:
        raise DataError(
            f"{kind}: {len(missing)} of {n_pieces} tasks ended without a result; the first is "
            f"{missing[0]}: see {stored_task.folder}/logs/task_{missing[0]:05d}.log. Run the same "
            "command again: finished parts of a corpus are kept."
        )
    results = map(stored_task.result, range(n_pieces))
    return [result for result in results if result is not None]


def _unmark_missing_pieces(stored_task: StoredTask, n_pieces: int) -> list[int]:
    """The pieces without a result; datatrove's own marks of completion are removed for them."""
    missing = [piece for piece in range(n_pieces) if stored_task.result(piece) is None]
    for piece in missing:
        (stored_task.folder / f"completions/{piece:05d}").unlink(missing_ok=True)
    return missing


def _import_optional(module: str, name: str) -> Any:
    """Returns an attribute of a module of datatrove or of its dependencies.

    Raises:
        ConfigError: the module is not installed.
    """
    try:
        imported = __import__(module, fromlist=[name])
    except ImportError as error:
        raise ConfigError(
            f"cluster=datatrove needs {error.name}, which is not installed here: pip install "
            "'contamination-testbed[datatrove]' (pip install '.[datatrove]' in a checkout)."
        ) from error
    return getattr(imported, name)


def _run_on_local_processes(
    stored_task: StoredTask, n_pieces: int, missing: Sequence[int], cluster: TasksConfig
) -> None:
    """Replaces the pool of datatrove's local executor, which would wait for a killed process."""
    with worker_pool(min(cluster.workers, len(missing))) as pool:
        jobs = [pool.submit(_run_piece, stored_task, n_pieces, piece) for piece in missing]
        try:
            for job in as_completed(jobs):
                job.result()
        except BrokenProcessPool:
            log.warning("a worker was killed; its unfinished tasks are started again")
        finally:
            for job in jobs:
                job.cancel()


def _run_piece(stored_task: StoredTask, n_pieces: int, piece: int) -> None:
    """Runs a piece as the executor's own processes would; only the first logs to the terminal."""
    executor = _import_optional("datatrove.executor", "LocalPipelineExecutor")
    executor([stored_task], n_pieces, logging_dir=str(stored_task.folder))._run_for_rank(piece, 1)


def _run_on_slurm(
    stored_task: StoredTask, n_pieces: int, missing: Sequence[int], cluster: TasksConfig
) -> None:
    """Runs an array job, after cancelling jobs of earlier runs for this corpus."""
    executor = _import_optional("datatrove.executor.slurm", "SlurmPipelineExecutor")
    if shutil.which("sbatch") is None:
        raise ConfigError(
            "cluster.executor is slurm, but there is no sbatch here: run the command on a machine "
            "that can submit jobs, or choose cluster.executor=local."
        )
    name = re.sub(
        r"\W+", "-", f"{stored_task.folder.parents[2].name}-{stored_task.folder.name}"
    ).strip("-")
    array_job = executor(
        *([stored_task], n_pieces, cluster.time, cluster.partition),
        workers=cluster.workers,
        mem_per_cpu_gb=cluster.memory_gb,
        job_name=name,
        qos=None,
        env_command=f"export PATH={Path(sys.executable).parent}:$PATH PYTHONPATH={CODE_ROOT}",
        # the job starts once other jobs of its name have ended; sbatch waits until it ends
        sbatch_args={"wait": "", "dependency": "singleton", **cluster.sbatch},
        tasks_per_job=-(-len(missing) // MAX_ARRAY_JOBS),
        logging_dir=str(stored_task.folder),
        with_srun=False,
    )
    array_job.launch_merge_stats = _launch_no_statistics_job
    subprocess.run(["scancel", "--me", f"--name={name}"], capture_output=True)
    try:
        array_job.run()
    except subprocess.CalledProcessError as error:
        if not error.output:  # otherwise a job failed, and its results are missing
            raise ConfigError(
                f"cluster.executor is slurm, but sbatch failed with status {error.returncode}; "
                "its message is printed above. Run the command where SLURM accepts jobs, correct "
                "cluster.sbatch or cluster.partition, or choose cluster.executor=local."
            ) from error


def _launch_no_statistics_job() -> None:
    """Replaces datatrove's method, which would submit another job."""


def _run_on_ray(
    stored_task: StoredTask, n_pieces: int, missing: Sequence[int], cluster: TasksConfig
) -> None:
    """Uses the Ray cluster at RAY_ADDRESS, or starts one on this machine."""
    executor = _import_optional("datatrove.executor", "RayPipelineExecutor")
    if not _import_optional("ray", "is_initialized")():
        init, environment = (
            _import_optional("ray", "init"),
            {"env_vars": {"PYTHONPATH": str(CODE_ROOT)}},
        )
        init(runtime_env=environment, log_to_driver=False, include_dashboard=False)
    logs, memory = str(stored_task.folder), cluster.memory_gb
    executor(
        [stored_task], n_pieces, cluster.workers, logging_dir=logs, mem_per_cpu_gb=memory
    ).run()

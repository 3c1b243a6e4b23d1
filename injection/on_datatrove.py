"""Tasks on datatrove's executors: processes of this machine, SLURM's array jobs, or Ray.

The task is the one step of a datatrove pipeline, and a piece is a rank of it. So datatrove's own
logs, its `skip_completed` and its ways to start workers are what is used; beside the task lie its
`logs/`, `completions/` and the batch script. Nothing else in this project imports datatrove.
"""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from core.errors import ConfigError, DataError
from core.progress import progress
from injection.config import TasksConfig
from injection.tasks import Stored, one_thread

HOME = Path(__file__).resolve().parents[1]
ARRAY = 1000  # SLURM's own limit of jobs in an array
log = logging.getLogger(__name__)


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

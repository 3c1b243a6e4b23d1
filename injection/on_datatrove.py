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
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from core.errors import ConfigError, DataError
from core.progress import progress
from injection.config import TasksConfig
from injection.tasks import Stored, is_done, one_thread

HOME = Path(__file__).resolve().parents[1]
POLL_SECONDS = 2.0
TRIES = 10
log = logging.getLogger(__name__)


def run(stored: Stored, pieces: int, kind: str, cluster: TasksConfig) -> None:
    """Finish all pieces; what ends without a result is started again, `cluster.retries` times.

    Raises:
        ConfigError: datatrove, SLURM or Ray is not there.
        DataError: pieces have no result still.
    """
    logs = stored.path.parent
    _import("datatrove.executor", "LocalPipelineExecutor")
    _import("loguru", "logger").disable("datatrove")  # it says the same in its logs
    start = {"local": _locally, "slurm": _on_slurm, "ray": _on_ray}[cluster.executor]
    missing: list[int] = []
    with progress(total=pieces, desc=kind, stage="inject", unit="task") as bar:
        for _ in range(cluster.retries + 1):
            missing = _missing(stored, pieces, logs)
            bar.update(pieces - len(missing) - bar.n)
            if not missing:
                return
            start(stored, pieces, missing, cluster)
    missing = _missing(stored, pieces, logs)
    if missing:
        raise DataError(
            f"{kind}: {len(missing)} of {pieces} tasks ended without a result, the first is "
            f"{missing[0]}: see {logs}/logs/task_{missing[0]:05d}.log. What is finished is kept: "
            "give the same command again."
        )


def _missing(stored: Stored, pieces: int, logs: Path) -> list[int]:
    """The pieces without a result, which datatrove then counts as not completed either."""
    missing = [piece for piece in range(pieces) if not is_done(stored, piece)]
    for piece in missing:
        (logs / f"completions/{piece:05d}").unlink(missing_ok=True)
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
    executor([stored], pieces, logging_dir=str(stored.path.parent))._run_for_rank(piece, 1)


def _on_slurm(stored: Stored, pieces: int, missing: Sequence[int], cluster: TasksConfig) -> None:
    """An array job; jobs of this corpus that are still queued are waited for instead."""
    executor = _import("datatrove.executor.slurm", "SlurmPipelineExecutor")
    if shutil.which("sbatch") is None:
        raise ConfigError(
            "cluster.executor is slurm, but there is no sbatch here: give the command on a machine "
            "that can submit jobs, or choose cluster.executor=local."
        )
    logs = stored.path.parent
    name = re.sub(r"\W+", "-", f"{logs.parents[2].name}-{logs.name}")
    if not _queued(name):
        made = executor(
            *([stored], pieces, cluster.time, cluster.partition),
            workers=cluster.workers,
            mem_per_cpu_gb=cluster.memory_gb,
            job_name=name,
            qos=None,
            env_command=f"export PATH={Path(sys.executable).parent}:$PATH PYTHONPATH={HOME}",
            sbatch_args=dict(cluster.sbatch),
            logging_dir=str(logs),
            with_srun=False,
        )
        made.launch_merge_stats = _no_statistics  # a job that waits for ever where one task failed
        try:
            made.run()
        except subprocess.CalledProcessError as error:
            said = " ".join(str(error.stderr or error).split())
            raise ConfigError(f"cluster.executor is slurm, but sbatch refuses: {said}") from error
    while _queued(name):
        time.sleep(POLL_SECONDS)


def _no_statistics() -> None:
    return None


def _queued(name: str) -> bool:
    """Whether jobs of that name wait or run; a SLURM that is busy may fail to say so at times."""
    call = ["squeue", "--me", "--noheader", f"--name={name}", "--format=%i"]
    for left in reversed(range(TRIES)):
        try:
            return bool(subprocess.check_output(call, stderr=subprocess.PIPE).split())
        except (OSError, subprocess.CalledProcessError) as error:
            if not left:
                said = str(getattr(error, "stderr", None) or error)
                raise ConfigError(
                    f"cluster.executor is slurm, but squeue says {said!r}."
                ) from error
        time.sleep(POLL_SECONDS)
    return False


def _on_ray(stored: Stored, pieces: int, missing: Sequence[int], cluster: TasksConfig) -> None:
    """The Ray cluster of RAY_ADDRESS, or one that is started here."""
    executor = _import("datatrove.executor", "RayPipelineExecutor")
    environment = {"env_vars": {"PYTHONPATH": str(HOME), "TOKENIZERS_PARALLELISM": "false"}}
    if not _import("ray", "is_initialized")():
        init = _import("ray", "init")
        init(runtime_env=environment, log_to_driver=False, include_dashboard=False)
    logs, workers = str(stored.path.parent), cluster.workers
    memory = cluster.memory_gb
    executor([stored], pieces, workers, logging_dir=logs, mem_per_cpu_gb=memory).run()

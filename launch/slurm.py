"""SLURM: an array job a stage, in which each cell is a task, by submitit.

A task waits for its own cell's earlier stage only (`aftercorr`); the report waits for all. Submitit
writes the batch scripts, and queues a job again whose time is up.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from contamination.core.errors import ConfigError
from contamination.launch import snapshot
from contamination.launch.cells import CellFolder, Launch
from contamination.launch.config import STAGES, ClusterConfig
from contamination.launch.saved_config import arguments

ANALYSE = "analyse"
SLICED_STAGE = "detect"
log = logging.getLogger(__name__)
STOPPED = 128 + signal.SIGTERM  # the exit status of a command that saved before it ended


@dataclass
class Job:
    """What a SLURM job runs: a command, as a process of its own."""

    retries: int  # how often it is started again after it was killed
    requeues: int  # how often the job is queued again after SIGTERM
    child: ClassVar[subprocess.Popen[bytes] | None] = None

    def __call__(self, call: Sequence[str]) -> None:
        """Run it to its end.

        Raises:
            SystemExit: it failed, and what depends on this job is not run; or it is queued again.
        """
        for left in reversed(range(self.retries + 1)):
            Job.child = subprocess.Popen(call)
            status = Job.child.wait()
            if status == 0:
                return
            if status == STOPPED:
                self._queue_again()
            killed = (status < 0 or status > 128) and status != STOPPED
            if left == 0 or not killed:
                sys.exit(status if status > 0 else 128 - status)  # as a shell names a signal

    def checkpoint(self, call: Sequence[str]) -> Any:
        """What submitit calls when the time is up: let the command save, to be queued again."""
        from submitit.helpers import DelayedSubmission

        if Job.child is not None:  # else the time was up before it began
            Job.child.terminate()
            with suppress(ChildProcessError):  # it has ended
                # `wait` is not reentrant
                os.waitid(os.P_PID, Job.child.pid, os.WEXITED | os.WNOWAIT)
        return DelayedSubmission(self, call)

    def _queue_again(self) -> None:
        """Unless SLURM ends this job or queues it itself."""
        job, restarts = os.environ["SLURM_JOB_ID"], int(os.environ.get("SLURM_RESTART_COUNT", 0))
        shown = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True)
        if "JobState=RUNNING" in shown.stdout and restarts < self.requeues:
            subprocess.run(["scontrol", "requeue", job], check=True)


def submit(
    launch: Launch,
    code: Path,
    cluster: ClusterConfig,
    cells: Sequence[CellFolder],
    until: str | None,
) -> None:
    """Submit the cells' stages as far as `until`; without it all, and the report after them.

    Raises:
        ConfigError: there is no SLURM, or it refuses a job; those before it stay.
    """
    if shutil.which("sbatch") is None:
        raise ConfigError(
            "cluster.kind is slurm, but there is no sbatch here: give the command on a machine "
            "that can submit jobs; launch.dry_run=true prints the batch scripts anywhere."
        )
    before: str | None = None
    for cell in cells:
        cell.write_jobs({})
    for stage in _stages(until):
        if stage == SLICED_STAGE and cluster.slices > 1:
            before = ":".join(_submit_slices(launch, code, cluster, cell) for cell in cells)
            continue
        places = [launch.folder] if stage == ANALYSE else [cell.folder for cell in cells]
        executor = _executor(launch, code, cluster, stage, _dependency(stage, before, len(cells)))
        made = _submit_array(executor, cluster, stage, [command(stage, place) for place in places])
        before = _array_job_id(made[0])
        if stage != ANALYSE:
            for cell, job in zip(cells, made, strict=True):
                cell.write_jobs({**cell.read_jobs(), stage: job})


def _submit_slices(launch: Launch, code: Path, cluster: ClusterConfig, cell: CellFolder) -> str:
    """Submit the slices of a cell's detection, and what then scores; the job that does."""
    slices = [f"{number}/{cluster.slices}" for number in range(1, cluster.slices + 1)]
    for words in slices:
        cell.slice_folder(words).folder.mkdir(parents=True, exist_ok=True)
        cell.slice_folder(words).write_waiting()
    jobs = cell.read_jobs()
    calls = [command(SLICED_STAGE, cell.folder, words) for words in slices]
    made = _submit_array(
        _slice_executor(launch, code, cluster, jobs["train"]), cluster, SLICED_STAGE, calls
    )
    jobs |= {f"{SLICED_STAGE} {words}": job for words, job in zip(slices, made, strict=True)}
    cell.write_jobs(jobs)
    executor = _slice_executor(launch, code, cluster, jobs["train"], _array_job_id(made[0]))
    (scores,) = _submit_array(executor, cluster, SLICED_STAGE, [command(SLICED_STAGE, cell.folder)])
    cell.write_jobs({**jobs, SLICED_STAGE: scores})
    return scores


def _submit_array(
    executor: Any, cluster: ClusterConfig, stage: str, calls: Sequence[Sequence[str]]
) -> list[str]:
    """Submit an array of commands; its tasks' ids."""
    log.info("%s", script(executor, len(calls)))
    try:
        made = executor.map_array(Job(cluster.retries, cluster.requeues), calls)
    except RuntimeError as error:
        raise ConfigError(f"cluster.jobs.{stage}: {' '.join(str(error).split())}") from error
    log.info("%s: job %s", stage, _array_job_id(str(made[0].job_id)))
    return [str(job.job_id) for job in made]


def _array_job_id(task: str) -> str:
    return task.split("_")[0]


def described(
    launch: Launch, code: Path, cluster: ClusterConfig, cells: int, until: str | None
) -> str:
    """The batch scripts that would be submitted; it takes no SLURM to say."""
    found = []
    for stage in _stages(until):
        before = None if stage == STAGES[0] else "<the job before>"
        if stage == SLICED_STAGE and cluster.slices > 1:
            found += [f"# these two jobs for each of {cells} cells:"] * (cells > 1)
            found.append(
                script(_slice_executor(launch, code, cluster, str(before)), cluster.slices)
            )
            found.append(
                script(_slice_executor(launch, code, cluster, str(before), "<the slices>"), 1)
            )
            continue
        executor = _executor(launch, code, cluster, stage, _dependency(stage, before, cells))
        found.append(script(executor, 1 if stage == ANALYSE else cells))
    return "\n".join(found)


def _slice_executor(
    launch: Launch, code: Path, cluster: ClusterConfig, trained: str, slices: str | None = None
) -> Any:
    """What submits a cell's slices, or the job after them, which makes what failed ones lack."""
    after = f"afterok:{trained}" + (f",afterany:{slices}" if slices else "")
    waits = {"dependency": after, "kill-on-invalid-dep": "yes"}
    words = None if slices else f"I/{cluster.slices}"
    return _executor(launch, code, cluster, SLICED_STAGE, waits, words)


def command(stage: str, place: Path, words: str | None = None) -> list[str]:
    """What a task runs: a stage of the cell in that folder, or a slice; or the launch's report."""
    more = [*arguments(place), f"launch.stage={stage}"]
    more += [] if words is None else [f"launch.slice={words}"]
    more = ["report", str(place)] if stage == ANALYSE else more
    return [sys.executable, "-m", "contamination.launch", *more]


def script(executor: Any, tasks: int) -> str:
    """The batch script that submitit is going to write."""
    whole = {**executor.parameters, "map_count": tasks} if tasks > 1 else executor.parameters
    copy = type(executor)(executor.folder, python=executor.python)
    copy.parameters = whole
    return str(copy._make_submission_file_text(copy._submitit_command_str, "0"))


def _executor(
    launch: Launch,
    code: Path,
    cluster: ClusterConfig,
    stage: str,
    dependency: dict[str, str],
    words: str | None = None,
) -> Any:
    """What submits a stage's jobs; with `words` those of slices, such as 2/8."""
    options = cluster.job(stage)
    delay = options.pop("signal_delay_s", 120)
    more = {"signal": f"B:USR2@{delay}", "requeue": True, **dependency}
    more |= options.pop("additional_parameters", {})
    each = command(stage, launch.folder if stage == ANALYSE else Path("CELL"), words)
    name = f"{launch.folder.name}-{stage}{'-slices' if words else ''}"
    setup = [f"# each task runs: {shlex.join(each)}"]
    setup += [f"export {k}={shlex.quote(v)}" for k, v in snapshot.environment(code).items()]
    try:
        # exec: SLURM's signal is for the batch script, so Python takes the script's place
        executor = _slurm_executor_class()(
            launch.folder / "jobs",
            max_num_timeout=cluster.requeues,
            python=f"exec {shlex.quote(sys.executable)}",
        )
        executor.update_parameters(
            **{"job_name": name, "setup": [], **options},
            use_srun=False,
            stderr_to_stdout=True,
            additional_parameters=more,
        )
    except (RuntimeError, ValueError) as error:
        raise ConfigError(f"cluster.jobs.{stage}: {' '.join(str(error).split())}") from error
    executor.parameters["setup"] = [*executor.parameters["setup"], *setup]
    return executor


def _slurm_executor_class() -> Any:
    """Submitit's executor, which here describes jobs also where there is no SLURM."""
    try:
        from submitit import SlurmExecutor as Submitits
    except ImportError as error:
        raise ConfigError(
            "cluster.kind is slurm, which needs submitit: pip install 'submitit>=1.5,<1.6'."
        ) from error

    class SlurmExecutor(Submitits):  # type: ignore[misc]
        @classmethod
        def affinity(cls) -> int:
            return 1

    return SlurmExecutor


def _stages(until: str | None) -> Sequence[str]:
    return STAGES[: STAGES.index(until) + 1] if until else (*STAGES, ANALYSE)


def _dependency(stage: str, before: str | None, cells: int) -> dict[str, str]:
    """What the stage's job waits for."""
    if before is None:
        return {}
    if stage == ANALYSE:  # on what there is, whatever failed
        return {"dependency": f"afterany:{before}"}
    kind = "aftercorr" if cells > 1 else "afterok"
    return {"dependency": f"{kind}:{before}", "kill-on-invalid-dep": "yes"}


def queued(cells: Sequence[CellFolder]) -> set[str]:
    """The cells' jobs that still wait or run, by the names that submitit gives tasks."""
    jobs = {job for cell in cells for job in cell.read_jobs().values()}
    if not jobs:
        return set()
    call = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
    try:
        shown = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(
            f"cluster.kind is slurm, but squeue can't say which jobs are queued ({error})."
        ) from error
    return jobs & {*shown.split()}

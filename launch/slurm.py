"""SLURM: submitit submits one array job per stage, in which each cell is a task.

A task waits only for its own cell's earlier stage (`aftercorr`); the report waits for all cells.
Submitit writes the batch scripts, and queues a job again when its time is up.
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
from contamination.launch.saved_config import config_arguments

ANALYSE = "analyse"
SLICED_STAGE = "detect"
log = logging.getLogger(__name__)
STOPPED = 128 + signal.SIGTERM
"""The exit status of a command that was stopped by SIGTERM and saved its work."""


@dataclass
class Job:
    """What a SLURM job runs: a command in a child process."""

    retries: int  # how often the command is started again after it was killed
    requeues: int  # how often the job is queued again after SIGTERM
    child: ClassVar[subprocess.Popen[bytes] | None] = None

    def __call__(self, call: Sequence[str]) -> None:
        """Runs the command until it ends.

        Raises:
            SystemExit: the command failed, so that jobs that depend on this one are not run; or
                this job is queued again.
        """
        for tries_left in reversed(range(self.retries + 1)):
            Job.child = subprocess.Popen(call)
            status = Job.child.wait()
            if status == 0:
                return
            if status == STOPPED:
                self._queue_again()
            killed = (status < 0 or status > 128) and status != STOPPED
            if tries_left == 0 or not killed:
                sys.exit(status if status > 0 else 128 - status)  # a shell's status after a signal

    def checkpoint(self, call: Sequence[str]) -> Any:
        """Lets the command save, and queues it again; submitit calls this when the time is up."""
        from submitit.helpers import DelayedSubmission

        if Job.child is not None:  # else the time was up before the command began
            Job.child.terminate()
            with suppress(ChildProcessError):  # it has already ended
                # `wait` is not reentrant
                os.waitid(os.P_PID, Job.child.pid, os.WEXITED | os.WNOWAIT)
        return DelayedSubmission(self, call)

    def _queue_again(self) -> None:
        """Queues this job again, unless SLURM is ending it or queues it itself."""
        job, restarts = os.environ["SLURM_JOB_ID"], int(os.environ.get("SLURM_RESTART_COUNT", 0))
        show = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True)
        if "JobState=RUNNING" in show.stdout and restarts < self.requeues:
            subprocess.run(["scontrol", "requeue", job], check=True)


def submit_cells(
    launch: Launch,
    code: Path,
    cluster: ClusterConfig,
    cells: Sequence[CellFolder],
    until: str | None,
) -> None:
    """Submits the cells' stages up to `until`; without it all stages, and the report after them.

    Raises:
        ConfigError: there is no SLURM, or it refuses a job; jobs submitted before stay queued.
    """
    if shutil.which("sbatch") is None:
        raise ConfigError(
            "cluster.kind is slurm, but there is no sbatch here: give the command on a machine "
            "that can submit jobs; launch.dry_run=true prints the batch scripts anywhere."
        )
    previous_job: str | None = None
    for cell in cells:
        cell.write_jobs({})
    for stage in _stages_until(until):
        if stage == SLICED_STAGE and cluster.slices > 1:
            previous_job = ":".join(_submit_slices(launch, code, cluster, cell) for cell in cells)
            continue
        folders = [launch.folder] if stage == ANALYSE else [cell.folder for cell in cells]
        dependency = _dependency_options(stage, previous_job, len(cells))
        executor = _make_executor(launch, code, cluster, stage, dependency)
        calls = [task_command(stage, folder) for folder in folders]
        tasks = _submit_array(executor, cluster, stage, calls)
        previous_job = _array_job_id(tasks[0])
        if stage != ANALYSE:
            for cell, job in zip(cells, tasks, strict=True):
                cell.write_jobs({**cell.read_jobs(), stage: job})


def _submit_slices(launch: Launch, code: Path, cluster: ClusterConfig, cell: CellFolder) -> str:
    """Submits the slices of a cell's detection and the job that then scores; returns that job."""
    slices = [f"{number}/{cluster.slices}" for number in range(1, cluster.slices + 1)]
    for fraction in slices:
        cell.slice_folder(fraction).folder.mkdir(parents=True, exist_ok=True)
        cell.slice_folder(fraction).write_waiting()
    jobs = cell.read_jobs()
    calls = [task_command(SLICED_STAGE, cell.folder, fraction) for fraction in slices]
    tasks = _submit_array(
        _make_slice_executor(launch, code, cluster, jobs["train"]), cluster, SLICED_STAGE, calls
    )
    jobs |= {f"{SLICED_STAGE} {fraction}": job for fraction, job in zip(slices, tasks, strict=True)}
    cell.write_jobs(jobs)
    executor = _make_slice_executor(launch, code, cluster, jobs["train"], _array_job_id(tasks[0]))
    (scores,) = _submit_array(
        executor, cluster, SLICED_STAGE, [task_command(SLICED_STAGE, cell.folder)]
    )
    cell.write_jobs({**jobs, SLICED_STAGE: scores})
    return scores


def _submit_array(
    executor: Any, cluster: ClusterConfig, stage: str, calls: Sequence[Sequence[str]]
) -> list[str]:
    """Submits an array of commands and returns its tasks' ids."""
    log.info("%s", render_batch_script(executor, len(calls)))
    try:
        jobs = executor.map_array(Job(cluster.retries, cluster.requeues), calls)
    except RuntimeError as error:
        raise ConfigError(f"cluster.jobs.{stage}: {' '.join(str(error).split())}") from error
    log.info("%s: job %s", stage, _array_job_id(str(jobs[0].job_id)))
    return [str(job.job_id) for job in jobs]


def _array_job_id(task: str) -> str:
    return task.split("_")[0]


def render_batch_scripts(
    launch: Launch, code: Path, cluster: ClusterConfig, cells: int, until: str | None
) -> str:
    """Returns the batch scripts that would be submitted; this works without SLURM."""
    scripts = []
    for stage in _stages_until(until):
        before = None if stage == STAGES[0] else "<the job before>"
        if stage == SLICED_STAGE and cluster.slices > 1:
            scripts += [f"# these two jobs for each of {cells} cells:"] * (cells > 1)
            scripts.append(
                render_batch_script(
                    _make_slice_executor(launch, code, cluster, str(before)), cluster.slices
                )
            )
            scripts.append(
                render_batch_script(
                    _make_slice_executor(launch, code, cluster, str(before), "<the slices>"), 1
                )
            )
            continue
        executor = _make_executor(
            launch, code, cluster, stage, _dependency_options(stage, before, cells)
        )
        scripts.append(render_batch_script(executor, 1 if stage == ANALYSE else cells))
    return "\n".join(scripts)


def _make_slice_executor(
    launch: Launch, code: Path, cluster: ClusterConfig, trained: str, slices: str | None = None
) -> Any:
    """Returns the executor of a cell's slices, or of the job after them.

    That job also makes what failed slices lack.
    """
    after = f"afterok:{trained}" + (f",afterany:{slices}" if slices else "")
    dependency = {"dependency": after, "kill-on-invalid-dep": "yes"}
    fraction = None if slices else f"I/{cluster.slices}"
    return _make_executor(launch, code, cluster, SLICED_STAGE, dependency, fraction)


def task_command(stage: str, folder: Path, fraction: str | None = None) -> list[str]:
    """Returns the command of a task: a stage or slice of a cell, or the launch's report.

    Args:
        stage: `inject`, `train`, `detect` or `analyse`.
        folder: the cell's folder; for `analyse`, the launch's.
        fraction: the slice, such as `2/8`; None: the whole stage.
    """
    if stage == ANALYSE:
        arguments = ["report", str(folder)]
    else:
        arguments = [*config_arguments(folder), f"launch.stage={stage}"]
        arguments += [] if fraction is None else [f"launch.slice={fraction}"]
    return [sys.executable, "-m", "contamination.launch", *arguments]


def render_batch_script(executor: Any, tasks: int) -> str:
    """Returns the batch script that submitit will write."""
    parameters = {**executor.parameters, "map_count": tasks} if tasks > 1 else executor.parameters
    copy = type(executor)(executor.folder, python=executor.python)
    copy.parameters = parameters
    return str(copy._make_submission_file_text(copy._submitit_command_str, "0"))


def _make_executor(
    launch: Launch,
    code: Path,
    cluster: ClusterConfig,
    stage: str,
    dependency: dict[str, str],
    fraction: str | None = None,
) -> Any:
    """Returns submitit's executor for a stage's jobs; with `fraction`, such as 2/8, for slices."""
    options = cluster.job_options(stage)
    delay = options.pop("signal_delay_s", 120)
    parameters = {"signal": f"B:USR2@{delay}", "requeue": True, **dependency}
    parameters |= options.pop("additional_parameters", {})
    call = task_command(stage, launch.folder if stage == ANALYSE else Path("CELL"), fraction)
    job_name = f"{launch.folder.name}-{stage}{'-slices' if fraction else ''}"
    setup = [f"# each task runs: {shlex.join(call)}"]
    setup += [
        f"export {k}={shlex.quote(v)}" for k, v in snapshot.environment_variables(code).items()
    ]
    try:
        # exec: SLURM sends its signal to the batch script, so Python replaces the script
        executor = _slurm_executor_class()(
            launch.folder / "jobs",
            max_num_timeout=cluster.requeues,
            python=f"exec {shlex.quote(sys.executable)}",
        )
        executor.update_parameters(
            **{"job_name": job_name, "setup": [], **options},
            use_srun=False,
            stderr_to_stdout=True,
            additional_parameters=parameters,
        )
    except (RuntimeError, ValueError) as error:
        raise ConfigError(f"cluster.jobs.{stage}: {' '.join(str(error).split())}") from error
    executor.parameters["setup"] = [*executor.parameters["setup"], *setup]
    return executor


def _slurm_executor_class() -> Any:
    """Returns a subclass of submitit's executor that describes jobs without SLURM as well."""
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


def _stages_until(until: str | None) -> Sequence[str]:
    return STAGES[: STAGES.index(until) + 1] if until else (*STAGES, ANALYSE)


def _dependency_options(stage: str, before: str | None, cells: int) -> dict[str, str]:
    if before is None:
        return {}
    if stage == ANALYSE:  # the report is written even if cells failed
        return {"dependency": f"afterany:{before}"}
    condition = "aftercorr" if cells > 1 else "afterok"
    return {"dependency": f"{condition}:{before}", "kill-on-invalid-dep": "yes"}


def queued_job_ids(cells: Sequence[CellFolder]) -> set[str]:
    """Returns the ids of the cells' jobs that are waiting or running."""
    jobs = {job for cell in cells for job in cell.read_jobs().values()}
    if not jobs:
        return set()
    command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
    try:
        listed_ids = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(
            f"cluster.kind is slurm, but squeue can't say which jobs are queued ({error})."
        ) from error
    return jobs & {*listed_ids.split()}

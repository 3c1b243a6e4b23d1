"""A stage in separate processes: the command that starts them, their exit and their errors."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from contamination.core import process_records, signals
from contamination.core.artifacts import is_complete
from contamination.core.errors import ConfigError, StoppedError, UserError
from contamination.core.parent_process import command_ending_with_parent
from contamination.core.signals import defer_signals
from contamination.core.user_files import open_to_read
from contamination.launch import snapshot
from contamination.launch.config import PACKAGES, ClusterConfig
from contamination.launch.saved_config import config_arguments

RENDEZVOUS_SECONDS = 3600  # one node may still be making an artefact that the others wait for
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
log = logging.getLogger(__name__)


class CrashedError(UserError):
    """Processes of a stage ended, and not because of a user's error that they reported.

    Attributes:
        known: whether the reason is known. If the same one is repeated, a third try is no help.
    """

    status = 1

    def __init__(self, message: str, *, known: bool) -> None:
        super().__init__(message)
        self.known = known


@dataclass(frozen=True)
class Processes:
    """How a stage's processes are started."""

    cluster: ClusterConfig
    stage: str  # `train` or `detect`
    folder: Path  # the cell's, where they leave their records
    code: Path  # the snapshot that they run

    @property
    def count(self) -> int:
        """The number of processes; with a hostfile, that of its slots."""
        cluster = self.cluster
        if cluster.kind == "slurm":
            job = cluster.job_options(self.stage)
            return int(job.get("nodes") or 1) * int(job.get("ntasks_per_node") or 1)
        if cluster.kind == "deepspeed":
            return sum(_read_slots(Path(str(cluster.hostfile))))
        return cluster.nodes * cluster.processes

    @property
    def local_count(self) -> int:
        """The number of processes that this command starts: each node may have its own command."""
        if self.cluster.kind == "deepspeed" and "--no_ssh" in self.cluster.options:
            return self.count // len(_read_slots(Path(str(self.cluster.hostfile))))
        return self.count // (self.cluster.nodes if self.cluster.kind == "torchrun" else 1)

    @property
    def is_in_process(self) -> bool:
        """Whether the stage runs in the pipeline's own process."""
        return self.count == 1 and self.cluster.kind != "deepspeed"

    def config_folder(self, run_name: str) -> Path:
        """Returns the folder of the configuration that the processes of this run read."""
        return self.folder / "stages" / f"{self.stage}-{run_name}"

    def command(self, run_name: str) -> list[str]:
        """Returns the command that starts the processes of this run."""
        folder = self.config_folder(run_name)
        return [
            *self._launcher_command(folder.name),
            PACKAGES[self.stage],
            *config_arguments(folder),
        ]

    def run_with_retries(self, run_name: str, artifact: Path | None) -> None:
        """Starts the processes; if they crash, starts them again up to `cluster.retries` times.

        Args:
            run_name: names the configuration that they read.
            artifact: the folder that they complete; None, as for a slice: only their exit status
                tells that they are done.

        Raises:
            UserError: an error of the user's that one of them reported.
            StoppedError: a signal was received, and they have saved their work.
            CrashedError: they crashed too often.
        """
        command, last_error = self.command(run_name), ""
        for retries_left in reversed(range(self.cluster.retries + 1)):
            log.info("%s: %s", self.config_folder(run_name).name, shlex.join(command))
            if self.cluster.node_rank == 0:
                process_records.clear_records(self.folder)
            status, stopped = _run_command(command, self._environment(), self._ask_to_stop)
            if status == 0 and artifact is not None:
                _wait_for_artifact(artifact)
            done = status == 0 if artifact is None else is_complete(artifact)
            if done and not stopped:  # whatever the status: it may be another node's
                return
            error = self._error_of_exit(status, stopped)
            if retries_left == 0 or not isinstance(error, CrashedError):
                raise error
            if error.known and str(error) == last_error:
                raise error
            last_error, retries = str(error), f"{retries_left - 1} more after this"
            log.error("%s\nStarting again from the last checkpoint; %s.", error, retries)

    def _launcher_command(self, run_name: str) -> list[str]:
        cluster, python = self.cluster, [sys.executable, "-m"]
        if cluster.kind == "slurm":
            job = cluster.job_options(self.stage)
            tasks = _format_options(ntasks=self.count, kill_on_bad_exit=1)
            if "cpus_per_task" in job:
                tasks += _format_options(cpus_per_task=job["cpus_per_task"])
            return ["srun", *tasks, *cluster.options, *python]
        if cluster.kind == "deepspeed":
            hosts = ["--hostfile", str(cluster.hostfile), "--master_addr", cluster.address]
            hosts += ["--master_port", str(cluster.port), "--no_local_rank"]
            return [*python, "deepspeed.launcher.runner", *hosts, *cluster.options, "--module"]
        here = _format_options(
            nproc_per_node=cluster.processes, shutdown_timeout=cluster.grace_seconds
        )
        torchrun = [*python, "torch.distributed.run", *self._rendezvous_options(run_name), *here]
        return [*torchrun, *cluster.options, "-m"]

    def _rendezvous_options(self, run_name: str) -> list[str]:
        cluster = self.cluster
        if cluster.nodes == 1:
            return ["--standalone"]
        if cluster.rendezvous == "c10d":
            return _format_options(
                nnodes=cluster.nodes,
                rdzv_backend="c10d",
                rdzv_endpoint=f"{cluster.address}:{cluster.port}",
                rdzv_id=f"{self.folder.name}-{run_name}",
                rdzv_conf=f"join_timeout={RENDEZVOUS_SECONDS}",
            )
        nodes = _format_options(nnodes=cluster.nodes, node_rank=cluster.node_rank)
        first_node = _format_options(master_addr=cluster.address, master_port=cluster.port)
        return [*nodes, *first_node, f"--rdzv-conf=timeout={RENDEZVOUS_SECONDS}"]

    def _environment(self) -> dict[str, str]:
        """Returns this process's environment without its own rank, and with the snapshot's code."""
        variables = {name: value for name, value in os.environ.items() if name not in LAUNCHER}
        if self.cluster.kind == "slurm":
            variables["MASTER_ADDR"] = socket.gethostname()  # a batch script runs on the first node
        return {**variables, **snapshot.environment_variables(self.code)}

    def _ask_to_stop(self, process: subprocess.Popen[bytes]) -> None:
        """Lets them save and end. Not every launcher passes SIGTERM on to its processes."""
        if self.cluster.kind == "slurm":  # srun would kill its tasks
            subprocess.run(["scancel", "--signal=TERM", os.environ["SLURM_JOB_ID"]])
        elif self.cluster.kind == "deepspeed":  # it would leave them alone
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(process.pid).children(recursive=True)
                for worker in [child for child in children if not child.children()]:
                    worker.terminate()
        else:
            process.send_signal(signal.SIGTERM)

    def _error_of_exit(self, status: int, stopped: bool) -> UserError | StoppedError:
        """Returns the error that explains why they ended, from the records that they left."""
        failures = process_records.read_failures(self.folder)
        stops = [f for f in failures if f.stopped]
        if stopped and not stops:
            return signals.stopped_error("before there was anything new to save.")
        if stopped:  # whichever signal they then received
            return signals.stopped_error(stops[0].message.partition(f"{signals.RECEIVED} ")[2])
        if stops and stops == failures:
            return StoppedError(stops[0].message, stops[0].status)
        if not failures or failures[0].is_caused_by_peers:
            symptoms = [
                f"; rank {f.rank} on {f.host} saw {f.kind}: {f.message}" for f in failures[:1]
            ]
            return CrashedError(
                f"A process of {self.stage} died without an error message (the launcher's exit "
                f"status is {status}): it was killed, perhaps because memory ran out, or can't be "
                f"reached. The launcher names it above{''.join(symptoms)}",
                known=False,
            )
        first = failures[0]
        if not first.trace:
            return UserError(first.message)
        return CrashedError(
            f"rank {first.rank} on {first.host} failed first: {first.kind}: {first.message} (its "
            f"traceback is above, and in {self.folder / process_records.FAILURES_FOLDER})",
            known=True,
        )


def _format_options(**values: object) -> list[str]:
    """Returns command-line options, such as `--node-rank=1` for `node_rank=1`."""
    return [f"--{option.replace('_', '-')}={value}" for option, value in values.items()]


def _run_command(
    call: Sequence[str],
    environment: dict[str, str],
    ask_to_stop: Callable[[subprocess.Popen[bytes]], None],
) -> tuple[int, bool]:
    """Runs a command; returns its exit status and whether a signal was received and passed on."""
    process: subprocess.Popen[bytes] | None = None

    def on_signal() -> None:
        if process is not None:
            ask_to_stop(process)

    with defer_signals(on_signal) as stopped:
        # in a session of its own, so that Ctrl-C reaches it only through `ask_to_stop`
        process = subprocess.Popen(
            command_ending_with_parent(call), env=environment, start_new_session=True
        )
        if stopped():
            ask_to_stop(process)
        try:
            return process.wait(), stopped()
        except StoppedError:  # by a second Ctrl-C
            process.terminate()
            raise


def _wait_for_artifact(artifact: Path) -> None:
    """Waits, at most a minute, until this machine sees what another one has written."""
    deadline = time.monotonic() + 60
    while not is_complete(artifact) and time.monotonic() < deadline:
        time.sleep(1)


def _read_slots(hostfile: Path) -> list[int]:
    """Returns the number of processes of each host in a DeepSpeed hostfile."""
    remedy = "write one line per host, such as worker-1 slots=8"
    try:
        with open_to_read(hostfile) as stream:
            text = stream.read().decode()
        lines = [line.split("#")[0].split() for line in text.splitlines()]
        slots = [int(dict([words[1].split("=")])["slots"]) for words in lines if words]
        if not slots or min(slots) < 1:
            raise ValueError
        return slots
    except (OSError, IndexError, ValueError, KeyError) as error:
        if isinstance(error, OSError):
            remedy = f"it can't be read ({error})"
        raise ConfigError(f"cluster.hostfile is {str(hostfile)!r}: {remedy}.") from error

"""A stage by processes of its own: the command that starts them, and what becomes of them."""

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
from contamination.core.parent_process import tied
from contamination.core.signals import deferred
from contamination.core.user_files import open_to_read
from contamination.launch import snapshot
from contamination.launch.config import PACKAGES, ClusterConfig
from contamination.launch.saved_config import arguments

RENDEZVOUS_SECONDS = 3600  # one node may still make what the others find made
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
log = logging.getLogger(__name__)


class CrashedError(UserError):
    """Processes of a stage ended, by no mistake of the user's that is known."""

    status = 1

    def __init__(self, words: str, *, known: bool) -> None:
        super().__init__(words)
        self.known = known  # why: where they say the same again, a third try is no help


@dataclass(frozen=True)
class Processes:
    """How a stage's processes are started."""

    cluster: ClusterConfig
    stage: str  # `train` or `detect`
    folder: Path  # the cell's, where they leave their records
    code: Path  # the snapshot that they run

    @property
    def count(self) -> int:
        """How many there are; with a hostfile, as many as its slots."""
        cluster = self.cluster
        if cluster.kind == "slurm":
            job = cluster.job(self.stage)
            return int(job.get("nodes") or 1) * int(job.get("ntasks_per_node") or 1)
        if cluster.kind == "deepspeed":
            return sum(_slots(Path(str(cluster.hostfile))))
        return cluster.nodes * cluster.processes

    @property
    def local_count(self) -> int:
        """Those that this command answers for: each node may have one of its own."""
        if self.cluster.kind == "deepspeed" and "--no_ssh" in self.cluster.options:
            return self.count // len(_slots(Path(str(self.cluster.hostfile))))
        return self.count // (self.cluster.nodes if self.cluster.kind == "torchrun" else 1)

    @property
    def in_process(self) -> bool:
        """Whether the stage is one process, the pipeline's own."""
        return self.count == 1 and self.cluster.kind != "deepspeed"

    def config_folder(self, run: str) -> Path:
        """The folder of the configuration that the stage's processes read in a run of this name."""
        return self.folder / "stages" / f"{self.stage}-{run}"

    def command(self, run: str) -> list[str]:
        """What starts the stage's package as that many processes."""
        place = self.config_folder(run)
        return [*self._launcher(place.name), PACKAGES[self.stage], *arguments(place)]

    def run(self, run: str, artifact: Path | None) -> None:
        """Start them to make the artefact; what crashed is started again `cluster.retries` times.

        Without an artefact, as of a slice, their exit status alone says that they are done.

        Raises:
            UserError: what one of them said that the user can mend.
            StoppedError: a signal came, and they have saved what they did.
            CrashedError: they crashed once too often; the first one's traceback comes first.
        """
        call, before = self.command(run), ""
        for left in reversed(range(self.cluster.retries + 1)):
            log.info("%s: %s", self.config_folder(run).name, shlex.join(call))
            if self.cluster.node_rank == 0:
                process_records.forget(self.folder)
            status, stopped = _wait(call, self._environment(), self._ask_to_stop)
            if status == 0 and artifact is not None:
                _await(artifact)
            done = status == 0 if artifact is None else is_complete(artifact)
            if done and not stopped:  # of another node's status this one may say
                return
            error = self._error(status, stopped)
            again = isinstance(error, CrashedError) and not (error.known and str(error) == before)
            if left == 0 or not again:
                raise error
            before, more = str(error), f"{left - 1} more after this"
            log.error("%s\nStarting again from the last checkpoint; %s.", error, more)

    def _launcher(self, name: str) -> list[str]:
        cluster, python = self.cluster, [sys.executable, "-m"]
        if cluster.kind == "slurm":
            job = cluster.job(self.stage)
            tasks = _options(ntasks=self.count, kill_on_bad_exit=1)
            if "cpus_per_task" in job:
                tasks += _options(cpus_per_task=job["cpus_per_task"])
            return ["srun", *tasks, *cluster.options, *python]
        if cluster.kind == "deepspeed":
            hosts = ["--hostfile", str(cluster.hostfile), "--master_addr", cluster.address]
            hosts += ["--master_port", str(cluster.port), "--no_local_rank"]
            return [*python, "deepspeed.launcher.runner", *hosts, *cluster.options, "--module"]
        here = _options(nproc_per_node=cluster.processes, shutdown_timeout=cluster.grace_seconds)
        torchrun = [*python, "torch.distributed.run", *self._rendezvous(name), *here]
        return [*torchrun, *cluster.options, "-m"]

    def _rendezvous(self, name: str) -> list[str]:
        """How torchrun's nodes find each other."""
        cluster = self.cluster
        if cluster.nodes == 1:
            return ["--standalone"]
        if cluster.rendezvous == "c10d":
            return _options(
                nnodes=cluster.nodes,
                rdzv_backend="c10d",
                rdzv_endpoint=f"{cluster.address}:{cluster.port}",
                rdzv_id=f"{self.folder.name}-{name}",
                rdzv_conf=f"join_timeout={RENDEZVOUS_SECONDS}",
            )
        nodes = _options(nnodes=cluster.nodes, node_rank=cluster.node_rank)
        place = _options(master_addr=cluster.address, master_port=cluster.port)
        return [*nodes, *place, f"--rdzv-conf=timeout={RENDEZVOUS_SECONDS}"]

    def _environment(self) -> dict[str, str]:
        """This process's, less the place that it took itself, with the snapshot's code."""
        kept = {name: value for name, value in os.environ.items() if name not in LAUNCHER}
        if self.cluster.kind == "slurm":
            kept["MASTER_ADDR"] = socket.gethostname()  # a batch script runs on the first node
        return {**kept, **snapshot.environment(self.code)}

    def _ask_to_stop(self, process: subprocess.Popen[bytes]) -> None:
        """Let them save and end. Not every launcher passes SIGTERM on to its processes."""
        if self.cluster.kind == "slurm":  # srun would kill its tasks
            subprocess.run(["scancel", "--signal=TERM", os.environ["SLURM_JOB_ID"]])
        elif self.cluster.kind == "deepspeed":  # it would leave them alone
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(process.pid).children(recursive=True)
                for worker in [child for child in children if not child.children()]:
                    worker.terminate()
        else:
            process.send_signal(signal.SIGTERM)

    def _error(self, status: int, stopped: bool) -> UserError | StoppedError:
        """Why they ended, by what they left."""
        failures = process_records.read_failures(self.folder)
        stops = [f for f in failures if f.stopped]
        if stopped and not stops:
            return signals.stopped("before there was anything new to save.")
        if stopped:  # whatever signal they were then told by
            return signals.stopped(stops[0].message.partition(" came ")[2])
        if stops and stops == failures:
            return StoppedError(stops[0].message, stops[0].status)
        if not failures or failures[0].of_peers:
            seen = [f"; rank {f.rank} on {f.host} saw {f.kind}: {f.message}" for f in failures[:1]]
            return CrashedError(
                f"A process of {self.stage} died without a word (the launcher's exit status is "
                f"{status}): killed, perhaps for want of memory, or out of reach. The launcher "
                f"names it above{''.join(seen)}",
                known=False,
            )
        first = failures[0]
        if not first.trace:
            return UserError(first.message)
        return CrashedError(
            f"rank {first.rank} on {first.host} failed first: {first.kind}: {first.message} (its "
            f"traceback is above, and in {self.folder / process_records.FAILED})",
            known=True,
        )


def _options(**values: object) -> list[str]:
    """`--node-rank=1` for `node_rank=1`."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


def _wait(
    call: Sequence[str], environment: dict[str, str], ask: Callable[[subprocess.Popen[bytes]], None]
) -> tuple[int, bool]:
    """Run a command; its exit status, and whether a signal came. Then `ask` tells it to stop."""
    process: subprocess.Popen[bytes] | None = None

    def answer() -> None:
        if process is not None:
            ask(process)

    with deferred(answer) as stopped:
        # a session of its own: Ctrl-C in a terminal reaches it through `ask` alone
        process = subprocess.Popen(tied(call), env=environment, start_new_session=True)
        if stopped():
            ask(process)
        try:
            return process.wait(), stopped()
        except StoppedError:  # by a second Ctrl-C
            process.terminate()
            raise


def _await(artifact: Path) -> None:
    """Until this machine sees what another one has written, or a minute."""
    deadline = time.monotonic() + 60
    while not is_complete(artifact) and time.monotonic() < deadline:
        time.sleep(1)


def _slots(hostfile: Path) -> list[int]:
    """How many processes each host of a DeepSpeed hostfile takes."""
    remedy = "write a line a host, such as worker-1 slots=8"
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

"""A real SLURM of two nodes on this one host, for tests and by hand.

By hand: `python -m tests.launch.slurm_cluster start FOLDER`, and `... stop FOLDER`.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

NODES = ("n1", "n2")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "sinfo", "srun")
INSTALL = "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
DAEMONS = ("munged", "slurmctld", *(f"slurmd-{node}" for node in NODES))  # their pid files
LONGEST_FOLDER = 75  # a Unix socket's address has 107 characters, the sockets of steps are below

# cred_expire is also how long a requeued job is held off: 120 s unless told.
CONFIG = """\
ClusterName=two_nodes
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,sched_min_interval=0,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=10
MinJobAge=300
{nodes}
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=10
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF
"""
NODE = "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=4000"


def missing() -> str | None:
    """Why SLURM cannot be started here, if so."""
    if sys.platform != "linux":
        return "SLURM runs on Linux only"
    if os.geteuid() != 0:
        return "only root can start this SLURM"
    for program in PROGRAMS:
        if _path(program) is None:
            return f"{program} is not installed: {INSTALL}"
    return None


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """A running SLURM with its files below `folder`; gives the environment of its clients."""
    environment = start(folder)
    try:
        yield environment
    finally:
        stop(folder)


def start(folder: Path) -> dict[str, str]:
    """Start the daemons, wait for idle nodes and give the environment of the clients."""
    if reason := missing():
        raise RuntimeError(reason)
    folder = folder.resolve()
    if len(os.fsencode(folder)) > LONGEST_FOLDER:
        raise ValueError(f"{folder}: at most {LONGEST_FOLDER} bytes, choose a shorter path")
    if any(_daemon(folder, name) for name in DAEMONS):
        raise RuntimeError(f"{folder}: its SLURM is running already")
    environment = {"SLURM_CONF": f"{folder}/slurm.conf"}
    try:
        _configure(folder)
        _launch(folder)
        _wait(lambda: _idle(environment) == len(NODES), f"no idle nodes, see {folder}/*.log", 60)
    except BaseException:
        stop(folder)
        raise
    return environment


def stop(folder: Path) -> None:
    """Stop the daemons and what is left of their jobs' steps."""
    folder = folder.resolve()
    _end([found for name in DAEMONS for found in _daemon(folder, name)], signal.SIGTERM)
    _end(_steps(folder), signal.SIGKILL)  # a step without its slurmd would go on, or wait for it


def _path(program: str) -> str | None:
    """Where it is; the daemons' folder is not on everyone's PATH."""
    return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


def _call(program: str, *arguments: str, env: dict[str, str] | None = None) -> str:
    """Its output; a daemon's call returns once it runs in the background."""
    call = [_path(program) or program, *arguments]
    done = subprocess.run(
        call, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{program} failed: {done.stdout[-4000:]}")
    return done.stdout


def _launch(folder: Path) -> None:
    """Start the daemons."""
    munged = [f"--{name}={folder}/munge.{name}" for name in ("socket", "key-file", "seed-file")]
    munged += [f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log"]
    _call("munged", "--force", *munged)  # as root, with its files in a folder of anyone's
    _call("slurmctld", "-c", "-f", f"{folder}/slurm.conf")
    for node in NODES:
        _call("slurmd", "-N", node, "-f", f"{folder}/slurm.conf")


def _configure(folder: Path) -> None:
    """Write the configuration and munge's key."""
    for name in ("", "state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir(parents=True, exist_ok=True)
    key = folder / "munge.key-file"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    host = socket.gethostname().partition(".")[0]
    port, *node_ports = _free_ports(1 + len(NODES))
    nodes = [
        NODE.format(node=node, host=host, port=node_port)
        for node, node_port in zip(NODES, node_ports, strict=True)
    ]
    text = CONFIG.format(folder=folder, host=host, port=port, nodes="\n".join(nodes))
    (folder / "slurm.conf").write_text(text)
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")  # no cgroups are needed


def _free_ports(number: int) -> list[int]:
    """Different ports that nothing listens on."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _idle(environment: dict[str, str]) -> int:
    """How many nodes are idle; none as long as slurmctld does not answer."""
    try:
        found = _call("sinfo", "-h", "-N", "-p", "main", "-t", "idle", "-o", "%N", env=environment)
    except (RuntimeError, subprocess.TimeoutExpired):
        return 0
    return len(found.split())


def _daemon(folder: Path, name: str) -> list[psutil.Process]:
    """The daemon, if it runs."""
    try:
        process = psutil.Process(int((folder / f"{name}.pid").read_text()))
        ours = any(f"{folder}/" in argument for argument in process.cmdline())
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
        return []
    return [process] if ours else []  # not a later process of that number


def _steps(folder: Path) -> list[psutil.Process]:
    """What runs the jobs of this cluster, and the jobs' processes."""
    found = []
    for process in psutil.process_iter(["name", "cwd"]):
        # A step's title hides its arguments and environment; slurmd works in its logs' folder.
        if (process.info["name"], process.info["cwd"]) == ("slurmstepd", str(folder)):
            with suppress(psutil.NoSuchProcess):
                found += [process, *process.children(recursive=True)]
    return found


def _end(processes: list[psutil.Process], how: signal.Signals) -> None:
    """Send the signal, and SIGKILL to those that stay."""
    for sent in (how, signal.SIGKILL):
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(sent)
        _, processes = psutil.wait_procs(processes, timeout=10)


def _wait(ready: Callable[[], bool], complaint: str, seconds: float) -> None:
    """Until `ready` says so."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(complaint)
        time.sleep(0.2)


def main() -> None:
    """Start or stop, by hand."""
    parser = argparse.ArgumentParser(description="A SLURM of two nodes on this host.")
    parser.add_argument("action", choices=("start", "stop"))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    if arguments.action == "start":
        print(f"export SLURM_CONF={start(arguments.folder)['SLURM_CONF']}")
    else:
        stop(arguments.folder)


if __name__ == "__main__":
    main()

"""Where the stages run, and how many processes each gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from core.config import register
from core.errors import require

STAGES = ("inject", "train", "detect")
KINDS = ("local", "torchrun", "deepspeed", "slurm")


@dataclass(frozen=True)
class LaunchConfig:
    """What to do of the pipeline (node `launch`)."""

    dry_run: bool = False
    """Print the commands and batch scripts, and run nothing."""
    stage: str | None = None
    """`inject`, `train` or `detect`: no further than this; null: all, and the report."""
    cell: str | None = None
    """The folder of a cell's records; null: that of this launch. Jobs are told theirs."""

    def __post_init__(self) -> None:
        require(self.stage is None or self.stage in STAGES, "launch.stage", self.stage,
                f"give null or one of {', '.join(STAGES)}.")  # fmt: skip


@dataclass(frozen=True)
class ClusterConfig:
    """How training and detection are started (node `cluster`)."""

    kind: str = "local"
    """`local`: this machine. `torchrun`: several nodes, the same command on each. `deepspeed`: the
    hosts of a hostfile, from here. `slurm`: an array job a stage."""
    processes: int = 1
    """Processes on each node, one a GPU; 1 on one node: the pipeline's own."""
    nodes: int = 1
    """Nodes, with torchrun."""
    node_rank: int = 0
    """This node's number, from 0, with torchrun's static rendezvous."""
    rendezvous: str = "static"
    """How torchrun's nodes find each other: `static` or `c10d`."""
    address: str = "127.0.0.1"
    """The first node, as the others can reach it."""
    port: int = 29500
    """A port of the first node that is free."""
    hostfile: str | None = None
    """DeepSpeed's hostfile: a line a host, such as `worker-1 slots=8`."""
    options: list[str] = field(default_factory=list)
    """Further options of torchrun, deepspeed or srun."""
    retries: int = 2
    """How often processes that crashed are started again, from their last checkpoint."""
    grace_seconds: int = 600
    """How long torchrun's processes may take to save after SIGTERM before they are killed."""
    requeues: int = 3
    """How often a SLURM job that was preempted or ran out of time is queued again."""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """SLURM options of `all` jobs and of a stage's (`inject`, `train`, `detect`, `analyse`), by the
    names that submitit's SlurmExecutor gives them: time (minutes), partition, nodes, …"""

    def __post_init__(self) -> None:
        require(self.kind in KINDS, "cluster.kind", self.kind, f"give one of {', '.join(KINDS)}.")
        require(self.rendezvous in ("static", "c10d"), "cluster.rendezvous", self.rendezvous,
                "give static or c10d.")  # fmt: skip
        for name in ("processes", "nodes"):
            value = getattr(self, name)
            require(value >= 1, f"cluster.{name}", value, "give 1 or more.")
        for name in ("retries", "grace_seconds", "requeues"):
            value = getattr(self, name)
            require(value >= 0, f"cluster.{name}", value, "give 0 or more.")
        require(1 <= self.port <= 65535, "cluster.port", self.port, "give 1 to 65535.")
        require(0 <= self.node_rank < self.nodes, "cluster.node_rank", self.node_rank,
                f"give 0 to {self.nodes - 1}: there are cluster.nodes={self.nodes}.")  # fmt: skip
        require(self.nodes == 1 or self.kind == "torchrun", "cluster.nodes", self.nodes,
                f"cluster.kind={self.kind} does not read it. Choose cluster=torchrun; with SLURM "
                "give cluster.jobs.train.nodes.")  # fmt: skip
        require((self.kind == "deepspeed") == (self.hostfile is not None), "cluster.hostfile",
                self.hostfile, "give one with cluster=deepspeed, and only there.")  # fmt: skip
        require(self.processes == 1 or self.kind in ("local", "torchrun"), "cluster.processes",
                self.processes, f"cluster.kind={self.kind} does not read it. Give "
                "cluster.jobs.train.ntasks_per_node, or slots in the hostfile.")  # fmt: skip
        known = ("all", *STAGES, "analyse")
        for name, options in self.jobs.items():
            require(name in known, f"cluster.jobs.{name}", options,
                    f"give options of {', '.join(known)}.")  # fmt: skip
            time = options.get("time")
            require(time is None or isinstance(time, int), f"cluster.jobs.{name}.time", time,
                    "give whole minutes.")  # fmt: skip
        require(self.kind != "slurm" or bool(self.jobs.get("all", {}).get("time")),
                "cluster.jobs.all.time", None, "give the minutes that a job may take.")  # fmt: skip

    def job(self, stage: str) -> dict[str, Any]:
        """The SLURM options of a stage's job; null ones are left to `all`, or to SLURM."""
        given = [self.jobs.get(name, {}) for name in ("all", stage)]
        return {k: v for options in given for k, v in options.items() if v is not None}


@dataclass(frozen=True)
class LaunchSettings:
    """Everything that says how to run, and nothing about what is made."""

    runs: str = "runs"
    name: str = "run"
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)


register("launch", LaunchConfig)
register("cluster", ClusterConfig)

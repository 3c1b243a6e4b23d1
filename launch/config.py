"""Configuration of a launch: where the stages run, with how many processes, and a second stage."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from omegaconf import OmegaConf

import contamination.detection.config  # noqa: F401 (registers nodes that the pipeline has too)
from contamination.analysis.config import AnalysisConfig
from contamination.core.config import (
    Range,
    Ranged,
    at_least,
    convert_config,
    one_of,
    ranged_field,
    register_schema,
)
from contamination.core.errors import require
from contamination.core.task_runner import TasksConfig
from contamination.injection.finetuning.config import (
    BOTH,
    FINETUNING,
    PRETRAINING,
    FinetuningConfig,
    InstructionsConfig,
)
from contamination.training.config import TrainingConfig, WandbConfig

STAGES = ("inject", "train", "detect")
PACKAGES = {"train": "contamination.training", "detect": "contamination.detection"}
"""The package of each stage that can be processes of its own."""
KINDS = ("local", "torchrun", "deepspeed", "slurm", "datatrove")


@dataclass(frozen=True)
class LaunchConfig(Ranged, node="launch"):
    """Which part of the pipeline to run (node `launch`)."""

    dry_run: bool = False
    """Print the commands and batch scripts without running anything."""
    stage: str | None = ranged_field(None, one_of(STAGES))
    """The last stage to run: `inject`, `train` or `detect`; null: all, and the report."""
    cell: str | None = None
    """The folder of a cell's records; null: that of this launch. Set for jobs."""
    slice: str | None = None
    """A slice of the cell's detection to run without scores, such as `2/8`. Set for jobs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "give cluster.jobs.detect.slices with cluster=slurm: its jobs get one each."
        self.require(self.slice is None or self.cell is not None, "slice", remedy)


@dataclass(frozen=True)
class ClusterConfig(TasksConfig, node="cluster"):
    """Where and how the stages' processes are started (node `cluster`)."""

    kind: str = ranged_field("local", one_of(KINDS))
    """`local`: this machine. `torchrun`: several nodes, the same command on each. `deepspeed`: the
    hosts of a hostfile, from here. `slurm`: one array job per stage. `datatrove`: as `local`, with
    corpora made in the tasks that `TasksConfig` describes."""
    processes: int = ranged_field(1, at_least(1))
    """Processes on each node, one per GPU; with 1 on one node, the pipeline's own process."""
    nodes: int = ranged_field(1, at_least(1))
    """The number of nodes, with torchrun."""
    node_rank: int = 0
    """This node's number, from 0, with torchrun's static rendezvous."""
    rendezvous: str = ranged_field("static", one_of(("static", "c10d")))
    """How torchrun's nodes find each other: `static` or `c10d`."""
    address: str = "127.0.0.1"
    """The first node, as the others can reach it."""
    port: int = ranged_field(29500, Range(lambda port: 1 <= port <= 65535, "give 1 to 65535."))
    """A port of the first node that is free."""
    hostfile: str | None = None
    """DeepSpeed's hostfile: one line per host, such as `worker-1 slots=8`."""
    options: list[str] = field(default_factory=list)
    """Further options of torchrun, deepspeed or srun."""
    grace_seconds: int = ranged_field(600, at_least(0))
    """Seconds that torchrun's processes may take to save after SIGTERM before they are killed."""
    requeues: int = ranged_field(3, at_least(0))
    """How often a SLURM job that was preempted or ran out of time is queued again."""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """SLURM options of `all` jobs and of one stage's (`inject`, `train`, `detect`, `analyse`), with
    the names of submitit's SlurmExecutor: time (minutes), partition, nodes, …"""

    def __post_init__(self) -> None:
        super().__post_init__()
        above = f"give 0 to {self.nodes - 1}: there are cluster.nodes={self.nodes}."
        self.require(0 <= self.node_rank < self.nodes, "node_rank", above)
        unread = f"cluster.kind={self.kind} does not read it. "
        remedy = unread + "Choose cluster=torchrun; with SLURM give cluster.jobs.train.nodes."
        self.require(self.nodes == 1 or self.kind == "torchrun", "nodes", remedy)
        remedy = "give one with cluster=deepspeed, and only there."
        self.require((self.kind == "deepspeed") == (self.hostfile is not None), "hostfile", remedy)
        local = self.processes == 1 or self.kind in ("local", "torchrun", "datatrove")
        remedy = unread + "Give cluster.jobs.train.ntasks_per_node, or slots in the hostfile."
        self.require(local, "processes", remedy)
        self._check_jobs()

    def _check_jobs(self) -> None:
        job_names = ("all", *STAGES, "analyse")
        for job_name, options in self.jobs.items():
            field, time = f"cluster.jobs.{job_name}", options.get("time")
            require(
                job_name in job_names, field, options, f"give options of {', '.join(job_names)}."
            )
            is_whole = time is None or isinstance(time, int)
            require(is_whole, f"{field}.time", time, "give whole minutes.")
        slices = self.jobs.get("detect", {}).get("slices", 1)
        is_positive = isinstance(slices, int) and slices > 0
        require(is_positive, "cluster.jobs.detect.slices", slices, "give 1 or more.")
        has_time = self.kind != "slurm" or bool(self.jobs.get("all", {}).get("time"))
        require(has_time, "cluster.jobs.all.time", None, "give the minutes that a job may take.")

    @property
    def tasks(self) -> TasksConfig:
        """The tasks that make a corpus's parts; the defaults unless the kind is `datatrove`."""
        if self.kind != "datatrove":
            return TasksConfig()
        return TasksConfig(**{f.name: getattr(self, f.name) for f in fields(TasksConfig)})

    def job_options(self, stage: str) -> dict[str, Any]:
        """Returns the SLURM options of a stage's job; null ones are left to `all`, or to SLURM."""
        all_and_own = [self.jobs.get(name, {}) for name in ("all", stage)]
        options = {k: v for job in all_and_own for k, v in job.items() if v is not None}
        return {k: v for k, v in options.items() if (stage, k) != ("detect", "slices")}

    @property
    def slices(self) -> int:
        """The number of jobs that each make a slice of a cell's detection before one scores."""
        return int(self.jobs.get("detect", {}).get("slices", 1)) if self.kind == "slurm" else 1


@dataclass(frozen=True)
class LaunchSettings:
    """The nodes that say how to run, without those that say what is made."""

    runs: str = "runs"
    name: str = "run"
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)


register_schema("launch", LaunchConfig)
register_schema("cluster", ClusterConfig)


@dataclass(frozen=True)
class SecondStage(Ranged, node="second_stage"):
    """The fine-tuning that follows the pretraining (node `second_stage`)."""

    members_in: str | None = ranged_field(None, one_of((PRETRAINING, FINETUNING, BOTH)))
    """Where the members are inserted; null: there is no second stage."""
    instructions: dict[str, Any] = field(default_factory=dict)
    """Clean texts with a prompt and an output (conf/instructions), each an `InstructionsConfig`."""
    copies: int = ranged_field(1, at_least(1))
    """Copies of each member in the fine-tuning set; an epoch reads all of them."""
    finetuning: FinetuningConfig = field(default_factory=FinetuningConfig)
    """How the texts are made and laid out."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """How the pretrained model is fine-tuned."""

    def __post_init__(self) -> None:
        super().__post_init__()
        has_texts = self.members_in in (None, FINETUNING, BOTH) or bool(self.instructions)
        remedy = "there is nothing to fine-tune on: choose some, such as nq_open."
        self.require(has_texts, "instructions", remedy)

    @property
    def clean_sets(self) -> dict[str, InstructionsConfig]:
        """The configurations of the clean texts, by name.

        Raises:
            ConfigError: an unknown field, or an invalid value.
        """
        nodes = OmegaConf.create({"instructions": self.instructions})
        return convert_config(nodes, _CleanSets).instructions


@dataclass(frozen=True)
class _CleanSets:
    instructions: dict[str, InstructionsConfig]


@dataclass(frozen=True)
class PipelineNodes:
    """The part of the pipeline's configuration that no stage of a cell has."""

    base_corpus: dict[str, Any]
    analysis: AnalysisConfig
    wandb: WandbConfig
    second_stage: SecondStage = field(default_factory=SecondStage)
    audits: list[str] = field(default_factory=list)
    """Audits of the cells that follow the report, by their names in conf/audit."""


register_schema("second_stage", SecondStage)

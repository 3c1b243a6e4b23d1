"""Will a training run fit? `python -m training memory`: a table over machines, and a way out.

GB is 10^9 bytes. A run fits where `SPARE` of each device stays free, for what `training.memory`
leaves out, and where the processes of a node fit into its host's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from contamination.core.errors import require
from contamination.core.models import is_gguf
from contamination.core.terminal import fit
from contamination.training.config import MemoryStage
from contamination.training.engine import zero_stage
from contamination.training.resources import MemoryNeed, Shape, need, shape_of

GB = 1e9
SPARE = 0.1
"""The part of a device's memory that a plan leaves free."""


@dataclass(frozen=True)
class Machine:
    """Devices that train together: how many, on how many nodes, of how many GB each."""

    name: str
    devices: int
    nodes: int
    gigabytes: float


MACHINES = (
    Machine("1 × 80 GB", 1, 1, 80),
    Machine("8 × 80 GB", 8, 1, 80),
    Machine("2 nodes × 8 × 80 GB", 16, 2, 80),
    Machine("1 × 141 GB (H200)", 1, 1, 141),
)


def need_on(shape: Shape, stage: MemoryStage, machine: Machine) -> MemoryNeed:
    """What one process needs on the machine."""
    path = stage.model.path
    return need(
        shape,
        stage.training,
        stage.deepspeed,
        machine.devices,
        stage.memory.sequence_tokens,
        made_whole=path is None or is_gguf(path),
    )


def lacks(shape: Shape, stage: MemoryStage, machine: Machine) -> list[str]:
    """Which memories are too small: `device`, `host`, both, or none where the run fits."""
    needed = need_on(shape, stage, machine)
    small = {
        "device": needed.total > (1 - SPARE) * machine.gigabytes * GB,
        "host": needed.host > stage.memory.host_gigabytes_per_device * GB,
    }
    return [name for name, too_small in small.items() if too_small]


def largest_micro_batch(shape: Shape, stage: MemoryStage, machine: Machine) -> int:
    """The most sequences at a time with which the run fits, a power of 2; 0: none."""

    def fits(count: int) -> bool:
        training = replace(stage.training, micro_batch_sequences=count)
        return not lacks(shape, replace(stage, training=training), machine)

    count = 0
    while fits(2 * count or 1):
        count = 2 * count or 1
    return count


def way_out(shape: Shape, stage: MemoryStage, machine: Machine) -> str:
    """The cheapest change with which the run fits; empty where it fits, "none" if none does."""
    ways = (name for name, changed in _changes(stage) if not lacks(shape, changed, machine))
    return next(ways, "none")


def _changes(stage: MemoryStage) -> Iterator[tuple[str, MemoryStage]]:
    """The stage itself, then others that need less memory and more time.

    Fewer sequences at a time cost least, then recomputed activations, then what moves more data.
    """
    recomputing = replace(stage.training, activation_checkpointing=True)
    for name, zero in _engines(stage.deepspeed):
        for label, training in (("", stage.training), ("activation checkpointing", recomputing)):
            for count, fewer in _halved(training.micro_batch_sequences):
                words = " + ".join(filter(None, (name, label, fewer)))
                smaller = replace(training, micro_batch_sequences=count)
                yield words, replace(stage, deepspeed=zero, training=smaller)


def _halved(micro: int) -> Iterator[tuple[int, str]]:
    """The micro-batch as configured, then its halves, which divide the batch as well."""
    yield micro, ""
    while micro % 2 == 0:
        micro //= 2
        yield micro, f"micro-batch {micro}"


def _engines(deepspeed: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The engine as configured, then the stages above it, then all offloaded to the host."""
    yield "", deepspeed
    own: dict[str, Any] = deepspeed.get("zero_optimization", {})
    for number in range(zero_stage(deepspeed) + 1, 4):
        zero = {**own, "stage": number, "overlap_comm": number > 1}  # as conf/deepspeed has them
        yield f"zero{number}", {"zero_optimization": zero}
    host = {"device": "cpu"}
    offloaded = {**own, "stage": 3, "offload_optimizer": host, "offload_param": host}
    yield "zero3_offload", {"zero_optimization": offloaded}


def plan(stage: MemoryStage) -> str:
    """The run's needs on each of `MACHINES`, as a Markdown table under a line that names the run.

    Raises:
        ConfigError: the engine would refuse the run, or the model's config can't be read.
    """
    config, number = stage.training, zero_stage(stage.deepspeed)
    remedy = "the engine takes it from ZeRO stage 1 on: choose deepspeed=zero1."
    require(config.dtype == "float32" or number > 0, "training.dtype", config.dtype, remedy)
    shape = shape_of(stage.model)
    recomputed = "with" if config.activation_checkpointing else "no"
    title = (
        f"{stage.model.name}: {shape.parameters:,} parameters, {config.dtype}, ZeRO stage "
        f"{number}, micro-batch {config.micro_batch_sequences} × "
        f"{stage.memory.sequence_tokens} tokens, "
        f"{recomputed} activation checkpointing, "
        f"{stage.memory.host_gigabytes_per_device:g} GB of host memory for each device"
    )
    table = fit(*_table(shape, stage), between=3, edges=4)
    rule = ["---", *("---:" for _ in table.header[1:])]
    rows = ["| " + " | ".join(row) + " |" for row in (table.header, rule, *table.rows)]
    ways = [(machine.name, way_out(shape, stage, machine)) for machine in MACHINES]
    below = [f"fits on {name} with {way}" for name, way in ways if way]
    return "\n".join([title, "", *rows, *filter(None, [table.note]), *[""] * bool(below), *below])


def _table(shape: Shape, stage: MemoryStage) -> tuple[list[str], list[list[str]]]:
    """The header, and a row for each need and verdict."""
    needs = [need_on(shape, stage, machine) for machine in MACHINES]
    hosts = [n.host * m.devices / m.nodes for n, m in zip(needs, MACHINES, strict=True)]
    missing = [lacks(shape, stage, machine) for machine in MACHINES]
    best = [largest_micro_batch(shape, stage, machine) for machine in MACHINES]
    rows = [
        *([name, *(f"{part(n) / GB:.1f}" for n in needs)] for name, part in ROWS.items()),
        ["host memory a node", *(f"{host / GB:.1f}" for host in hosts)],
        ["fits", *(f"no ({', '.join(names)})" if names else "yes" for names in missing)],
        ["largest micro-batch", *(str(count or "–") for count in best)],
    ]
    return ["GB a device", *(m.name for m in MACHINES)], rows


ROWS: Mapping[str, Callable[[MemoryNeed], float]] = {
    "weights": lambda n: n.weights,
    "gradients": lambda n: n.gradients,
    "optimizer's states": lambda n: n.optimizer,
    "gradients in the step": lambda n: n.step,
    "buffers": lambda n: n.buffers,
    "activations": lambda n: n.activations,
    "logits": lambda n: n.logits,
    "peak": lambda n: n.total,
}

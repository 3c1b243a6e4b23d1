"""`python -m training memory`: on which machines a training run fits, and which changes help.

1 GB is 10^9 bytes. A run fits if `FREE_SHARE` of each device's memory stays free, for memory that
`training.resources` does not include, and if the processes of a node fit into its host's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from contamination.core.errors import require
from contamination.core.models import is_gguf
from contamination.core.terminal import fit_columns
from contamination.training.config import MemoryStage
from contamination.training.deepspeed_engine import zero_stage
from contamination.training.resources import MemoryNeed, ModelShape, memory_need, model_shape

GB = 1e9
FREE_SHARE = 0.1
"""The share of a device's memory that a plan leaves free."""


@dataclass(frozen=True)
class Machine:
    """The number of devices and nodes that train together, and each device's memory in GB."""

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


def memory_need_on(shape: ModelShape, stage: MemoryStage, machine: Machine) -> MemoryNeed:
    """Returns the memory that one process needs on the machine."""
    path = stage.model.path
    return memory_need(
        shape,
        stage.training,
        stage.deepspeed,
        machine.devices,
        stage.memory.sequence_tokens,
        made_whole=path is None or is_gguf(path),
    )


def memories_too_small(shape: ModelShape, stage: MemoryStage, machine: Machine) -> list[str]:
    """Returns which memories are too small: `device`, `host`, both, or none."""
    needed = memory_need_on(shape, stage, machine)
    is_too_small = {
        "device": needed.total > (1 - FREE_SHARE) * machine.gigabytes * GB,
        "host": needed.host > stage.memory.host_gigabytes_per_device * GB,
    }
    return [name for name, too_small in is_too_small.items() if too_small]


def largest_micro_batch(shape: ModelShape, stage: MemoryStage, machine: Machine) -> int:
    """Returns the largest micro-batch with which the run fits, a power of 2; 0 if none does."""

    def fits(count: int) -> bool:
        training = replace(stage.training, micro_batch_sequences=count)
        return not memories_too_small(shape, replace(stage, training=training), machine)

    count = 0
    while fits(2 * count or 1):
        count = 2 * count or 1
    return count


def cheapest_change_that_fits(shape: ModelShape, stage: MemoryStage, machine: Machine) -> str:
    """Returns the cheapest change that makes the run fit; "" if it fits, "none" if none helps."""
    changes = (
        name
        for name, changed in _iter_smaller_variants(stage)
        if not memories_too_small(shape, changed, machine)
    )
    return next(changes, "none")


def _iter_smaller_variants(stage: MemoryStage) -> Iterator[tuple[str, MemoryStage]]:
    """Yields the stage itself, then variants that need less memory and more time.

    Smaller micro-batches cost the least time, then recomputed activations, then ZeRO stages with
    more communication.
    """
    recomputing = replace(stage.training, activation_checkpointing=True)
    for name, zero in _engine_alternatives(stage.deepspeed):
        for label, training in (("", stage.training), ("activation checkpointing", recomputing)):
            for count, fewer in _iter_halved_micro_batches(training.micro_batch_sequences):
                change = " + ".join(filter(None, (name, label, fewer)))
                smaller = replace(training, micro_batch_sequences=count)
                yield change, replace(stage, deepspeed=zero, training=smaller)


def _iter_halved_micro_batches(micro_batch: int) -> Iterator[tuple[int, str]]:
    """Yields the configured micro-batch, then halves of it, which also divide the batch."""
    yield micro_batch, ""
    while micro_batch % 2 == 0:
        micro_batch //= 2
        yield micro_batch, f"micro-batch {micro_batch}"


def _engine_alternatives(deepspeed: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the configured engine, then higher ZeRO stages, then offloading to the host."""
    yield "", deepspeed
    configured: dict[str, Any] = deepspeed.get("zero_optimization", {})
    for number in range(zero_stage(deepspeed) + 1, 4):
        zero = {
            **configured,
            "stage": number,
            "overlap_comm": number > 1,  # as in conf/deepspeed
        }
        yield f"zero{number}", {"zero_optimization": zero}
    host = {"device": "cpu"}
    offloaded = {**configured, "stage": 3, "offload_optimizer": host, "offload_param": host}
    yield "zero3_offload", {"zero_optimization": offloaded}


def format_memory_plan(stage: MemoryStage) -> str:
    """Returns a description of the run and a Markdown table of its memory on each of `MACHINES`.

    Raises:
        ConfigError: the engine would reject the run, or the model's config can't be read.
    """
    config, number = stage.training, zero_stage(stage.deepspeed)
    remedy = "it needs at least ZeRO stage 1: choose deepspeed=zero1."
    require(config.dtype == "float32" or number > 0, "training.dtype", config.dtype, remedy)
    shape = model_shape(stage.model)
    recomputed = "with" if config.activation_checkpointing else "no"
    title = (
        f"{stage.model.name}: {shape.parameters:,} parameters, {config.dtype}, ZeRO stage "
        f"{number}, micro-batch {config.micro_batch_sequences} × "
        f"{stage.memory.sequence_tokens} tokens, "
        f"{recomputed} activation checkpointing, "
        f"{stage.memory.host_gigabytes_per_device:g} GB of host memory per device"
    )
    table = fit_columns(*_make_memory_table(shape, stage), between=3, edges=4)
    rule = ["---", *("---:" for _ in table.header[1:])]
    rows = ["| " + " | ".join(row) + " |" for row in (table.header, rule, *table.rows)]
    changes = [
        (machine.name, cheapest_change_that_fits(shape, stage, machine)) for machine in MACHINES
    ]
    below = [f"fits on {name} with {change}" for name, change in changes if change]
    return "\n".join([title, "", *rows, *filter(None, [table.note]), *[""] * bool(below), *below])


def _make_memory_table(shape: ModelShape, stage: MemoryStage) -> tuple[list[str], list[list[str]]]:
    needs = [memory_need_on(shape, stage, machine) for machine in MACHINES]
    hosts = [n.host * m.devices / m.nodes for n, m in zip(needs, MACHINES, strict=True)]
    missing = [memories_too_small(shape, stage, machine) for machine in MACHINES]
    best = [largest_micro_batch(shape, stage, machine) for machine in MACHINES]
    rows = [
        *([name, *(f"{part(n) / GB:.1f}" for n in needs)] for name, part in TABLE_ROWS.items()),
        ["host memory per node", *(f"{host / GB:.1f}" for host in hosts)],
        ["fits", *(f"no ({', '.join(names)})" if names else "yes" for names in missing)],
        ["largest micro-batch", *(str(count or "–") for count in best)],
    ]
    return ["GB per device", *(m.name for m in MACHINES)], rows


TABLE_ROWS: Mapping[str, Callable[[MemoryNeed], float]] = {
    "weights": lambda n: n.weights,
    "gradients": lambda n: n.gradients,
    "optimizer's states": lambda n: n.optimizer,
    "gradients in the step": lambda n: n.step,
    "buffers": lambda n: n.buffers,
    "activations": lambda n: n.activations,
    "logits": lambda n: n.logits,
    "peak": lambda n: n.total,
}

"""Runs with several processes, on one or more machines: rank 0, collectives and launchers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from contamination.core.errors import ConfigError, UserError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
LAUNCHER_VARIABLES = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
"""Environment variables that launchers set, even for a single process."""
HEARTBEAT_SECONDS = 30.0
"""Interval at which rank 0 tells the waiting processes that it is still working; a collective times
out after some minutes."""


@dataclass(frozen=True)
class World:
    """The rank of this process, the number of processes, and this process's device."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_rank_0(self) -> bool:
        """Whether this is rank 0, the only process that writes files and logs."""
        return self.rank == 0

    def wait(self) -> None:
        """Waits until every process has called this."""
        import torch

        if self.size > 1:
            torch.distributed.barrier()

    def any(self, flag: bool) -> bool:
        """Returns, in every process, whether the flag is set in at least one process."""
        import torch

        return bool(self.sum(torch.tensor(float(flag))))

    def broadcast_from_rank_0(self, value: Any) -> Any:
        """Returns rank 0's value in every process."""
        import torch

        values = [value]
        if self.size > 1:
            torch.distributed.broadcast_object_list(values, device=self.device)
        return values[0]

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Returns the sum over all processes, on this process's device."""
        import torch

        values = values.to(self.device)
        if self.size > 1:
            torch.distributed.all_reduce(values)
        return values

    def on_rank_0(self, work: Callable[[], T]) -> T:
        """Call `work` on rank 0 only and return its result in every process.

        The work may take hours: rank 0 sends the other processes a message every
        `HEARTBEAT_SECONDS`, since a single collective would time out. If the work raises an error,
        the other processes exit without a message.
        """
        if self.size == 1:
            return work()
        if self.is_rank_0:
            with ThreadPoolExecutor(1) as pool:
                return self._broadcast_result_when_done(pool.submit(work))
        while not (message := self.broadcast_from_rank_0(None))[0]:
            pass
        _, result, status = message
        if status:
            time.sleep(HEARTBEAT_SECONDS)  # rank 0 prints the error; the launcher ends the others
            sys.exit(status)
        return cast(T, result)

    def _broadcast_result_when_done(self, work: Future[T]) -> T:
        while not wait([work], timeout=HEARTBEAT_SECONDS).done:
            self.broadcast_from_rank_0((False, None, 0))
        error = work.exception()
        status = 0 if error is None else error.status if isinstance(error, UserError) else 1
        self.broadcast_from_rank_0((True, None if error else work.result(), status))
        return work.result()


def exit_process(status: int) -> NoReturn:
    """Ends a process that a launcher started immediately, with this exit status.

    During a normal exit, a library's thread sometimes aborts the process, and the launcher would
    report a crash. torch is not imported here: a signal can have ended its first import halfway,
    and a second one would crash.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def is_launched() -> bool:
    """Returns whether a launcher (torchrun, deepspeed, srun) started this process."""
    return any(name in os.environ for name in LAUNCHER_VARIABLES)


def launched_process_count() -> int:
    """Returns how many processes the launcher (torchrun, deepspeed, srun) started, or 1."""
    _set_torch_variables_from_slurm()
    return int(os.environ.get("WORLD_SIZE", "1"))


def _set_torch_variables_from_slurm() -> None:
    # set only in steps: a batch script is one process, however many tasks its job has
    tasks = int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))
    if "WORLD_SIZE" in os.environ or "SLURM_PROCID" not in os.environ or tasks == 1:
        return
    if "MASTER_ADDR" not in os.environ:
        os.environ["MASTER_ADDR"] = _first_node_name()
    # derived from job and step, so that all tasks use the same port, below the ephemeral ports
    port_number = int(os.environ["SLURM_JOB_ID"]) * 31 + int(os.environ["SLURM_STEP_ID"])
    os.environ.setdefault("MASTER_PORT", str(10000 + port_number % 20000))
    os.environ["RANK"] = os.environ["SLURM_PROCID"]
    os.environ["LOCAL_RANK"] = os.environ["SLURM_LOCALID"]
    os.environ["WORLD_SIZE"] = str(tasks)


def _first_node_name() -> str:
    nodes = os.environ["SLURM_STEP_NODELIST"]
    command = ["scontrol", "show", "hostnames", nodes]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(
            f"SLURM_STEP_NODELIST is {nodes!r}, and scontrol can't name its first node ({error}): "
            "set MASTER_ADDR to the host of the first task."
        ) from error

"""The processes that work together, on one machine or many."""

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
LAUNCHED = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
"""Environment variables that launchers set, also for a single process."""
PATIENCE = 30.0  # seconds; collectives give up after minutes


@dataclass(frozen=True)
class World:
    """This process's place among all."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_rank_0(self) -> bool:
        """Whether this process writes what is written once."""
        return self.rank == 0

    def wait(self) -> None:
        """Until every process has come here."""
        import torch

        if self.size > 1:
            torch.distributed.barrier()

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in some process; the same answer in all."""
        import torch

        return bool(self.sum(torch.tensor(float(flag))))

    def from_rank_0(self, value: Any) -> Any:
        """Rank 0's value, in every process."""
        import torch

        values = [value]
        if self.size > 1:
            torch.distributed.broadcast_object_list(values, device=self.device)
        return values[0]

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over all processes."""
        import torch

        values = values.to(self.device)
        if self.size > 1:
            torch.distributed.all_reduce(values)
        return values

    def on_rank_0(self, work: Callable[[], T]) -> T:
        """What the work gives, done by rank 0 alone, in every process, however long it takes.

        The others hear every half minute that it goes on: a collective that waited for hours would
        be given up. Where it raises a user's error the others end as well, without a word.
        """
        if self.size == 1:
            return work()
        if self.is_rank_0:
            with ThreadPoolExecutor(1) as pool:
                return self._tell(pool.submit(work))
        while not (told := self.from_rank_0(None))[0]:
            pass
        _, result, status = told
        if status:
            time.sleep(PATIENCE)  # rank 0 says why; where it ends, the launcher ends the others
            sys.exit(status)
        return cast(T, result)

    def _tell(self, work: Future[T]) -> T:
        while not wait([work], timeout=PATIENCE).done:
            self.from_rank_0((False, None, 0))
        error = work.exception()
        status = 0 if error is None else error.status if isinstance(error, UserError) else 1
        self.from_rank_0((True, None if error else work.result(), status))
        return work.result()


def leave(status: int) -> NoReturn:
    """End a process of a launcher's, which has said all it had to say, with this exit status.

    Left to itself, a library's thread now and then aborts the process while it ends, and the
    launcher takes that for a crash.
    """
    import torch

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def is_launched() -> bool:
    """Whether a launcher (torchrun, deepspeed, srun) started this process."""
    return any(name in os.environ for name in LAUNCHED)


def asked_processes() -> int:
    """How many processes the launcher (torchrun, deepspeed, srun) started; 1 without one."""
    _adopt_srun()
    return int(os.environ.get("WORLD_SIZE", "1"))


def _adopt_srun() -> None:
    """Let a task of `srun` know its place by the names that torch reads."""
    # a step alone has it: a batch script is one process, whatever its job's tasks
    tasks = int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))
    if "WORLD_SIZE" in os.environ or "SLURM_PROCID" not in os.environ or tasks == 1:
        return
    if "MASTER_ADDR" not in os.environ:
        os.environ["MASTER_ADDR"] = _first_node()
    # of the job and the step, so that every task finds the same one; below the ephemeral ports
    number = int(os.environ["SLURM_JOB_ID"]) * 31 + int(os.environ["SLURM_STEP_ID"])
    os.environ.setdefault("MASTER_PORT", str(10000 + number % 20000))
    os.environ["RANK"] = os.environ["SLURM_PROCID"]
    os.environ["LOCAL_RANK"] = os.environ["SLURM_LOCALID"]
    os.environ["WORLD_SIZE"] = str(tasks)


def _first_node() -> str:
    nodes = os.environ["SLURM_STEP_NODELIST"]
    call = ["scontrol", "show", "hostnames", nodes]
    try:
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(
            f"SLURM_STEP_NODELIST is {nodes!r}, and scontrol can't name its first node ({error}): "
            "set MASTER_ADDR to the host of the first task."
        ) from error

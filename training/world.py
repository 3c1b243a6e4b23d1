"""The processes that train together, on one machine or many."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from typing import Any

import torch

from core.quiet import silenced


@dataclass(frozen=True)
class World:
    """This process's place among all."""

    rank: int
    size: int
    device: torch.device

    @property
    def leader(self) -> bool:
        """Whether this process writes what is written once."""
        return self.rank == 0

    def wait(self) -> None:
        """Until every process has come here."""
        if self.size > 1:
            torch.distributed.barrier()

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in some process; the same answer in all."""
        return bool(self.sum(torch.tensor(float(flag))))

    def from_leader(self, value: Any) -> Any:
        """The leader's value, in every process."""
        values = [value]
        if self.size > 1:
            torch.distributed.broadcast_object_list(values, device=self.device)
        return values[0]

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over all processes."""
        values = values.to(self.device)
        if self.size > 1:
            torch.distributed.all_reduce(values)
        return values


def asked_processes() -> int:
    """How many processes the launcher started; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def start_processes() -> World:
    """Join the launcher's process group, or make one of this process alone."""
    _prepare_environment()
    with silenced():  # it tries out a compiler on import
        import deepspeed

    _avoid_compilation()
    cuda = torch.cuda.is_available()
    deepspeed.init_distributed(dist_backend="nccl" if cuda else "gloo", verbose=False)
    local, rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
    if cuda:
        torch.cuda.set_device(local)
    if rank:  # what all processes have to say, the leader says
        logging.getLogger().setLevel(logging.ERROR)
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    return World(rank, int(os.environ["WORLD_SIZE"]), device)


def _prepare_environment() -> None:
    """What DeepSpeed reads from the environment, where no launcher set it."""
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("DS_LOG_LEVEL", "warning")
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    if "RANK" not in os.environ:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        alone = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1"}
        for name, value in {**alone, "MASTER_PORT": port}.items():
            os.environ.setdefault(name, str(value))


def _avoid_compilation() -> None:
    """Without this the first start on CPU compiles a C++ op that training does not use."""
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)

"""The processes that train together, as DeepSpeed wants them started."""

from __future__ import annotations

import atexit
import logging
import os
import socket

import torch

from core.errors import ConfigError
from core.quiet import silenced
from core.world import World, asked_processes
from training.deepspeed_private import avoid_compilation


def start_processes() -> World:
    """Join the launcher's process group, or make one of this process alone."""
    asked_processes()
    launched = "RANK" in os.environ
    atexit.register(_leave)
    _prepare_environment()
    with silenced():  # both try out a compiler
        import deepspeed

        avoid_compilation()
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    cuda = torch.cuda.is_available()
    if cuda:  # a task that is shown one GPU alone calls it 0
        os.environ["LOCAL_RANK"] = str(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    backend = "nccl" if cuda else "gloo"
    if not launched and not torch.distributed.is_initialized():
        _begin_alone(backend)
    deepspeed.init_distributed(dist_backend=backend, verbose=False)
    local, rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
    if cuda:
        torch.cuda.set_device(local)
    if rank:  # what all processes have to say, rank 0 says
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
        for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1}.items():
            os.environ.setdefault(name, str(value))


def _begin_alone(backend: str) -> None:
    """A group of one, without a network: torch's own store asks for the names of addresses."""
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    before = os.environ.get("GLOO_SOCKET_IFNAME")
    if loopback is not None and before is None:  # else gloo looks up this machine's name
        os.environ["GLOO_SOCKET_IFNAME"] = loopback
    try:
        store = torch.distributed.HashStore()  # type: ignore[attr-defined]
        torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    except RuntimeError as error:
        if "find address for" not in str(error):
            raise
        raise ConfigError(
            f"torch needs a network interface even for one process: {str(error).splitlines()[0]}. "
            "Bring the loopback up (ip link set lo up), or name another in GLOO_SOCKET_IFNAME."
        ) from error
    finally:
        if before is None:
            os.environ.pop("GLOO_SOCKET_IFNAME", None)


def _leave() -> None:
    """Its threads now and then abort a process that ends with the group still there."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()

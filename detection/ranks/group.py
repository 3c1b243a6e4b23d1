"""The processes that torchrun, deepspeed or srun started, on one machine or many.

Rank 0 runs the stage as a process alone would; the others only serve it.
"""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

from core.errors import UserError
from detection.ranks.slices import Slice

T = TypeVar("T")

PATIENCE = timedelta(days=365)  # rank 0 may wait for hours, such as for another job's lease
LAUNCHED = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS")  # what launchers set, for one process as well


def served(stage: Callable[[], int]) -> int:
    """The exit status of the stage, run by this process or, of a launcher's processes, by rank 0.

    The others take slices from rank 0 until it ends, and end with its status.

    Raises:
        ConfigError: the tasks of srun can't find each other.
    """
    if not any(name in os.environ for name in LAUNCHED):
        return stage()  # before torch, which takes seconds to import
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as `command`, to which only one comes
    from core.world import asked_processes, leave

    size = asked_processes()
    if size == 1:
        return stage()
    from torch import distributed

    # gloo beside GPUs as well: nothing but Python objects travels
    distributed.init_process_group("gloo", timeout=PATIENCE)
    try:
        status = _run(stage, size) if distributed.get_rank() == 0 else _serve()
    except BaseException:
        distributed.destroy_process_group()
        raise
    leave(status)


def joined() -> Group | None:
    """The group whose rank 0 this process is; None: it is alone."""
    return _group


class Group:
    """All of a launcher's processes, as rank 0 sees them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.waiting = True  # whether the others listen: not while they work, nor when one is gone

    def run(self, slices: Sequence[Slice[T]]) -> list[list[T]]:
        """Each process's results; the first error of any is raised here."""
        from torch.distributed import gather_object

        self._send(slices)
        own = _outcome(slices[0])
        found: list[Any] = [None] * self.size
        with _connected():
            gather_object(None, found, dst=0)
        self.waiting = True
        found[0] = own
        for outcome in found:
            if isinstance(outcome, Exception):
                raise outcome
        return found

    def dismiss(self, status: int) -> None:
        """Let the others end, unless they would not hear it: these end as rank 0 does."""
        if self.waiting:
            with suppress(UserError):
                self._send([status] * self.size)

    def _send(self, objects: Sequence[Any]) -> None:
        from torch.distributed import scatter_object_list

        self.waiting = False
        with _connected():
            scatter_object_list([None], list(objects), src=0)


_group: Group | None = None  # only in rank 0


def _run(stage: Callable[[], int], size: int) -> int:
    global _group
    _group, status = Group(size), 1
    try:
        status = stage()
    except SystemExit as end:  # said by a launcher that looks on
        status = int(end.code or 0)
    except Exception:  # said before the others end: a launcher then ends this one as well
        traceback.print_exc()
    finally:
        _group.dismiss(status)
        _group = None
    return status


def _serve() -> int:
    """Work for rank 0 until it ends; its exit status."""
    logging.getLogger().setLevel(logging.ERROR)  # what all have to say, rank 0 says
    try:
        while (status := _serve_once()) is None:
            pass
    except _GoneError:  # rank 0 says it, or is itself the one that is gone
        status = 1
    return status


def _serve_once() -> int | None:
    """Do what rank 0 sends; where that is the exit status, return it."""
    from torch.distributed import gather_object, get_rank, scatter_object_list

    sent: list[Any] = [None]
    with _connected():
        scatter_object_list(sent, None, src=0)
    if isinstance(sent[0], int):
        return sent[0]
    outcome = _outcome(sent[0])
    if isinstance(outcome, Exception) and not isinstance(outcome, UserError):
        # the class may not survive the way to rank 0, nor does a traceback
        said = "".join(traceback.format_exception(outcome))
        outcome = RuntimeError(f"process {get_rank()} failed:\n{said}")
    with _connected():
        gather_object(outcome, None, dst=0)
    return None


def _outcome(work: Slice[T]) -> list[T] | Exception:
    """The results of a slice, or its error, which must not keep this process from the others."""
    try:
        return work.run(int(os.environ["LOCAL_RANK"]))
    except Exception as error:
        return error


class _GoneError(UserError):
    """Another process of the launcher's ended without a word."""


@contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # gloo's
        why = re.sub(r"^\[\S*\] ", "", str(error)).split(". ")[0]
        raise _GoneError(
            f"Another of WORLD_SIZE={os.environ['WORLD_SIZE']} processes ended before its work was "
            f"done ({why}), perhaps for want of memory: the launcher or the system's log says why. "
            "Run the same command again: finished passes are reused."
        ) from error

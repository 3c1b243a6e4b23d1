"""The processes of a launcher (torchrun, srun): rank 0 runs the stage, the others work for it.

Rank 0 sends each process a piece of work and collects the results (`ProcessGroup.run`); the other
processes wait for work until rank 0 dismisses them.
"""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from contamination.core.errors import UserError
from contamination.core.signals import restore_stopped_error

T = TypeVar("T")

TIMEOUT = timedelta(days=365)  # rank 0 may wait for hours, for example for another job's lease


class GroupWork(Protocol[T]):
    """A piece of work that can be sent to another process."""

    def run(self, number: int) -> list[T]:
        """Returns the results; `number` is the local rank of the process."""


def run_by_rank_0(stage: Callable[[], int]) -> int:
    """Runs the stage in this process, or, among a launcher's processes, in rank 0.

    The other processes work for rank 0 until it ends, and exit with its status.

    Returns:
        The exit status of the stage.

    Raises:
        ConfigError: the tasks of srun cannot find each other.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as `command` does, which only rank 0 runs
    from contamination.core.distributed import exit_process, launched_process_count

    size = launched_process_count()
    if size == 1:
        return stage()
    from torch import distributed

    # gloo also beside GPUs: only Python objects are sent
    distributed.init_process_group("gloo", timeout=TIMEOUT)
    try:
        status = _lead(stage, size) if distributed.get_rank() == 0 else _work_for_rank_0()
    except BaseException:
        distributed.destroy_process_group()
        raise
    exit_process(status)


def current_group() -> ProcessGroup | None:
    """Returns the group that this process leads as rank 0, or None if it runs alone."""
    return _current_group


class ProcessGroup:
    """All processes of a launcher, as rank 0 sees them.

    Attributes:
        size: the number of processes.
        waiting: whether the others wait for work; False while they work and after one has ended.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.waiting = True

    def run(self, pieces: Sequence[GroupWork[T]]) -> list[list[T]]:
        """Returns the results of each process. Raises the first error of any process."""
        from torch.distributed import gather_object

        self._broadcast(pieces)
        outcome_of_rank_0 = _results_or_error(pieces[0])
        outcomes: list[Any] = [None] * self.size
        with _gloo_errors():
            gather_object(None, outcomes, dst=0)
        self.waiting = True
        outcomes[0] = outcome_of_rank_0
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return outcomes

    def dismiss(self, status: int) -> None:
        """Ends the other processes with this status, if they are waiting for work.

        If they are not, they end when rank 0 does.
        """
        if self.waiting:
            with suppress(UserError):
                self._broadcast([status] * self.size)

    def _broadcast(self, objects: Sequence[Any]) -> None:
        from torch.distributed import scatter_object_list

        self.waiting = False
        with _gloo_errors():
            scatter_object_list([None], list(objects), src=0)


_current_group: ProcessGroup | None = None  # set only in rank 0


def _lead(stage: Callable[[], int], size: int) -> int:
    """Runs the stage as rank 0, then dismisses the other processes."""
    global _current_group
    _current_group, status = ProcessGroup(size), 1
    try:
        with restore_stopped_error():
            status = stage()
    except SystemExit as end:  # already reported, by a launcher that watches
        status = int(end.code or 0)
    except Exception:  # printed before the others end, as a launcher then ends this process too
        traceback.print_exc()
    finally:
        _current_group.dismiss(status)
        _current_group = None
    return status


def _work_for_rank_0() -> int:
    """Works for rank 0 until it ends. Returns its exit status."""
    logging.getLogger().setLevel(logging.ERROR)  # rank 0 logs what concerns all processes
    try:
        while (status := _receive_and_work()) is None:
            pass
    except _ProcessEndedError:  # rank 0 reports it, or is itself the process that ended
        status = 1
    return status


def _receive_and_work() -> int | None:
    """Does one piece of work for rank 0; returns the exit status if that was sent instead."""
    from torch.distributed import gather_object, get_rank, scatter_object_list

    received: list[Any] = [None]
    with _gloo_errors():
        scatter_object_list(received, None, src=0)
    if isinstance(received[0], int):
        return received[0]
    outcome = _results_or_error(received[0])
    if isinstance(outcome, Exception) and not isinstance(outcome, UserError):
        # neither the traceback nor, perhaps, the class can be sent to rank 0
        text = "".join(traceback.format_exception(outcome))
        outcome = RuntimeError(f"process {get_rank()} failed:\n{text}")
    with _gloo_errors():
        gather_object(outcome, None, dst=0)
    return None


def _results_or_error(piece: GroupWork[T]) -> list[T] | Exception:
    """Returns the results or the error, which must not keep this process from the others."""
    try:
        return piece.run(int(os.environ["LOCAL_RANK"]))
    except Exception as error:
        return error


class _ProcessEndedError(UserError):
    """Another process of the launcher ended without a message."""


@contextmanager
def _gloo_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # gloo's
        reason = re.sub(r"^\[\S*\] ", "", str(error)).split(". ")[0]
        raise _ProcessEndedError(
            f"Another of WORLD_SIZE={os.environ['WORLD_SIZE']} processes ended before its work was "
            f"done ({reason}), perhaps because it ran out of memory: see the launcher's or the "
            "system's log. Run the same command again: finished passes are reused."
        ) from error

"""One pass by several processes or GPUs: each takes a slice of the texts.

The processes are children of this one (`detection.processes`), or those that torchrun, deepspeed or
srun started, on one machine or many. Of these the first, the leader, runs the stage as a process
alone would; the others only serve it (see `served`).
"""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from core.errors import UserError, require
from detection.config import DetectionConfig
from detection.scored_model import ScoredModel

if TYPE_CHECKING:
    from detection.decoder import Decoder

T = TypeVar("T")

# What a pass does: `task(decoder, sequences, names, *columns, progress=title)` gives a result for
# each sequence, in their order. For another process it must be a module's function, or a `partial`.
Task = Callable[..., list[T]]

PATIENCE = timedelta(days=365)  # the leader may wait for hours, such as for another job's lock
LAUNCHED = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS")  # what launchers set, for one process as well


@dataclass(frozen=True)
class Slice(Generic[T]):
    """One process's share of a pass."""

    task: Task[T]
    source: ScoredModel
    settings: DetectionConfig
    columns: Sequence[Sequence[Any]]
    title: str | None

    def run(self, number: int) -> list[T]:
        """The task's results; on CUDA by GPU `number` modulo their number."""
        if not self.columns[0]:
            return []
        decoder = _kept.decoder(self.source, _placed(self.settings, number))
        return self.task(decoder, *self.columns, progress=self.title)


def spread(settings: DetectionConfig) -> bool:
    """Whether several processes share a pass, by `run_slices`.

    Raises:
        ConfigError: `detection.device_map` beside a launcher's processes.
    """
    if _team is None:
        return settings.processes > 1
    require(
        settings.device_map is None,
        "detection.device_map",
        settings.device_map,
        f"it spreads one model over all devices, but each of WORLD_SIZE={_team.size} processes "
        "loads a model. Choose one of them.",
    )
    return True


def run_slices(
    task: Task[T],
    source: ScoredModel,
    settings: DetectionConfig,
    sequences: Sequence[Sequence[int]],
    *columns: Sequence[Any],
) -> list[T]:
    """The task's result for each sequence, in the given order, by several processes.

    They are the launcher's where it started some, else `settings.processes`. Every n-th sequence
    goes to the same process, so that long and short ones are spread evenly.

    Args:
        task: what each process does with its slice.
        source: the model, which each process loads for itself.
        settings: the stage's settings; on CUDA process i takes GPU i modulo their number.
        sequences: token ids, at least 2 each.
        columns: what else the task takes of each sequence: first what to call it in an error.
    """
    rows = (sequences, *columns)
    n = _team.size if _team else max(1, min(settings.processes, len(sequences)))
    alone = replace(settings, processes=1)
    slices = [
        Slice(task, source, alone, [c[i::n] for c in rows], None if i else "process 0")
        for i in range(n)
    ]
    parts = _team.run(slices) if _team else _by_children(slices)
    return [parts[i % n][i // n] for i in range(len(sequences))]


def served(stage: Callable[[], int]) -> int:
    """The exit status of the stage, run by this process or, with a launcher's, by the leader.

    The others take slices from the leader until it ends, and end with its status.

    Raises:
        ConfigError: the tasks of srun can't find each other.
    """
    if not any(name in os.environ for name in LAUNCHED):
        return stage()  # before torch, which takes seconds to import
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as `command`, to which only one comes
    from core.world import asked_processes

    size = asked_processes()
    if size == 1:
        return stage()
    from torch import distributed

    # gloo beside GPUs as well: nothing but Python objects travels
    distributed.init_process_group("gloo", timeout=PATIENCE)
    try:
        status = _lead(stage, size) if distributed.get_rank() == 0 else _serve()
    finally:
        distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # libraries' threads now and then abort a process of a group while it ends


class _Team:
    """All of a launcher's processes, as the leader sees them."""

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
        """Let the others end, unless they would not hear it: these end as the leader does."""
        if self.waiting:
            with suppress(UserError):
                self._send([status] * self.size)

    def _send(self, objects: Sequence[Any]) -> None:
        from torch.distributed import scatter_object_list

        self.waiting = False
        with _connected():
            scatter_object_list([None], list(objects), src=0)


class _Kept:
    """The model loaded last, for the next pass is often over the same one."""

    def __init__(self) -> None:
        self._key: tuple[ScoredModel, DetectionConfig] | None = None
        self._decoder: Decoder | None = None

    def decoder(self, source: ScoredModel, settings: DetectionConfig) -> Decoder:
        """The model on its device; another is freed before it is loaded."""
        from detection.decoder import load_decoder

        if self._decoder is None or self._key != (source, settings):
            self._decoder = None
            gc.collect()
            self._decoder = load_decoder(source, settings)
            self._key = source, settings
        return self._decoder


_team: _Team | None = None  # only in a leader
_kept = _Kept()


def _lead(stage: Callable[[], int], size: int) -> int:
    global _team
    _team, status = _Team(size), 1
    try:
        status = stage()
    except Exception:  # said before the others end: a launcher then ends this one as well
        traceback.print_exc()
    finally:
        _team.dismiss(status)
        _team = None
    return status


def _serve() -> int:
    """Work for the leader until it ends; its exit status."""
    logging.getLogger().setLevel(logging.ERROR)  # what all have to say, the leader says
    status = None
    while status is None:
        try:
            status = _serve_once()
        except _GoneError:  # the leader says it, or is itself the one that is gone
            status = 1
    return status


def _serve_once() -> int | None:
    """Do what the leader sends; where that is the exit status, return it."""
    from torch.distributed import gather_object, get_rank, scatter_object_list

    sent: list[Any] = [None]
    with _connected():
        scatter_object_list(sent, None, src=0)
    if isinstance(sent[0], int):
        return sent[0]
    outcome = _outcome(sent[0])
    if isinstance(outcome, Exception) and not isinstance(outcome, UserError):
        # the class may not survive the way to the leader, nor does a traceback
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
            "The same command goes on with the passes that are finished."
        ) from error


def _by_children(slices: Sequence[Slice[T]]) -> list[list[T]]:
    n = len(slices)
    with ProcessPoolExecutor(n, get_context("spawn")) as pool:
        futures = [pool.submit(_run_child, work, i, n) for i, work in enumerate(slices)]
        return [future.result() for future in futures]


def _run_child(work: Slice[T], number: int, processes: int) -> list[T]:
    import torch

    if not _takes_gpu(work.settings):
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    return work.run(number)


def _placed(settings: DetectionConfig, number: int) -> DetectionConfig:
    import torch

    if not _takes_gpu(settings):
        return settings
    return replace(settings, device=f"cuda:{number % torch.cuda.device_count()}")


def _takes_gpu(settings: DetectionConfig) -> bool:
    import torch

    return torch.cuda.is_available() and settings.device in ("auto", "cuda")

"""One process's share of a pass, and the model that it keeps for the next one."""

from __future__ import annotations

import gc
import logging
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from contamination.core.errors import ConfigError, UserError
from contamination.detection.config import DetectionConfig
from contamination.detection.models.base import ModelHandle

if TYPE_CHECKING:
    from contamination.detection.models.base import LanguageModel

T = TypeVar("T")

# What a pass does: `task(model, sequences, names, *columns, progress=title)` gives a result for
# each sequence, in their order. For another process it must be a module's function, or a `partial`.
Task = Callable[..., list[T]]


@dataclass(frozen=True)
class Slice(Generic[T]):
    """One process's share of a pass."""

    task: Task[T]
    source: ModelHandle
    settings: DetectionConfig
    columns: Sequence[Sequence[Any]]
    title: str | None

    def run(self, number: int) -> list[T]:
        """The task's results; on CUDA by GPU `number` modulo their number."""
        if not self.columns[0]:
            return []
        model = _kept.model(self.source, _placed(self.settings, number))
        return self.task(model, *self.columns, progress=self.title)


class _Kept:
    """The model loaded last, for the next pass is often over the same one."""

    def __init__(self) -> None:
        self._key: tuple[ModelHandle, DetectionConfig] | None = None
        self._model: LanguageModel | None = None

    def model(self, source: ModelHandle, settings: DetectionConfig) -> LanguageModel:
        """The model on its device; another is freed before it is loaded."""
        if self._model is None or self._key != (source, settings):
            self._model = None
            gc.collect()
            self._model = source.load(settings)
            self._key = source, settings
        return self._model


_kept = _Kept()


def takes_gpu(settings: DetectionConfig) -> bool:
    """Whether the settings leave the choice of a GPU to this module, and there is one."""
    import torch

    return torch.cuda.is_available() and settings.device in ("auto", "cuda")


def _placed(settings: DetectionConfig, number: int) -> DetectionConfig:
    import torch

    if not takes_gpu(settings):
        return settings
    return replace(settings, device=f"cuda:{number % torch.cuda.device_count()}")


PATIENCE = timedelta(days=365)  # rank 0 may wait for hours, such as for another job's lease


def served(stage: Callable[[], int]) -> int:
    """The exit status of the stage, run by this process or, of a launcher's processes, by rank 0.

    The others take slices from rank 0 until it ends, and end with its status.

    Raises:
        ConfigError: the tasks of srun can't find each other.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as `command`, to which only one comes
    from contamination.core.distributed import asked_processes, leave

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


def spread(settings: DetectionConfig) -> bool:
    """Whether several processes share a pass, by `run_slices`.

    Raises:
        ConfigError: `detection.device_map` beside a launcher's processes.
    """
    group = joined()
    if group is None:
        return settings.processes > 1
    if settings.device_map is not None:
        raise ConfigError(
            f"detection.device_map is {settings.device_map!r}: it spreads one model over all "
            f"devices, but each of WORLD_SIZE={group.size} processes loads a model. Choose one of "
            "them."
        )
    return True


def run_slices(
    task: Task[T],
    source: ModelHandle,
    settings: DetectionConfig,
    sequences: Sequence[Sequence[int]],
    *columns: Sequence[Any],
    title: str,
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
        title: of the progress bar, which the first process shows for its own slice.
    """
    group = joined()
    rows = (sequences, *columns)
    n = group.size if group else max(1, min(settings.processes, len(sequences)))
    alone = replace(settings, processes=1)
    slices = [
        Slice(task, source, alone, [c[i::n] for c in rows], None if i else _titled(title, n))
        for i in range(n)
    ]
    parts = group.run(slices) if group else _by_children(slices)
    return [parts[i % n][i // n] for i in range(len(sequences))]


def _titled(title: str, processes: int) -> str:
    return f"{title}, 1 of {processes} processes" if processes > 1 else title


_children: list[ProcessPoolExecutor] | None = None  # of one process each, which has its own GPU


@contextmanager
def staying() -> Iterator[list[ProcessPoolExecutor]]:
    """Child processes that are started within it stay until its end, each with its model."""
    global _children
    if _children is not None:
        yield _children
        return
    _children = []
    try:
        yield _children
    finally:
        for pool in _children:
            pool.shutdown(wait=True, cancel_futures=True)
        _children = None


def _by_children(slices: Sequence[Slice[T]]) -> list[list[T]]:
    n = len(slices)
    with staying() as pools:
        while len(pools) < n:
            pools.append(ProcessPoolExecutor(1, get_context("spawn")))
        futures = [pools[i].submit(_run_child, work, i, n) for i, work in enumerate(slices)]
        return [future.result() for future in futures]


def _run_child(work: Slice[T], number: int, processes: int) -> list[T]:
    import torch

    if not takes_gpu(work.settings):
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    return work.run(number)

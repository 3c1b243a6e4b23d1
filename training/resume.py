"""Checkpoints to resume from: whole or not there at all; a damaged one is never opened.

::

    checkpoints/
    ├── step-00000100/             what DeepSpeed writes, every process its part
    │   └── complete.json          written last, after every process, with the files' hashes: only
    │                              with it does it count
    ├── universal-00000100/        the same made for any number of processes, where it was needed
    │   └── complete.json
    └── damaged-step-00000200/     one whose files are no longer those of its marker

DeepSpeed unpickles what it loads, which can run any code: so the hashes are compared before.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from core.content import digests
from core.errors import ConfigError
from core.files import read_sealed, sealed, sync, write_text
from core.nearest import differences
from core.world import World
from training import deepspeed_files
from training.leftovers import Leftovers, leftovers

MARKER = "complete.json"
FULL_BYTES = 2**20  # what a failed write may leave of a full disk
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint.

    Attributes:
        path: its folder.
        step: the optimizer steps done.
        world: the processes that wrote it.
        identity: the configuration that it was made with, and the inputs' digests.
        files: the SHA-256 of each file, by its path in the folder.
        beside: what stood in the model folder when it was saved.
    """

    path: Path
    step: int
    world: int
    identity: Mapping[str, Any]
    files: Mapping[str, str] = field(default_factory=dict)
    beside: Leftovers = field(default_factory=Leftovers)


def save(engine: Any, folder: Path, saved: Saved, keep: int, world: World) -> None:
    """Save the engine's whole state; the marker, written after every rank, makes it count."""
    with _full_disk_named(folder):
        deepspeed_files.write(engine, saved.path, saved.step)
    world.wait()

    def seal() -> None:
        _mark(saved)
        for old in completed(folder)[:-keep]:
            _remove(old)

    world.on_rank_0(seal)


@contextmanager
def _full_disk_named(folder: Path) -> Iterator[None]:
    """Name a full disk as the reason, where torch only says that a write failed."""
    try:
        yield
    except RuntimeError as error:
        full = folder.is_dir() and shutil.disk_usage(folder).free < FULL_BYTES
        if full and "inline_container" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise


def next_save(folder: Path, step: int, world: World, identity: Mapping[str, Any]) -> Saved:
    """The checkpoint that is about to be written at `step`."""
    return Saved(folder / f"step-{step:08d}", step, world.size, identity)


def newest(folder: Path, identity: Mapping[str, Any], world: World) -> Saved | None:
    """The newest whole checkpoint, ready to load; torn ones are removed, damaged ones set aside.

    Raises:
        ConfigError: it was made with another configuration.
        DataError: it can't be made to fit another number of processes.
    """
    saved = world.on_rank_0(partial(_newest_whole, folder))
    if saved is not None:
        _check(saved, identity)
    return saved


def _newest_whole(folder: Path) -> Saved | None:
    torn = {*folder.glob("step-*"), *folder.glob("universal-*")}
    for path in torn - {marker.parent for marker in folder.glob(f"*-*/{MARKER}")}:
        shutil.rmtree(path)
    for path in reversed(completed(folder)):
        saved, wrong = _whole(path)
        if saved is not None:
            return saved
        aside = path.with_name(f"damaged-{path.name}")
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
        log.warning(
            "The checkpoint %s is damaged (%s): it is kept as %s, and training resumes from "
            "the one before, or else from the start.",
            *(path, wrong, aside.name),
        )
    return None


def _whole(path: Path) -> tuple[Saved | None, str]:
    """The checkpoint where its files are those of its marker, else what is wrong."""
    try:
        saved = _read(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return None, f"{MARKER}: {error!r}"
    now = _hashes(path)
    for name in sorted({*saved.files, *now}):
        if name not in now:
            return None, f"{name} is missing"
        if saved.files.get(name) != now[name]:
            return None, f"{name} is not what was written"
    wrong = saved.beside.wrong(path.parents[1])
    return (None, wrong) if wrong else (saved, "")


def load(engine: Any, saved: Saved | None) -> int:
    """Load the checkpoint into an engine of as many processes; the number of steps done."""
    if saved is None:
        return 0
    deepspeed_files.read(engine, saved.path)
    log.info("resuming after step %d", saved.step)
    return saved.step


def completed(folder: Path) -> list[Path]:
    """Checkpoints with a marker, oldest first."""
    return sorted(marker.parent for marker in folder.glob(f"step-*/{MARKER}"))


def universal(saved: Saved, world: World) -> Saved:
    """The checkpoint in DeepSpeed's universal form, which any number of processes can load.

    Raises:
        DataError: DeepSpeed's converter fails.
    """
    place = saved.path.with_name(saved.path.name.replace("step", "universal"))

    def convert() -> None:
        if _whole(place)[0] is None:
            log.info("converting the checkpoint of %d processes for %d", saved.world, world.size)
            shutil.rmtree(place, ignore_errors=True)
            deepspeed_files.convert(saved.path, place)
            _mark(made)

    made = replace(saved, path=place)
    world.on_rank_0(convert)
    return made


def _mark(saved: Saved) -> None:
    """Write the marker, once every file is on the disk."""
    for file in saved.path.rglob("*"):
        sync(file)
    whole = replace(saved, files=_hashes(saved.path), beside=leftovers(saved.path.parents[1]))
    marker = {name: part for name, part in asdict(whole).items() if name != "path"}
    write_text(saved.path / MARKER, sealed(marker))


def _hashes(folder: Path) -> dict[str, str]:
    """The files' SHA-256, all read again: a file that the disk has spoilt keeps its times."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    found.pop(MARKER, None)
    return digests(found, remembered=False)


def _read(path: Path) -> Saved:
    marker = read_sealed(path / MARKER)
    return Saved(path, **{**marker, "beside": Leftovers(**marker["beside"])})


def _check(saved: Saved, identity: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another configuration, and name the first field that differs."""
    for other in differences(saved.identity, identity):
        raise ConfigError(
            f"{other.name} is {other.now!r}, but the checkpoint {saved.path} was made with "
            f"{other.was!r}. Set it back, or delete the folder {saved.path.parent} to start again."
        )


def _remove(path: Path) -> None:
    """Remove its marker first, so that a half-removed checkpoint does not count."""
    (path / MARKER).unlink()
    shutil.rmtree(path)
    place = path.with_name(path.name.replace("step", "universal"))
    shutil.rmtree(place, ignore_errors=True)

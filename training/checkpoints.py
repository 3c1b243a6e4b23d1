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
import hashlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from contamination.core.config_diff import differences
from contamination.core.distributed import World
from contamination.core.errors import ConfigError, DataError
from contamination.core.files import read_sealed, sealed, sync, write_text
from contamination.core.hashing import digests
from contamination.training.trained_model import EVALUATIONS, EXPORTS, HF, METRICS

LOAD_UNIVERSAL = {"checkpoint": {"load_universal": True}}
"""What the engine's configuration says where `read` is given what `convert` made."""


def write_checkpoint(engine: Any, folder: Path, step: int) -> None:
    """Write the engine's whole state, every process its part."""
    state = {"step": step}
    engine.save_checkpoint(
        str(folder.parent), tag=folder.name, client_state=state, save_latest=False
    )


def read_checkpoint(engine: Any, folder: Path) -> None:
    """Load what `write` wrote with as many processes, or what `convert` made of it."""
    optimizer = engine.optimizer
    decays = [group["weight_decay"] for group in optimizer.param_groups]
    engine.load_checkpoint(str(folder.parent), tag=folder.name)
    # of a universal checkpoint, ZeRO 3 gives all groups the first one's decay, and one counter of
    # steps, which each of them then moves on
    for group, decay in zip(optimizer.param_groups, decays, strict=True):
        group["weight_decay"] = decay
    for state in optimizer.state.values():
        state["step"] = state["step"].clone()


def convert_checkpoint(source: Path, place: Path) -> None:
    """Make DeepSpeed's universal form of a checkpoint, which any number of processes can load.

    Raises:
        DataError: DeepSpeed's converter fails.
    """
    call = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state"]
    call += ["--input_folder", str(source), "--output_folder", str(place)]
    call += ["--num_extract_workers", "1", "--num_merge_workers", "1"]
    done = subprocess.run(call, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DataError(
            f"The checkpoint {source} can't be converted for another number of processes "
            f"({reason}). Go on with as many processes as wrote it."
        )


@dataclass(frozen=True)
class Leftovers:
    """What stands in the model folder.

    Attributes:
        exports: the SHA-256 of the exports' files, by their path in the folder.
        lines: of each record the bytes, and their SHA-256.
    """

    exports: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def wrong(self, folder: Path) -> str | None:
        """The first file that is missing or has changed, in words; None where there is none."""
        now = digests({n: folder / n for n in self.exports if (folder / n).is_file()})
        for name, digest in self.exports.items():
            if now.get(name) != digest:
                return _words(folder / name)
        for name, (count, digest) in self.lines.items():
            if not (folder / name).is_file() or _of_first(folder / name, count) != digest:
                return _words(folder / name)
        return None


def leftovers(folder: Path) -> Leftovers:
    """Record what is in the model folder now, after it was flushed to disk."""
    exports = [path for path in folder.glob(f"{EXPORTS}/step-*/**/*") if path.is_file()]
    records = [folder / name for name in (METRICS, EVALUATIONS) if (folder / name).is_file()]
    for path in [*exports, *records]:
        sync(path)
    sizes = {path.name: size for path in records if (size := path.stat().st_size)}
    return Leftovers(
        digests({str(path.relative_to(folder)): path for path in exports}),
        {name: (size, _of_first(folder / name, size)) for name, size in sizes.items()},
    )


def clear(folder: Path, step: int) -> None:
    """Remove what is going to be made again after `step`: the model, and later exports."""
    shutil.rmtree(folder / HF, ignore_errors=True)
    for path in folder.glob(f"{EXPORTS}/step-*"):
        if step < int(path.name.removeprefix("step-")):
            shutil.rmtree(path)


def _of_first(path: Path, count: int) -> str:
    """SHA-256 of the file's first `count` bytes."""
    with path.open("rb") as stream:
        return hashlib.sha256(stream.read(count)).hexdigest()


def _words(path: Path) -> str:
    return f"{path} is not what was written" if path.exists() else f"{path} is missing"


MARKER = "complete.json"
FULL_BYTES = 2**20  # what a failed write may leave of a full disk
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SavedCheckpoint:
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


def save(engine: Any, folder: Path, saved: SavedCheckpoint, keep: int, world: World) -> None:
    """Save the engine's whole state; the marker, written after every rank, makes it count."""
    with _full_disk_named(folder):
        write_checkpoint(engine, saved.path, saved.step)
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


def next_save(
    folder: Path, step: int, world: World, identity: Mapping[str, Any]
) -> SavedCheckpoint:
    """The checkpoint that is about to be written at `step`."""
    return SavedCheckpoint(folder / f"step-{step:08d}", step, world.size, identity)


def newest(folder: Path, identity: Mapping[str, Any], world: World) -> SavedCheckpoint | None:
    """The newest whole checkpoint, ready to load; torn ones are removed, damaged ones set aside.

    Raises:
        ConfigError: it was made with another configuration.
        DataError: it can't be made to fit another number of processes.
    """
    saved = world.on_rank_0(partial(_newest_whole, folder))
    if saved is not None:
        _check(saved, identity)
    return saved


def _newest_whole(folder: Path) -> SavedCheckpoint | None:
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


def _whole(path: Path) -> tuple[SavedCheckpoint | None, str]:
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


def load(engine: Any, saved: SavedCheckpoint | None) -> int:
    """Load the checkpoint into an engine of as many processes; the number of steps done."""
    if saved is None:
        return 0
    read_checkpoint(engine, saved.path)
    log.info("resuming after step %d", saved.step)
    return saved.step


def completed(folder: Path) -> list[Path]:
    """Checkpoints with a marker, oldest first."""
    return sorted(marker.parent for marker in folder.glob(f"step-*/{MARKER}"))


def universal(saved: SavedCheckpoint, world: World) -> SavedCheckpoint:
    """The checkpoint in DeepSpeed's universal form, which any number of processes can load.

    Raises:
        DataError: DeepSpeed's converter fails.
    """
    place = saved.path.with_name(saved.path.name.replace("step", "universal"))

    def convert() -> None:
        if _whole(place)[0] is None:
            log.info("converting the checkpoint of %d processes for %d", saved.world, world.size)
            shutil.rmtree(place, ignore_errors=True)
            convert_checkpoint(saved.path, place)
            _mark(made)

    made = replace(saved, path=place)
    world.on_rank_0(convert)
    return made


def _mark(saved: SavedCheckpoint) -> None:
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


def _read(path: Path) -> SavedCheckpoint:
    marker = read_sealed(path / MARKER)
    return SavedCheckpoint(path, **{**marker, "beside": Leftovers(**marker["beside"])})


def _check(saved: SavedCheckpoint, identity: Mapping[str, Any]) -> None:
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

"""Checkpoints for resuming: `step-…` by DeepSpeed, `universal-…` for other numbers of processes.

Each has `complete.json` with the files' hashes, which is written last. A checkpoint without it is
ignored, and one whose files have changed is renamed to `damaged-…`. DeepSpeed loads checkpoints
with pickle, which can run any code, so the hashes are compared first.
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

from contamination.core.config_diff import iter_differences
from contamination.core.distributed import World
from contamination.core.errors import ConfigError, DataError
from contamination.core.files import (
    hashed_json,
    read_verified_json,
    sync_to_disk,
    write_text_atomically,
)
from contamination.core.hashing import digests_by_name
from contamination.training.trained_model import EVALUATIONS, EXPORTS, HF, METRICS

LOAD_UNIVERSAL = {"checkpoint": {"load_universal": True}}
"""The engine's configuration for loading a checkpoint of `convert_checkpoint`."""


def write_checkpoint(engine: Any, folder: Path, step: int) -> None:
    """Writes the engine's state; every process writes its part."""
    state = {"step": step}
    engine.save_checkpoint(
        str(folder.parent), tag=folder.name, client_state=state, save_latest=False
    )


def load_checkpoint(engine: Any, folder: Path) -> None:
    """Loads a checkpoint of the same number of processes, or one from `convert_checkpoint`."""
    optimizer = engine.optimizer
    decays = [group["weight_decay"] for group in optimizer.param_groups]
    engine.load_checkpoint(str(folder.parent), tag=folder.name)
    # From a universal checkpoint, ZeRO stage 3 loads the first group's weight decay for all groups,
    # and one shared step counter, which every group would advance.
    for group, decay in zip(optimizer.param_groups, decays, strict=True):
        group["weight_decay"] = decay
    for state in optimizer.state.values():
        state["step"] = state["step"].clone()
    # The checkpoint has the next step's rate as its own training continued, and this one may go on
    # otherwise (`training.training_prefix`).
    schedule = engine.lr_scheduler
    for group, base, share in zip(
        optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
    ):
        group["lr"] = base * share(schedule.last_epoch)


def convert_checkpoint(source: Path, target: Path) -> None:
    """Converts a checkpoint to DeepSpeed's universal form, which any number of processes can load.

    Raises:
        DataError: DeepSpeed's converter fails.
    """
    call = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state"]
    call += ["--input_folder", str(source), "--output_folder", str(target)]
    call += ["--num_extract_workers", "1", "--num_merge_workers", "1"]
    result = subprocess.run(call, capture_output=True, text=True)
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise DataError(
            f"The checkpoint {source} can't be converted for another number of processes "
            f"({reason}). Resume with the number of processes that wrote it."
        )


@dataclass(frozen=True)
class FolderState:
    """The state of the exports and records in the model folder when a checkpoint was saved.

    Attributes:
        exports: path in the folder → the SHA-256 of the exported file.
        lines: name of a record → its size in bytes and its SHA-256.
    """

    exports: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def describe_first_change(self, folder: Path) -> str | None:
        """Returns a sentence about the first file that is missing or has changed, or None."""
        now = digests_by_name({n: folder / n for n in self.exports if (folder / n).is_file()})
        for name, digest in self.exports.items():
            if now.get(name) != digest:
                return _describe_changed_file(folder / name)
        for name, (count, digest) in self.lines.items():
            if (
                not (folder / name).is_file()
                or _digest_of_first_bytes(folder / name, count) != digest
            ):
                return _describe_changed_file(folder / name)
        return None


def flush_and_hash_outputs(folder: Path) -> FolderState:
    """Flushes the model folder's exports and records to disk, and returns their state."""
    export_paths = [path for path in folder.glob(f"{EXPORTS}/step-*/**/*") if path.is_file()]
    record_paths = [folder / name for name in (METRICS, EVALUATIONS) if (folder / name).is_file()]
    for path in [*export_paths, *record_paths]:
        sync_to_disk(path)
    sizes = {path.name: size for path in record_paths if (size := path.stat().st_size)}
    return FolderState(
        digests_by_name({str(path.relative_to(folder)): path for path in export_paths}),
        {name: (size, _digest_of_first_bytes(folder / name, size)) for name, size in sizes.items()},
    )


def remove_outputs_after(folder: Path, step: int) -> None:
    """Removes the model and later exports, which training after `step` creates again."""
    shutil.rmtree(folder / HF, ignore_errors=True)
    for path in folder.glob(f"{EXPORTS}/step-*"):
        if step < int(path.name.removeprefix("step-")):
            shutil.rmtree(path)


def _digest_of_first_bytes(path: Path, count: int) -> str:
    with path.open("rb") as stream:
        return hashlib.sha256(stream.read(count)).hexdigest()


def _describe_changed_file(path: Path) -> str:
    return f"{path} is not what was written" if path.exists() else f"{path} is missing"


MARKER = "complete.json"
FULL_DISK_BYTES = 2**20  # a disk with less free space counts as full
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SavedCheckpoint:
    """A complete checkpoint.

    Attributes:
        path: its folder.
        step: the number of optimizer steps done.
        world: the number of processes that wrote it.
        identity: the configuration and the digests of the inputs.
        files: path in the folder → the SHA-256 of the file.
        beside: the state of the model folder when the checkpoint was saved.
    """

    path: Path
    step: int
    world: int
    identity: Mapping[str, Any]
    files: Mapping[str, str] = field(default_factory=dict)
    beside: FolderState = field(default_factory=FolderState)


def save_checkpoint(
    engine: Any, folder: Path, saved: SavedCheckpoint, keep: int, world: World
) -> None:
    """Saves the engine's state, then writes the marker and removes all but the last `keep`."""
    with _translate_full_disk_error(folder):
        write_checkpoint(engine, saved.path, saved.step)
    world.wait()

    def mark_and_prune() -> None:
        mark_complete(saved)
        for old in completed_folders(folder)[:-keep]:
            _remove_checkpoint(old)

    world.on_rank_0(mark_and_prune)


@contextmanager
def _translate_full_disk_error(folder: Path) -> Iterator[None]:
    """Raises an OSError for a full disk; torch only reports that a write failed."""
    try:
        yield
    except RuntimeError as error:
        is_full = folder.is_dir() and shutil.disk_usage(folder).free < FULL_DISK_BYTES
        if is_full and "inline_container" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise


def checkpoint_at_step(
    folder: Path, step: int, world: World, identity: Mapping[str, Any]
) -> SavedCheckpoint:
    """Returns the checkpoint that is about to be written at `step`."""
    return SavedCheckpoint(folder / f"step-{step:08d}", step, world.size, identity)


def find_newest_checkpoint(
    folder: Path, identity: Mapping[str, Any], world: World
) -> SavedCheckpoint | None:
    """Returns the newest intact checkpoint; removes incomplete ones and renames damaged ones.

    Raises:
        ConfigError: it was written with another configuration.
    """
    saved = world.on_rank_0(partial(_find_newest_intact, folder))
    if saved is not None:
        _check_identity(saved, identity)
    return saved


def _find_newest_intact(folder: Path) -> SavedCheckpoint | None:
    all_folders = {*folder.glob("step-*"), *folder.glob("universal-*")}
    for incomplete in all_folders - {marker.parent for marker in folder.glob(f"*-*/{MARKER}")}:
        shutil.rmtree(incomplete)
    for path in reversed(completed_folders(folder)):
        saved, problem = _read_if_intact(path)
        if saved is not None:
            return saved
        renamed = path.with_name(f"damaged-{path.name}")
        shutil.rmtree(renamed, ignore_errors=True)
        path.rename(renamed)
        log.warning(
            "The checkpoint %s is damaged (%s): it is kept as %s, and training resumes from "
            "the one before, or else from the start.",
            *(path, problem, renamed.name),
        )
    return None


def _read_if_intact(path: Path) -> tuple[SavedCheckpoint | None, str]:
    """Returns the checkpoint if its files match its marker; otherwise None and the problem."""
    try:
        saved = _read_marker(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return None, f"{MARKER}: {error!r}"
    now = _hash_files(path)
    for name in sorted({*saved.files, *now}):
        if name not in now:
            return None, f"{name} is missing"
        if saved.files.get(name) != now[name]:
            return None, f"{name} is not what was written"
    wrong = saved.beside.describe_first_change(path.parents[1])
    return (None, wrong) if wrong else (saved, "")


def resume_from(engine: Any, saved: SavedCheckpoint | None) -> int:
    """Loads the checkpoint into the engine; returns the number of steps done."""
    if saved is None:
        return 0
    load_checkpoint(engine, saved.path)
    log.info("resuming after step %d", saved.step)
    return saved.step


def completed_folders(folder: Path) -> list[Path]:
    """Returns the checkpoints with a marker, oldest first."""
    return sorted(marker.parent for marker in folder.glob(f"step-*/{MARKER}"))


def convert_to_universal(saved: SavedCheckpoint, world: World) -> SavedCheckpoint:
    """Returns the checkpoint in DeepSpeed's universal form, which any number of processes can load.

    Raises:
        DataError: DeepSpeed's converter fails.
    """
    folder = saved.path.with_name(saved.path.name.replace("step", "universal"))
    converted = replace(saved, path=folder)

    def convert_if_damaged() -> None:
        if _read_if_intact(folder)[0] is None:
            log.info("converting the checkpoint of %d processes for %d", saved.world, world.size)
            shutil.rmtree(folder, ignore_errors=True)
            convert_checkpoint(saved.path, folder)
            mark_complete(converted)

    world.on_rank_0(convert_if_damaged)
    return converted


def mark_complete(saved: SavedCheckpoint) -> None:
    """Writes the marker of a checkpoint, with the hashes of all its files."""
    for file in saved.path.rglob("*"):
        sync_to_disk(file)
    complete = replace(
        saved, files=_hash_files(saved.path), beside=flush_and_hash_outputs(saved.path.parents[1])
    )
    marker = {name: value for name, value in asdict(complete).items() if name != "path"}
    write_text_atomically(saved.path / MARKER, hashed_json(marker))


def _hash_files(folder: Path) -> dict[str, str]:
    """Returns the files' SHA-256 without the cache, as disk errors don't change a file's times."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    files.pop(MARKER, None)
    return digests_by_name(files, use_cache=False)


def _read_marker(path: Path) -> SavedCheckpoint:
    marker = read_verified_json(path / MARKER)
    return SavedCheckpoint(path, **{**marker, "beside": FolderState(**marker["beside"])})


def _check_identity(saved: SavedCheckpoint, identity: Mapping[str, Any]) -> None:
    for field_ in iter_differences(saved.identity, identity):
        raise ConfigError(
            f"{field_.name} is {field_.now!r}, but the checkpoint {saved.path} was made with "
            f"{field_.was!r}. Set it back, or delete the folder {saved.path.parent} to start again."
        )


def _remove_checkpoint(path: Path) -> None:
    """Removes a checkpoint, beginning with its marker, so that it counts as incomplete."""
    (path / MARKER).unlink()
    shutil.rmtree(path)
    converted = path.with_name(path.name.replace("step", "universal"))
    shutil.rmtree(converted, ignore_errors=True)

"""Checkpoints to resume from, which can't be torn.

::

    checkpoints/
    ├── step-00000100/             what DeepSpeed writes, every process its part
    │   └── complete.json          written last, after every process: only with it does it count
    └── universal-00000100/        the same made for any number of processes, where it was needed
        └── complete.json
"""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.artifacts import write_text
from core.errors import ConfigError, DataError
from core.world import World

MARKER = "complete.json"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint.

    Attributes:
        path: its folder.
        step: the optimizer steps done.
        world: the processes that wrote it.
        identity: the configuration that it was made with, and the inputs' digests.
    """

    path: Path
    step: int
    world: int
    identity: Mapping[str, Any]


def save(engine: Any, folder: Path, saved: Saved, keep: int, world: World) -> None:
    """Save the engine's whole state; the marker, written after every rank, makes it count."""
    engine.save_checkpoint(
        str(folder), tag=saved.path.name, client_state={"step": saved.step}, save_latest=False
    )
    world.wait()
    if world.leader:
        marker = {"step": saved.step, "world": saved.world, "identity": saved.identity}
        write_text(saved.path / MARKER, json.dumps(marker))
        for old in completed(folder)[:-keep]:
            _remove(old)
    world.wait()


def next_save(folder: Path, step: int, world: World, identity: Mapping[str, Any]) -> Saved:
    """What a checkpoint at `step` is going to be."""
    return Saved(folder / f"step-{step:08d}", step, world.size, identity)


def newest(folder: Path, identity: Mapping[str, Any], world: World) -> Saved | None:
    """The newest complete checkpoint, ready to load; torn ones are removed.

    Raises:
        ConfigError: it was made with another configuration.
        DataError: it can't be made to fit another number of processes.
    """
    if world.leader:
        for torn in {*folder.glob("*-*")} - {p.parent for p in folder.glob(f"*-*/{MARKER}")}:
            shutil.rmtree(torn)
    found = world.from_leader(completed(folder))
    if not found:
        return None
    saved = _read(found[-1])
    _check(saved, identity)
    return saved


def load(engine: Any, saved: Saved | None) -> int:
    """Load the checkpoint into an engine of as many processes; the number of steps done."""
    if saved is None:
        return 0
    optimizer = engine.optimizer
    decays = [group["weight_decay"] for group in optimizer.param_groups]
    engine.load_checkpoint(str(saved.path.parent), tag=saved.path.name)
    # of a universal checkpoint, ZeRO 3 gives all groups the first one's decay, and one counter of
    # steps, which each of them then moves on
    for group, decay in zip(optimizer.param_groups, decays, strict=True):
        group["weight_decay"] = decay
    for state in optimizer.state.values():
        state["step"] = state["step"].clone()
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
        if not (place / MARKER).is_file():
            log.info("converting the checkpoint of %d processes for %d", saved.world, world.size)
            shutil.rmtree(place, ignore_errors=True)
            _convert(saved.path, place)
            write_text(place / MARKER, (saved.path / MARKER).read_text())

    world.by_leader(convert)
    return Saved(place, saved.step, saved.world, saved.identity)


def _convert(source: Path, place: Path) -> None:
    call = [
        sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state",
        "--input_folder", str(source), "--output_folder", str(place),
        "--num_extract_workers", "1", "--num_merge_workers", "1",
    ]  # fmt: skip
    done = subprocess.run(call, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DataError(
            f"The checkpoint {source} can't be converted for another number of processes "
            f"({reason}). Go on with as many processes as wrote it."
        )


def _read(path: Path) -> Saved:
    marker = json.loads((path / MARKER).read_text())
    return Saved(path, marker["step"], marker["world"], marker["identity"])


def _check(saved: Saved, identity: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another configuration, and name the first field that differs."""
    was, now = _flat(saved.identity), _flat(identity)
    for field in sorted({*was, *now}):
        if was.get(field) != now.get(field):
            raise ConfigError(
                f"{field} is {now.get(field)!r}, but the checkpoint {saved.path} was made with "
                f"{was.get(field)!r}. Set it back, or delete the folder {saved.path.parent} to "
                "start again."
            )


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {name: value}
    parts = [_flat(v, f"{name}.{k}" if name else str(k)) for k, v in value.items()]
    return {k: v for part in parts for k, v in part.items()}


def _remove(path: Path) -> None:
    """Without its marker first, so that a half-removed checkpoint does not count."""
    (path / MARKER).unlink()
    shutil.rmtree(path)
    place = path.with_name(path.name.replace("step", "universal"))
    shutil.rmtree(place, ignore_errors=True)

"""`python -m launch check`: what of a runs folder is whole, and what is damaged or left over."""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from contamination.core.artifacts import CONFIG, NAMED, is_complete
from contamination.core.errors import ArtifactError, ConfigError
from contamination.core.files import TEMPORARY_END
from contamination.core.hashing import SHOWN_BYTES
from contamination.core.integrity import ALWAYS, MANIFEST, SCHEMA, damages, read_manifest
from contamination.core.lock import LOCKS, holder, if_free, lease_file, maker
from contamination.core.progress import progress

ARTIFACTS = (
    *("corpus", "export", "model", "masked_lm", "rewordings", "passes", "scores", "accuracy"),
    *("extraction", "audit", "report", "benchmark", "finetuning"),
)
WHOLE, DAMAGED, UNFINISHED, ORPHANED = "whole", "damaged", "unfinished", "orphaned"
RUNNING, OLDER, FOREIGN = "running", "older", "foreign"
STATES = (DAMAGED, UNFINISHED, ORPHANED, RUNNING, OLDER, FOREIGN, WHOLE)
TEMPORARY = re.compile(r"\.(.+\.(?P<host>[^.].*)\.(?P<pid>\d{1,7})|.+)" + re.escape(TEMPORARY_END))
STALE = 3600.0
"""Seconds unchanged after which another machine's temporary file counts as left over."""


@dataclass(frozen=True)
class CheckedPath:
    """A folder or file: what became of it, its size, and what there is to say about it."""

    path: Path
    state: str
    bytes: int
    words: str = ""


def check(runs: Path) -> list[CheckedPath]:
    """All that the runs folder holds, every finished artefact compared by content.

    Raises:
        ConfigError: there is no such folder.
    """
    if not runs.is_dir():
        raise ConfigError(f"runs is {str(runs)!r}: there is no such folder. Give runs=DIR.")
    folders = sorted(p for kind in ARTIFACTS for p in (runs / kind).glob("*") if p.is_dir())
    sizes = {folder: _bytes(folder) for folder in folders}
    total = sum(sizes.values())
    shown: dict[str, Any] = {"unit": "B", "unit_scale": True, "disable": total < SHOWN_BYTES}
    found = []
    with progress(total=total, desc="check", **shown) as bar:
        for folder, size in sizes.items():
            state, words = _state(folder)
            found.append(CheckedPath(folder, state, size, words))
            bar.update(size)
    busy = [f.path for f in found if f.state in (UNFINISHED, RUNNING)]
    found += [*_leases(runs), *_temporary(runs, busy), *_resumed(found)]
    return sorted(found, key=lambda f: (STATES.index(f.state), str(f.path)))


def listed(runs: Path, found: Sequence[CheckedPath]) -> str:
    """A line a thing that is not whole, and the count and size of each kind."""
    lines = [
        f"  {f.state:10} {_size([f]):>9}  {f.path}{f.words and f': {f.words}'}"
        for f in found
        if f.state != WHOLE
    ]
    groups = {state: [f for f in found if f.state == state] for state in reversed(STATES)}
    counts = [f"{len(own)} {state} ({_size(own)})" for state, own in groups.items() if own]
    return "\n".join([f"{runs}: {', '.join(counts) or 'no artefact'}", *lines])


def prune(found: Sequence[CheckedPath], agreed: Callable[[str], bool]) -> None:
    """Remove of what `check` found what is left over, then what is damaged, each if agreed.

    What a process makes now is never removed.
    """
    damaged = "damaged; their commands make them again"
    for states, why in (((UNFINISHED, ORPHANED), "left over"), ((DAMAGED,), damaged)):
        own = [f for f in found if f.state in states]
        if own and agreed(f"Remove {len(own)} ({_size(own)}), {why}?"):
            for each in own:
                print(_removed(each.path))


def _removed(place: Path) -> str:
    """Remove it unless a process may make it; what became of it."""
    folder = next((p for p in (place, *place.parents) if p.parent.name in ARTIFACTS), None)
    lease = place if place.parent.name == LOCKS else folder and lease_file(folder)
    made = folder is not None and maker(folder) is not None
    with nullcontext(not made) if made or lease is None else if_free(lease) as free:
        if not free:
            return f"kept {place}: a process may make it now"
        try:
            if place != lease:  # a lease goes as it is let go of
                _delete(place)
        except OSError as error:
            return f"kept {place}: {error.strerror}"
    return f"removed {place}"


def _delete(place: Path) -> None:
    """Without its manifest first: what is half removed is then unfinished. Of a link, the link."""
    if place.is_dir() and not place.is_symlink():
        if is_complete(place):
            (place / MANIFEST).unlink()
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _state(folder: Path) -> tuple[str, str]:
    """What became of an artefact's folder, and what there is to say about it."""
    named, who = NAMED.fullmatch(folder.name), maker(folder)  # before it is finished
    if not is_complete(folder):
        if who is not None:
            return RUNNING, f"{who} makes it"
        if any(folder.iterdir()) and not (named and (folder / CONFIG).is_file()):
            return FOREIGN, "no stage began it, and it is kept"
        return UNFINISHED, "the command that began it resumes it"
    try:
        manifest = read_manifest(folder)
    except ArtifactError as error:
        if not named:
            return FOREIGN, "no stage made it, and it is kept"
        return DAMAGED, f"{MANIFEST} is not what was written ({error.__cause__})"
    if manifest["schema"] != SCHEMA:
        return OLDER, f"of schema {manifest['schema']}; this version's is {SCHEMA}"
    wrong = [*damages(folder, manifest, ALWAYS)]
    return DAMAGED if wrong else WHOLE, "; ".join(wrong)


def _leases(runs: Path) -> Iterator[CheckedPath]:
    for file in (runs / LOCKS).glob("*.lease"):
        if file.is_file() and holder(file) is None:
            yield CheckedPath(file, ORPHANED, _bytes(file), "the lease of a process that is gone")


def _temporary(runs: Path, busy: Sequence[Path]) -> Iterator[CheckedPath]:
    """What killed processes were writing, but in folders that are not finished."""
    kinds = [runs / kind for kind in (*ARTIFACTS, "launches")]
    for place, folders, files in (step for kind in kinds for step in os.walk(kind)):
        here = Path(place)
        if here in busy or here.name == LOCKS:
            folders.clear()
            continue
        for name in [*folders, *files]:
            match = TEMPORARY.fullmatch(name)
            if match and not _is_written(here / name, match):
                yield CheckedPath(
                    here / name, ORPHANED, _bytes(here / name), "of a process that is gone"
                )
        folders[:] = [name for name in folders if not TEMPORARY.fullmatch(name)]


def _is_written(path: Path, match: re.Match[str]) -> bool:
    """Whether the process that made the temporary file may still write it."""
    if match["host"] == socket.gethostname():
        return bool(psutil.pid_exists(int(match["pid"])))
    with suppress(FileNotFoundError):
        return time.time() - path.stat().st_mtime < STALE
    return True


def _resumed(found: Sequence[CheckedPath]) -> Iterator[CheckedPath]:
    """What nothing resumes from: a finished folder's checkpoints or tokens, damaged checkpoints."""
    for each in found:
        left = [*each.path.glob("checkpoints/damaged-*")]
        if each.state == WHOLE and holder(lease_file(each.path)) is None:
            left = [p for name in ("checkpoints", "tokens") if (p := each.path / name).is_dir()]
        for path in left:
            yield CheckedPath(path, ORPHANED, _bytes(path), "nothing resumes from it")


def _bytes(path: Path) -> int:
    """The size of a file, or of all files in a folder."""
    total = 0
    for file in path.rglob("*") if path.is_dir() else [path]:
        with suppress(OSError):  # another process removes it
            total += 0 if file.is_dir() else file.stat().st_size
    return total


def _size(found: Sequence[CheckedPath]) -> str:
    count: float = sum(f.bytes for f in found)
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"

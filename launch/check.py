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

import psutil

from core.artifacts import CONFIG, SCHEMA, is_complete
from core.content import SHOWN_BYTES
from core.errors import ArtifactError, ConfigError
from core.files import TEMPORARY_END
from core.lease import LOCKS, holder, if_free, lease_file
from core.progress import progress
from core.wholeness import ALWAYS, MANIFEST, damages, read_manifest

ARTIFACTS = (
    "corpus", "model", "masked_lm", "rewordings", "passes", "scores", "accuracy", "report"
)  # fmt: skip
WHOLE, DAMAGED, UNFINISHED, ORPHANED = "whole", "damaged", "unfinished", "orphaned"
RUNNING, OLDER, FOREIGN = "running", "older", "foreign"
STATES = (DAMAGED, UNFINISHED, ORPHANED, RUNNING, OLDER, FOREIGN, WHOLE)
TEMPORARY = re.compile(r"\.(.+\.(?P<host>[^.].*)\.(?P<pid>\d{1,7})|.+)" + re.escape(TEMPORARY_END))
NAMED = re.compile(r".+-[0-9a-f]{12}")  # as `locate` names an artefact
STALE = 3600.0
"""Seconds unchanged after which another machine's temporary file counts as left over."""


@dataclass(frozen=True)
class Found:
    """A folder or file: what became of it, its size, and what there is to say about it."""

    path: Path
    state: str
    bytes: int
    words: str = ""


def check(runs: Path) -> list[Found]:
    """All that the runs folder holds, every finished artefact compared by content.

    Raises:
        ConfigError: there is no such folder.
    """
    if not runs.is_dir():
        raise ConfigError(f"runs is {str(runs)!r}: there is no such folder. Give runs=DIR.")
    folders = sorted(p for kind in ARTIFACTS for p in (runs / kind).glob("*") if p.is_dir())
    sizes = {folder: _bytes(folder) for folder in folders}
    total = sum(sizes.values())
    bar = progress(
        total=total, desc="check", unit="B", unit_scale=True, disable=total < SHOWN_BYTES
    )
    found = []
    with bar:
        for folder, size in sizes.items():
            found.append(_artifact(folder, size))
            bar.update(size)
    busy = [f.path for f in found if f.state in (UNFINISHED, RUNNING)]
    found += [*_leases(runs), *_temporary(runs, busy), *_resumed(found)]
    return sorted(found, key=lambda f: (STATES.index(f.state), str(f.path)))


def listed(runs: Path, found: Sequence[Found]) -> str:
    """A line a thing that is not whole, and the count and size of each kind."""
    bad = [f for f in found if f.state != WHOLE]
    lines = [
        f"  {f.state:10} {_size(f.bytes):>9}  {f.path}{f.words and f': {f.words}'}" for f in bad
    ]
    states = [state for state in reversed(STATES) if any(f.state == state for f in found)]
    counts = [f"{len(own)} {state} ({_size(sum(f.bytes for f in own))})"
              for state in states if (own := [f for f in found if f.state == state])]  # fmt: skip
    return "\n".join([f"{runs}: {', '.join(counts) or 'no artefact'}", *lines])


def prune(found: Sequence[Found], agreed: Callable[[str], bool]) -> None:
    """Remove what is left over, then what is damaged, each if agreed; never what a process makes.

    Args:
        found: what `check` found.
        agreed: asks a question; whether the answer is yes.
    """
    _remove([f for f in found if f.state in (UNFINISHED, ORPHANED)], "left over", agreed)
    _remove([f for f in found if f.state == DAMAGED], "damaged; their commands make them again",
            agreed)  # fmt: skip


def _remove(found: Sequence[Found], why: str, agreed: Callable[[str], bool]) -> None:
    size = _size(sum(f.bytes for f in found))
    if not found or not agreed(f"Remove {len(found)} ({size}), {why}?"):
        return
    for each in found:
        place = each.path
        folder = next((p for p in (place, *place.parents) if _is_artifact(p)), None)
        lease = place if place.parent.name == LOCKS else folder and lease_file(folder)
        with if_free(lease) if lease else nullcontext(True) as free:
            print(_removed(place, lease) if free else f"kept {place}: a process may make it now")


def _removed(place: Path, lease: Path | None) -> str:
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


def _is_artifact(path: Path) -> bool:
    return path.parent.name in ARTIFACTS


def _artifact(folder: Path, size: int) -> Found:
    who = holder(lease_file(folder))
    if not is_complete(folder):
        if who is not None:
            return Found(folder, RUNNING, size, f"{who} makes it")
        begun = NAMED.fullmatch(folder.name) and (folder / CONFIG).is_file()
        if not begun and any(folder.iterdir()):
            return Found(folder, FOREIGN, size, "no stage began it, and it is kept")
        return Found(folder, UNFINISHED, size, "the command that began it goes on with it")
    try:
        manifest = read_manifest(folder)
    except ArtifactError as error:
        if not NAMED.fullmatch(folder.name):
            return Found(folder, FOREIGN, size, "no stage made it, and it is kept")
        return Found(
            folder, DAMAGED, size, f"{MANIFEST} is not what was written ({error.__cause__})"
        )
    if manifest["schema"] != SCHEMA:
        return Found(
            folder, OLDER, size, f"of schema {manifest['schema']}; this version's is {SCHEMA}"
        )
    wrong = [*damages(folder, manifest, ALWAYS)]
    return Found(folder, DAMAGED if wrong else WHOLE, size, "; ".join(map(str, wrong)))


def _leases(runs: Path) -> Iterator[Found]:
    for file in (runs / LOCKS).glob("*.lease"):
        if file.is_file() and holder(file) is None:
            yield Found(file, ORPHANED, _bytes(file), "the lease of a process that is gone")


def _temporary(runs: Path, busy: Sequence[Path]) -> Iterator[Found]:
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
                yield Found(here / name, ORPHANED, _bytes(here / name), "of a process that is gone")
        folders[:] = [name for name in folders if not TEMPORARY.fullmatch(name)]


def _is_written(path: Path, match: re.Match[str]) -> bool:
    """Whether the process that made the temporary file may still write it."""
    if match["host"] == socket.gethostname():
        return bool(psutil.pid_exists(int(match["pid"])))
    with suppress(FileNotFoundError):
        return time.time() - path.stat().st_mtime < STALE
    return True


def _resumed(found: Sequence[Found]) -> Iterator[Found]:
    """What nothing resumes from: a finished folder's checkpoints or tokens, damaged checkpoints."""
    for each in found:
        left = [*each.path.glob("checkpoints/damaged-*")]
        if each.state == WHOLE and holder(lease_file(each.path)) is None:
            left = [p for name in ("checkpoints", "tokens") if (p := each.path / name).is_dir()]
        for path in left:
            yield Found(path, ORPHANED, _bytes(path), "nothing resumes from it")


def _bytes(path: Path) -> int:
    """The size of a file, or of all files in a folder."""
    total = 0
    for file in path.rglob("*") if path.is_dir() else [path]:
        with suppress(OSError):  # another process removes it
            total += 0 if file.is_dir() else file.stat().st_size
    return total


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"

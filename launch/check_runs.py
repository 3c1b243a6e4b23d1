"""`python -m launch check`: which artefacts of a runs folder are intact, damaged or left over."""

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

from contamination.core import lock
from contamination.core.artifacts import CONFIG, RUN_FOLDER_NAME, is_complete
from contamination.core.errors import ArtifactError, ConfigError
from contamination.core.files import TEMPORARY_SUFFIX
from contamination.core.hashing import MIN_PROGRESS_BYTES
from contamination.core.integrity import ALWAYS, MANIFEST, SCHEMA, find_damages, read_manifest
from contamination.core.progress import progress_bar

ARTIFACTS = (
    *("corpus", "export", "model", "masked_lm", "rewordings", "passes", "scores", "accuracy"),
    *("training_prefix", "extraction", "audit", "report", "law", "benchmark", "finetuning"),
    "decontaminated",
)
WHOLE, DAMAGED, UNFINISHED, ORPHANED = "whole", "damaged", "unfinished", "orphaned"
RUNNING, OLDER, FOREIGN = "running", "older", "foreign"
STATES = (DAMAGED, UNFINISHED, ORPHANED, RUNNING, OLDER, FOREIGN, WHOLE)


@dataclass(frozen=True)
class CheckedPath:
    """A folder or file with its state, its size and a remark."""

    path: Path
    state: str
    bytes: int
    remark: str = ""


def inspect_runs(runs: Path) -> list[CheckedPath]:
    """Checks everything in a runs folder, comparing each finished artefact's files by content.

    Raises:
        ConfigError: there is no such folder.
    """
    if not runs.is_dir():
        raise ConfigError(f"runs is {str(runs)!r}: there is no such folder. Give runs=DIR.")
    folders = sorted(
        folder for kind in ARTIFACTS for folder in (runs / kind).glob("*") if folder.is_dir()
    )
    sizes = {folder: _size_in_bytes(folder) for folder in folders}
    total = sum(sizes.values())
    options: dict[str, Any] = {
        "unit": "B",
        "unit_scale": True,
        "disable": total < MIN_PROGRESS_BYTES,
    }
    paths = []
    with progress_bar(total=total, desc="check", **options) as bar:
        for folder, size in sizes.items():
            state, remark = _state_and_remark(folder)
            paths.append(CheckedPath(folder, state, size, remark))
            bar.update(size)
    in_progress = [path.path for path in paths if path.state in (UNFINISHED, RUNNING)]
    paths += [
        *_orphaned_leases(runs),
        *_orphaned_temporary_files(runs, in_progress),
        *_unused_checkpoints(paths),
    ]
    return sorted(paths, key=lambda path: (STATES.index(path.state), str(path.path)))


def format_paths(runs: Path, paths: Sequence[CheckedPath]) -> str:
    """Returns the number and size of paths per state, and a line per path that is not intact."""
    lines = [
        f"  {path.state:10} {_format_total_size([path]):>9}  {path.path}{path.remark and ': '}"
        f"{path.remark}"
        for path in paths
        if path.state != WHOLE
    ]
    by_state = {state: [p for p in paths if p.state == state] for state in reversed(STATES)}
    counts = [
        f"{len(paths_of_state)} {state} ({_format_total_size(paths_of_state)})"
        for state, paths_of_state in by_state.items()
        if paths_of_state
    ]
    return "\n".join([f"{runs}: {', '.join(counts) or 'no artefact'}", *lines])


def prune_paths(paths: Sequence[CheckedPath], confirm: Callable[[str], bool]) -> None:
    """Removes left-over paths, then damaged ones, if `confirm` returns True for each group.

    What a process is making is never removed.
    """
    damaged = "damaged; their commands make them again"
    for states, why in (((UNFINISHED, ORPHANED), "left over"), ((DAMAGED,), damaged)):
        removable = [path for path in paths if path.state in states]
        if removable and confirm(
            f"Remove {len(removable)} ({_format_total_size(removable)}), {why}?"
        ):
            for path in removable:
                print(_remove_unless_in_use(path.path))


def _remove_unless_in_use(path: Path) -> str:
    """Removes it unless a process may be making it; returns a line that says what happened."""
    folder = next(
        (parent for parent in (path, *path.parents) if parent.parent.name in ARTIFACTS), None
    )
    lease = path if path.parent.name == lock.LOCKS_FOLDER else folder and lock.lease_path(folder)
    in_progress = folder is not None and lock.describe_builder(folder) is not None
    no_lease = nullcontext(not in_progress)
    with no_lease if in_progress or lease is None else lock.holding_lease_if_free(lease) as free:
        if not free:
            return f"kept {path}: a process may make it now"
        try:
            if path != lease:  # `holding_lease_if_free` removes the lease itself
                _delete_path(path)
        except OSError as error:
            return f"kept {path}: {error.strerror}"
    return f"removed {path}"


def _delete_path(path: Path) -> None:
    """Deletes a file, a link or a folder; a folder's manifest is deleted first."""
    if path.is_dir() and not path.is_symlink():
        if is_complete(path):
            (path / MANIFEST).unlink()
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _state_and_remark(folder: Path) -> tuple[str, str]:
    # the maker is read first: it may finish the folder meanwhile
    has_stage_name, process = RUN_FOLDER_NAME.fullmatch(folder.name), lock.describe_builder(folder)
    if not is_complete(folder):
        if process is not None:
            return RUNNING, f"{process} makes it"
        if any(folder.iterdir()) and not (has_stage_name and (folder / CONFIG).is_file()):
            return FOREIGN, "no stage began it, and it is kept"
        return UNFINISHED, "the command that began it resumes it"
    try:
        manifest = read_manifest(folder)
    except ArtifactError as error:
        if not has_stage_name:
            return FOREIGN, "no stage made it, and it is kept"
        return DAMAGED, f"{MANIFEST} is not what was written ({error.__cause__})"
    if manifest["schema"] != SCHEMA:
        return OLDER, f"of schema {manifest['schema']}; this version's is {SCHEMA}"
    problems = [*find_damages(folder, manifest, ALWAYS)]
    return DAMAGED if problems else WHOLE, "; ".join(problems)


def _orphaned_leases(runs: Path) -> Iterator[CheckedPath]:
    for lease in (runs / lock.LOCKS_FOLDER).glob("*.lease"):
        if lease.is_file() and lock.describe_lease_holder(lease) is None:
            yield CheckedPath(
                lease, ORPHANED, _size_in_bytes(lease), "the lease of a process that is gone"
            )


TEMPORARY = re.compile(
    r"\.(.+\.(?P<host>[^.].*)\.(?P<pid>\d{1,7})|.+)" + re.escape(TEMPORARY_SUFFIX)
)
STALE = 3600.0
"""Seconds without a change after which another machine's temporary file counts as left over."""


def _orphaned_temporary_files(runs: Path, in_progress: Sequence[Path]) -> Iterator[CheckedPath]:
    """Yields what killed processes were writing, except in unfinished folders."""
    kinds = [runs / kind for kind in (*ARTIFACTS, "launches")]
    for parent, folders, files in (step for kind in kinds for step in os.walk(kind)):
        here = Path(parent)
        if here in in_progress or here.name == lock.LOCKS_FOLDER:
            folders.clear()
            continue
        for name in [*folders, *files]:
            match = TEMPORARY.fullmatch(name)
            if match and not _is_being_written(here / name, match):
                yield CheckedPath(
                    here / name, ORPHANED, _size_in_bytes(here / name), "of a process that is gone"
                )
        folders[:] = [name for name in folders if not TEMPORARY.fullmatch(name)]


def _is_being_written(path: Path, match: re.Match[str]) -> bool:
    """Returns whether the process that made the temporary file may still be writing it."""
    if match["host"] == socket.gethostname():
        return bool(psutil.pid_exists(int(match["pid"])))
    with suppress(FileNotFoundError):
        return time.time() - path.stat().st_mtime < STALE
    return True


def _unused_checkpoints(paths: Sequence[CheckedPath]) -> Iterator[CheckedPath]:
    """Yields checkpoints that nothing resumes from: damaged ones, and those of finished folders."""
    for artifact in paths:
        unused = [*artifact.path.glob("checkpoints/damaged-*")]
        if (
            artifact.state == WHOLE
            and lock.describe_lease_holder(lock.lease_path(artifact.path)) is None
        ):
            folders = (artifact.path / name for name in ("checkpoints", "tokens"))
            unused = [folder for folder in folders if folder.is_dir()]
        for path in unused:
            yield CheckedPath(path, ORPHANED, _size_in_bytes(path), "nothing resumes from it")


def _size_in_bytes(path: Path) -> int:
    total = 0
    for file in path.rglob("*") if path.is_dir() else [path]:
        with suppress(OSError):  # another process has removed it
            total += 0 if file.is_dir() else file.stat().st_size
    return total


def _format_total_size(paths: Sequence[CheckedPath]) -> str:
    count: float = sum(path.bytes for path in paths)
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"

"""The code as it was when a launch began: a queued job is not changed by a later edit."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import contamination
from contamination.core.artifacts import REVISION, code_revision
from contamination.core.files import temporary
from contamination.core.startup import PACKAGES

HOME = Path(__file__).resolve().parents[1]
"""The folder of `core`, `data` and so on: a checkout, or `contamination` of an installation."""
INIT = Path("contamination", "__init__.py")
"""The module of the import name, which finds the packages beside its folder."""


def take(folder: Path) -> Path:
    """A copy of the packages and `conf/` in `folder`, or the equal one that is there.

    Beside them `REVISION` names the git revision (+ where it was changed) and `changes.diff` has
    what was changed.
    """
    files, digest = _code(HOME)
    place = folder / f"code-{digest[:12]}"
    if place.is_dir() and _code(place)[1] != digest:  # it is damaged
        shutil.rmtree(place)
    if not place.is_dir():
        part = temporary(place)
        try:
            _copy(files, part)
            part.rename(place)
        except OSError:
            if not place.is_dir():  # else by the same launch, begun twice at once
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return place


def _code(home: Path) -> tuple[list[Path], str]:
    """The files of the packages and `conf/`, and a hash of their names and bytes."""
    files = sorted(
        path
        for part in ("core", "data", *PACKAGES, "conf")
        for path in (home / part).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    content = hashlib.sha256()
    for file in files:
        content.update(f"{file.relative_to(home)}\n".encode() + file.read_bytes())
    return files, content.hexdigest()


def _copy(files: Sequence[Path], place: Path) -> None:
    for file in files:
        (place / file.relative_to(HOME)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place / file.relative_to(HOME))
    (place / INIT).parent.mkdir(exist_ok=True)
    shutil.copyfile(str(contamination.__file__), place / INIT)
    (place / REVISION).write_text(code_revision() + "\n")
    (place / "changes.diff").write_text(_changes())


def environment(code: Path) -> dict[str, str]:
    """What makes Python run the copy, whatever folder it is started in."""
    before = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    return {"PYTHONPATH": os.pathsep.join([str(code), *before]), "PYTHONSAFEPATH": "1"}


def _changes() -> str:
    """What git says was changed since the revision; nothing without git, or in a copy."""
    try:
        run = subprocess.run(["git", "diff", "HEAD"], cwd=HOME, capture_output=True, text=True)
    except OSError:
        return ""
    return run.stdout if run.returncode == 0 else ""

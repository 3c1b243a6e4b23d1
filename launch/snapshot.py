"""A copy of the code as it was when a launch began: later edits don't change queued jobs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import contamination
from contamination.core.artifacts import REVISION_FILE, code_revision
from contamination.core.files import temporary_path
from contamination.core.process_startup import PACKAGES

HOME = Path(__file__).resolve().parents[1]
"""The folder of `core`, `data` and so on: a checkout, or `contamination` of an installation."""
INIT = Path("contamination", "__init__.py")
"""The module of the import name, which finds the packages beside its folder."""


def take_snapshot(folder: Path) -> Path:
    """Copies the packages and `conf/` to a folder in `folder`, or reuses an equal copy; returns it.

    In it `REVISION` names the git revision, with a + if there were changes, and `changes.diff`
    contains the changes.
    """
    files, digest = _files_and_digest(HOME)
    snapshot = folder / f"code-{digest[:12]}"
    if snapshot.is_dir() and _files_and_digest(snapshot)[1] != digest:  # it is damaged
        shutil.rmtree(snapshot)
    if not snapshot.is_dir():
        unfinished = temporary_path(snapshot)
        try:
            _copy_code(files, unfinished)
            unfinished.rename(snapshot)
        except OSError:
            if not snapshot.is_dir():  # else the same launch, started twice at once, has made it
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return snapshot


def _files_and_digest(home: Path) -> tuple[list[Path], str]:
    """Returns the files of the packages and `conf/`, and a hash of their names and bytes."""
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


def _copy_code(files: Sequence[Path], folder: Path) -> None:
    for file in files:
        (folder / file.relative_to(HOME)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / file.relative_to(HOME))
    (folder / INIT).parent.mkdir(exist_ok=True)
    shutil.copyfile(str(contamination.__file__), folder / INIT)
    (folder / REVISION_FILE).write_text(code_revision() + "\n")
    (folder / "changes.diff").write_text(_read_changes())


def environment_variables(code: Path) -> dict[str, str]:
    """Returns the variables that make Python run the copy from any working directory."""
    before = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    return {"PYTHONPATH": os.pathsep.join([str(code), *before]), "PYTHONSAFEPATH": "1"}


def _read_changes() -> str:
    """Returns the changes since the revision; empty without git, or in a copy."""
    try:
        run = subprocess.run(["git", "diff", "HEAD"], cwd=HOME, capture_output=True, text=True)
    except OSError:
        return ""
    return run.stdout if run.returncode == 0 else ""

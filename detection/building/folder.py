"""The folder of a benchmark: where it is, and what is noted in it while it is made."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from core.artifacts import Artifact, Built, build, locate

KIND = "benchmark"
NOTES = "notes"
"""What was read so far: a killed run goes on with it, up to its manifest."""


def made_in(
    runs: str,
    name: str,
    stage: Any,
    named: Any,
    inputs: Mapping[str, str],
    make: Callable[[Path, Path], Built],
) -> Artifact:
    """The benchmark, made or found made.

    Args:
        runs: the folder of all runs.
        name: what the folder's name begins with.
        stage: for its config.yaml.
        named: what of the configuration names the folder.
        inputs: digests of what it is made from, by name; they name it as well.
        make: makes it, of its folder and of that of its notes.
    """
    folder = locate(Path(runs), KIND, name, named, inputs)
    notes = folder / NOTES

    def with_notes(folder: Path) -> Built:
        notes.mkdir(exist_ok=True)
        return make(folder, notes)

    artifact = build(folder, stage, inputs, with_notes, named=named)
    shutil.rmtree(notes, ignore_errors=True)
    return artifact


def hashed(inputs: Mapping[str, str]) -> list[dict[str, str]]:
    """What it is made from, as the datasheet lists it."""
    return [{"file": name, "sha256": digest} for name, digest in inputs.items()]

"""What an unfinished training leaves beside its checkpoints: exports, and the lines of its records.

A resumed run takes them over, so a checkpoint's marker holds what they were when it was saved.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from core.content import digests
from core.files import sync
from training.checkpoint import EVALUATIONS, EXPORTS, HF, METRICS


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

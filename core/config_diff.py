"""Which finished run folder is nearest to one that is about to be made, and what differs.

Compared is what names a folder: the settings and the inputs' digests that its manifest holds. Near
is one with few other settings, of the same inputs or at least of the same readable name: a model's
scores are not near to another model's.
"""

from __future__ import annotations

import heapq
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contamination.core.errors import ArtifactError
from contamination.core.integrity import MANIFEST, read_manifest

LOOKED_AT = 100  # folders, the newest
NEAR = 3  # fields that differ at most
UNSAID = ("passes", "rewordings")  # the stage that asks for one has said what is new
SHOWN = 60  # characters of a value
DIGEST = re.compile(r"[0-9a-f]{64}")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Difference:
    """A field of two configurations, and its value in each; None: it has none."""

    name: str
    was: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name} {_short(self.was)}, not {_short(self.now)}"


def differences(was: Any, now: Any, name: str = "") -> Iterator[Difference]:
    """The fields that differ, by name; a mapping that only one of them has is one field."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in sorted({*was, *now}):
            yield from differences(was.get(key), now.get(key), f"{name}.{key}".lstrip("."))
    elif was != now:
        yield Difference(name, was, now)


def say_nearest(
    folder: Path, schema: int, named: Mapping[str, Any], inputs: Mapping[str, str]
) -> None:
    """Log which finished folder of the schema differs least from a new one, where one is near.

    The new one is named by the settings `named` and `inputs` (name → digest). Of a folder that is
    there already nothing is logged.
    """
    kind = folder.parent.name
    if folder.exists() or kind in UNSAID:
        return
    found = {
        path.name: [*differences(own, {**named, "inputs": dict(inputs)})]
        for path in _newest(folder)
        if (own := _identity(path, schema)) is not None
        and (own["inputs"] == inputs or _readable(path) == _readable(folder))
    }
    name = min(found, key=lambda each: len(found[each]), default="")
    if found and len(found[name]) <= NEAR:
        what = "; ".join(map(str, found[name])) or "only its readable name is another"
        said = "%s: nothing has exactly these settings; the nearest is %s/%s: %s"
        log.info(said, kind, kind, name, what)


def _readable(folder: Path) -> str:
    """The folder's name without its hash."""
    return folder.name.rpartition("-")[0]


def _newest(folder: Path) -> list[Path]:
    """Folders of the same kind, the newest first."""
    times = {}
    for path in folder.parent.glob("*"):
        with suppress(OSError):  # it is unfinished, or another process removes it
            times[path] = (path / MANIFEST).stat().st_mtime_ns
    return heapq.nlargest(LOOKED_AT, times, key=lambda path: times[path])


def _identity(path: Path, schema: int) -> dict[str, Any] | None:
    """What names the folder; None: it is damaged, or of a version that did not record it."""
    with suppress(ArtifactError):
        manifest = read_manifest(path)
        if manifest.get("schema") == schema and manifest.get("identity"):
            return {**manifest["identity"], "inputs": manifest["inputs"]}
    return None


def _short(value: Any) -> str:
    if isinstance(value, str) and DIGEST.fullmatch(value):
        return f"{value[:12]}…"
    words = repr(value)
    return words if len(words) <= SHOWN else f"{words[:SHOWN]}…"

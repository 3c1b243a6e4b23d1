"""Differences between two configs, and the finished run folder that is most similar to a new one.

Folders are compared by the settings and input digests that the manifest records. Only folders with
the same inputs or the same readable name are compared, since the scores of one model are not
similar to those of another model.
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

MAX_FOLDERS = 100  # only the newest folders are compared
MAX_DIFFERENCES = 3  # fields in which a similar folder may differ
MAX_VALUE_CHARACTERS = 60
DIGEST = re.compile(r"[0-9a-f]{64}")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Difference:
    """A field in which two configs differ; a value is None if the field is missing."""

    name: str
    was: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name} {_short_repr(self.was)}, not {_short_repr(self.now)}"


def iter_differences(was: Any, now: Any, name: str = "") -> Iterator[Difference]:
    """Yields the fields that differ; a mapping that only one config has counts as one field."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in sorted({*was, *now}):
            yield from iter_differences(was.get(key), now.get(key), f"{name}.{key}".lstrip("."))
    elif was != now:
        yield Difference(name, was, now)


def log_nearest_folder(
    folder: Path, schema: int, named: Mapping[str, Any], inputs: Mapping[str, str]
) -> None:
    """Logs which finished folder differs least from a new one, if any is similar.

    Nothing is logged if the new folder exists.

    Args:
        folder: the new folder.
        schema: only manifests of this schema are compared.
        named: the settings from which the new folder's name was computed.
        inputs: the digests of its inputs, by name.
    """
    kind = folder.parent.name
    if folder.exists():
        return
    new_identity = {**named, "inputs": dict(inputs)}
    differences_by_folder = {
        path.name: [*iter_differences(identity, new_identity)]
        for path in _newest_finished_siblings(folder)
        if (identity := _recorded_identity(path, schema)) is not None
        and (identity["inputs"] == inputs or _name_without_hash(path) == _name_without_hash(folder))
    }
    if not differences_by_folder:
        return
    nearest = min(differences_by_folder, key=lambda name: len(differences_by_folder[name]))
    if len(differences_by_folder[nearest]) <= MAX_DIFFERENCES:
        description = "; ".join(map(str, differences_by_folder[nearest])) or "only its name differs"
        message = "%s: no finished folder has exactly these settings; the nearest is %s/%s: %s"
        log.info(message, kind, kind, nearest, description)


def _name_without_hash(folder: Path) -> str:
    return folder.name.rpartition("-")[0]


def _newest_finished_siblings(folder: Path) -> list[Path]:
    times = {}
    for path in folder.parent.glob("*"):
        with suppress(OSError):  # the folder is unfinished, or another process removed it
            times[path] = (path / MANIFEST).stat().st_mtime_ns
    return heapq.nlargest(MAX_FOLDERS, times, key=lambda path: times[path])


def _recorded_identity(path: Path, schema: int) -> dict[str, Any] | None:
    """The folder's recorded settings and inputs; None if damaged or not recorded."""
    with suppress(ArtifactError):
        manifest = read_manifest(path)
        if manifest.get("schema") == schema and manifest.get("identity"):
            return {**manifest["identity"], "inputs": manifest["inputs"]}
    return None


def _short_repr(value: Any) -> str:
    if isinstance(value, str) and DIGEST.fullmatch(value):
        return f"{value[:12]}…"
    text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}…"

"""Writes what the results of the commands say: `record/index.json`, and the cells of each table.

The key of an artefact is the command that made it, its kind, its name without the hash, and its
number among those with the same name, in the order in which they were finished.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.snapshot.contents import (
    HASH,
    TIMES,
    Clean,
    Table,
    kind_of,
    leaves,
    page_numbers,
    read_table,
    sha256,
)
from tests.snapshot.run import MANIFEST, Recorder

CONFIG = "config.yaml"
SKIPPED = (MANIFEST, CONFIG)
HASHED = re.compile(r"(?P<dash>-?)(?<![0-9a-f])(?P<hash>[0-9a-f]{64}|[0-9a-f]{12})(?![0-9a-f])")
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


def write_record(recorder: Recorder) -> int:
    """Write the record of all finished commands; its size in bytes."""
    folder = recorder.out / "record"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tables").mkdir(parents=True)
    clean = cleaner(recorder)
    artefacts = []
    for command in recorder.commands:
        if command.name in recorder.results:
            artefacts += list(artefacts_of(recorder, command.name, clean, folder / "tables"))
    commands = {name: result.status for name, result in sorted(recorder.results.items())}
    index = {"commands": commands, "artefacts": artefacts}
    (folder / "index.json").write_text(json.dumps(index, indent=1, ensure_ascii=False))
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def artefacts_of(
    recorder: Recorder, command: str, clean: Clean, tables: Path
) -> Iterator[dict[str, Any]]:
    """The entries of what a command made, and of what it printed and wrote elsewhere."""
    outside = recorder.folder(command)
    files = [outside / "stdout", *sorted((outside / "files").rglob("*"))]
    names = {str(file.relative_to(outside)): file for file in files if file.is_file()}
    yield {"command": command, "kind": "output", "name": "", "ordinal": 0, "counts": {},
           "config": {}, "files": read_files(names, clean, tables)}  # fmt: skip
    seen: Counter[tuple[str, str]] = Counter()
    for artefact in recorder.results[command].artefacts:
        folder = recorder.runs / artefact
        kind, _, name = HASH.sub("", artefact).partition("/")
        manifest = json.loads((folder / MANIFEST).read_text())
        names = {
            str(file.relative_to(folder)): file
            for file in sorted(folder.rglob("*"))
            if file.is_file() and file.name not in SKIPPED
        }
        yield {
            "command": command,
            "kind": kind,
            "name": name,
            "ordinal": seen[kind, name],
            "counts": flat(manifest["counts"], clean),
            "config": flat(yaml.safe_load((folder / CONFIG).read_text()), clean),
            "files": read_files(names, clean, tables),
        }
        seen[kind, name] += 1


def flat(value: Mapping[str, Any], clean: Clean) -> dict[str, str | None]:
    """The leaves of a mapping, without times."""
    return {
        name: text if text is None else clean(text)
        for name, text in leaves(value)
        if not TIMES.search(name)
    }


def read_files(files: Mapping[str, Path], clean: Clean, tables: Path) -> dict[str, Any]:
    """An entry a file: its kind, its digest, and for a page its numbers."""
    entries = {}
    for name, file in files.items():
        kind = kind_of(name)
        if kind == "table":
            entry = write_table(read_table(file, clean), tables)
        elif kind == "page":
            numbers = page_numbers(file, clean)
            digest = sha256(json.dumps(sorted(numbers.items())).encode())
            entry = {"digest": digest, "numbers": numbers.total(), "page": numbers}
        else:
            entry = {"digest": sha256(file.read_bytes()), "numbers": 0}
        entries[clean(name)] = {"kind": kind, "bytes": file.stat().st_size, **entry}
    return entries


def write_table(table: Table, folder: Path) -> dict[str, Any]:
    """Write the cells under their digest, and return the entry."""
    content = table.dumped()
    digest = sha256(content)
    (folder / f"{digest}.json.gz").write_bytes(gzip.compress(content, 6, mtime=0))
    return {"digest": digest, "numbers": table.numbers(), "rows": table.rows}


def cleaner(recorder: Recorder) -> Clean:
    """What takes from a text the record's folder, hashes in names, and digests of artefacts."""
    names: dict[str, str] = {}
    for folder in recorder.runs.glob("*/*"):
        if HASH.search(folder.name):
            names[folder.name[-12:]] = ""
        if (folder / MANIFEST).is_file():
            digest = json.loads((folder / MANIFEST).read_text())["digest"]
            names[digest] = f"digest of {HASH.sub('', folder.name)}"

    def named(match: re.Match[str]) -> str:
        name = names.get(match["hash"])
        return match[0] if name is None else f"{match['dash']}{name}" if name else ""

    def clean(text: str) -> str:
        if len(text) < 4 or (text.startswith("[") and '"' not in text):  # a list of numbers
            return text
        text = text.replace(str(recorder.out), "OUT")
        return ADDRESS.sub("SERVER", HASHED.sub(named, text))

    return clean

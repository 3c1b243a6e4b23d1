"""What a benchmark is made of, as JSON, as Markdown, and as a card for the hub."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from contamination.core.artifacts import Artifact, Built, build, locate
from contamination.core.hashing import digests
from contamination.core.progress import progress
from contamination.core.seeds import derive
from contamination.core.statistics.clusters import Clusters
from contamination.core.statistics.estimates import interval
from contamination.core.statistics.metrics import AUROC
from contamination.data.texts import numbered
from contamination.detection.baselines.blind import (
    BLIND,
    REPEATS,
    blind_baseline,
    obstacle,
    warning,
)
from contamination.detection.evaluation import CONFIDENCE, DRAWS, SEED

DATA = "data"
ENOUGH = 600
"""Texts of which one draw of the blind classifiers' folds says enough: it is off by 0.02 (200: by
0.036), which is in the interval."""
Rows = Sequence[Mapping[str, Any]]


def blind_row(
    texts: Sequence[str], labels: Sequence[int], group: Clusters | None = None
) -> dict[str, Any]:
    """The AUROC of a classifier that sees the texts alone, with its interval and what it means.

    `group` are the clusters that they are pieces of, if they are.
    """
    member = np.array(labels, bool)
    if problem := obstacle(texts, member, group):
        return {"needs": problem}
    repeats = 1 if len(texts) >= ENOUGH else REPEATS
    made = blind_baseline(texts, member, derive(SEED, BLIND), group=group, repeats=repeats)
    sides = np.flatnonzero(member), np.flatnonzero(~member)
    found = made.estimates(*sides, [AUROC], DRAWS)[AUROC.name]
    low, high = interval(found, CONFIDENCE)
    numbers = (round(float(number), 4) for number in (found.value, low, high))
    said = warning(found.value, low, high)
    return {**dict(zip(("auroc", "low", "high"), numbers, strict=True)), "warning": said}


def write(folder: Path, sheet: Mapping[str, Any], sets: Mapping[str, Rows], licence: str) -> Built:
    """Write the sets, by name, and the datasheet with a line for each."""
    (folder / DATA).mkdir(exist_ok=True)
    files = {name: folder / DATA / f"{name}.jsonl" for name in sets}
    for name, rows in sets.items():
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        files[name].write_text("".join(lines), encoding="utf-8", newline="\n")
    hashes = digests(files)
    bar = progress(desc="blind rows", total=len(sets), unit="set")
    with bar:
        said = []
        for name, rows in sets.items():
            said.append(_said(name, rows, hashes[name]))
            bar.update()
    whole = {**sheet, "sets": said}
    (folder / "datasheet.json").write_text(json.dumps(whole, indent=1) + "\n")
    (folder / "datasheet.md").write_text(markdown(whole))
    (folder / "README.md").write_text(card(whole, licence))
    names = [*(f"{DATA}/{name}.jsonl" for name in files), "datasheet.json", "datasheet.md"]
    return Built([*names, "README.md"], {"sets": len(sets)})


def _said(name: str, rows: Rows, digest: str) -> dict[str, Any]:
    """A set's line."""
    texts, labels = ([row[column] for row in rows] for column in ("text", "label"))
    group = numbered([(str(row["benchmark"]), str(row.get("cluster", ""))) for row in rows])
    return {
        "set": name,
        "members": sum(labels),
        "nonmembers": len(labels) - sum(labels),
        "members_created": _span([row for row in rows if row["label"]]),
        "nonmembers_created": _span([row for row in rows if not row["label"]]),
        "characters": sum(map(len, texts)),
        "blind": blind_row(texts, labels, group),
        "sha256": digest,
    }


def _span(rows: Rows) -> str:
    """From the first date to the last; nothing where the rows have none."""
    dates = [str(row.get("created") or row.get("changed") or "") for row in rows]
    if not dates or not all(dates):
        return ""
    edits = " (of some their last edit)" * any(not row.get("created") for row in rows)
    return f"{min(dates)[:10]} to {max(dates)[:10]}{edits}"


def markdown(sheet: Mapping[str, Any]) -> str:
    """The datasheet for a reader: a heading a part, then its table or its values."""
    lines = [f"# {sheet['name']}", "", sheet["about"]]
    for title, part in sheet.items():
        if title not in ("name", "about"):
            lines += ["", f"## {title.replace('_', ' ').capitalize()}", "", *_part(part)]
    return "\n".join(lines) + "\n"


def card(sheet: Mapping[str, Any], licence: str) -> str:
    """The hub's README.md: a head that names each set's file, then the datasheet."""
    sets = sheet["sets"]
    head = {
        "license": licence,
        "pretty_name": sheet["name"],
        "tags": ["membership-inference", "contamination-detection"],
        "configs": [
            {"config_name": one["set"], "data_files": f"{DATA}/{one['set']}.jsonl"} for one in sets
        ],
    }
    return f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n\n{markdown(sheet)}"


def _part(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping):
        yield from (f"- {name.replace('_', ' ')}: {_cell(value)}" for name, value in part.items())
    elif part:
        names = list(dict.fromkeys(name for row in part for name in row))
        yield f"| {' | '.join(name.replace('_', ' ') for name in names)} |"
        yield f"|{' --- |' * len(names)}"
        yield from (f"| {' | '.join(_cell(row.get(n, '')) for n in names)} |" for row in part)


def _cell(value: Any) -> str:
    if isinstance(value, Mapping) and "auroc" in value:
        about = f" {value['warning']}" if value["warning"] else ""
        return f"{value['auroc']:.3f} [{value['low']:.3f}, {value['high']:.3f}]{about}"
    if isinstance(value, Mapping) and "needs" in value:
        return f"not measured: {value['needs']}"
    if isinstance(value, Mapping):
        return ", ".join(
            f"{name.replace('_', ' ')} {_cell(inner)}" for name, inner in value.items()
        )
    words = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
    words = words if isinstance(words, str) else json.dumps(value)
    return words.replace("|", "\\|")


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

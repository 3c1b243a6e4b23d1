"""The datasheet of a benchmark: as JSON, as Markdown, and as a card for the hub."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from contamination.core.artifacts import Artifact, WrittenFiles, build_or_open, run_folder
from contamination.core.hashing import digests_by_name
from contamination.core.progress import progress_bar
from contamination.core.report.tables import escape_markdown
from contamination.core.seeds import derive_seed
from contamination.core.statistics.estimates import confidence_interval
from contamination.core.statistics.metrics import AUROC
from contamination.core.statistics.samples import Clusters, number_clusters
from contamination.detection.baselines.blind import (
    BLIND,
    REPEATS,
    blind_auroc_warning,
    blind_baseline,
    blind_obstacle,
)
from contamination.detection.evaluation import CONFIDENCE, DRAWS, SEED

DATA = "data"
SINGLE_DRAW_TEXTS = 600
"""From this number of texts on, one draw of the blind classifiers' folds is enough: its error is
0.02 (0.036 with 200 texts), less than the interval's width."""
Rows = Sequence[Mapping[str, Any]]


def blind_auroc_row(
    texts: Sequence[str], labels: Sequence[int], clusters: Clusters | None = None
) -> dict[str, Any]:
    """Returns the AUROC of a classifier that sees only the texts, its interval and a warning.

    Args:
        texts: the texts.
        labels: 1 for members, 0 for non-members.
        clusters: the clusters of the texts, if they have any.
    """
    member = np.array(labels, bool)
    if obstacle := blind_obstacle(texts, member, clusters):
        return {"needs": obstacle}
    repeats = 1 if len(texts) >= SINGLE_DRAW_TEXTS else REPEATS
    baseline = blind_baseline(
        texts, member, derive_seed(SEED, BLIND), group=clusters, repeats=repeats
    )
    sides = np.flatnonzero(member), np.flatnonzero(~member)
    estimate = baseline.estimates(*sides, [AUROC], DRAWS)[AUROC.name]
    low, high = confidence_interval(estimate, CONFIDENCE)
    auroc, low_4, high_4 = (round(float(number), 4) for number in (estimate.value, low, high))
    note = blind_auroc_warning(estimate.value, low, high)
    return {"auroc": auroc, "low": low_4, "high": high_4, "warning": note}


def write_benchmark(
    folder: Path, sheet: Mapping[str, Any], rows_by_set: Mapping[str, Rows], licence: str
) -> WrittenFiles:
    """Writes the sets, by name, and the datasheet with one line per set."""
    (folder / DATA).mkdir(exist_ok=True)
    files = {name: folder / DATA / f"{name}.jsonl" for name in rows_by_set}
    for name, rows in rows_by_set.items():
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        files[name].write_text("".join(lines), encoding="utf-8", newline="\n")
    hashes = digests_by_name(files)
    bar = progress_bar(desc="blind rows", total=len(rows_by_set), unit="set")
    with bar:
        set_lines = []
        for name, rows in rows_by_set.items():
            set_lines.append(_set_summary(name, rows, hashes[name]))
            bar.update()
    complete_sheet = {**sheet, "sets": set_lines}
    (folder / "datasheet.json").write_text(json.dumps(complete_sheet, indent=1) + "\n")
    (folder / "datasheet.md").write_text(render_markdown(complete_sheet))
    (folder / "README.md").write_text(render_hub_card(complete_sheet, licence))
    names = [*(f"{DATA}/{name}.jsonl" for name in files), "datasheet.json", "datasheet.md"]
    return WrittenFiles([*names, "README.md"], {"sets": len(rows_by_set)})


def _set_summary(name: str, rows: Rows, digest: str) -> dict[str, Any]:
    texts, labels = ([row[column] for row in rows] for column in ("text", "label"))
    names = [(str(row["benchmark"]), str(row.get("cluster", ""))) for row in rows]
    clusters = number_clusters(names)
    return {
        "set": name,
        "members": sum(labels),
        "nonmembers": len(labels) - sum(labels),
        "members_created": _date_span([row for row in rows if row["label"]]),
        "nonmembers_created": _date_span([row for row in rows if not row["label"]]),
        "characters": sum(map(len, texts)),
        "blind": blind_auroc_row(texts, labels, clusters),
        "sha256": digest,
    }


def _date_span(rows: Rows) -> str:
    """Returns the first and the last date; "" if a row has none."""
    dates = [str(row.get("created") or row.get("changed") or "") for row in rows]
    if not dates or not all(dates):
        return ""
    edits = " (of some their last edit)" * any(not row.get("created") for row in rows)
    return f"{min(dates)[:10]} to {max(dates)[:10]}{edits}"


def render_markdown(sheet: Mapping[str, Any]) -> str:
    """Returns the datasheet in Markdown: one heading per section, then its table or values."""
    lines = [f"# {escape_markdown(sheet['name'])}", "", sheet["about"]]
    for title, section in sheet.items():
        if title not in ("name", "about"):
            lines += ["", f"## {_render_name(title).capitalize()}", "", *_render_section(section)]
    return "\n".join(lines) + "\n"


def render_hub_card(sheet: Mapping[str, Any], licence: str) -> str:
    """Returns the hub's README.md: a header that names each set's file, then the datasheet."""
    sets = sheet["sets"]
    head = {
        "license": licence,
        "pretty_name": sheet["name"],
        "tags": ["membership-inference", "contamination-detection"],
        "configs": [
            {"config_name": line["set"], "data_files": f"{DATA}/{line['set']}.jsonl"}
            for line in sets
        ],
    }
    return f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n\n{render_markdown(sheet)}"


def _render_section(section: Any) -> Iterator[str]:
    if isinstance(section, Mapping):
        for name, value in section.items():
            yield f"- {_render_name(name)}: {_render_value(value)}"
    elif section:
        columns = list(dict.fromkeys(name for row in section for name in row))
        yield f"| {' | '.join(map(_render_name, columns))} |"
        yield f"|{' --- |' * len(columns)}"
        for row in section:
            yield f"| {' | '.join(_render_value(row.get(name, '')) for name in columns)} |"


def _render_name(name: str) -> str:
    return escape_markdown(name.replace("_", " "))


def _render_value(value: Any) -> str:
    return escape_markdown(_value_text(value))


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping) and "auroc" in value:
        note = f" {value['warning']}" if value["warning"] else ""
        return f"{value['auroc']:.3f} [{value['low']:.3f}, {value['high']:.3f}]{note}"
    if isinstance(value, Mapping) and "needs" in value:
        return f"not measured: {value['needs']}"
    if isinstance(value, Mapping):
        return ", ".join(
            f"{name.replace('_', ' ')} {_value_text(inner)}" for name, inner in value.items()
        )
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
    return text if isinstance(text, str) else json.dumps(value)


KIND = "benchmark"
INTERMEDIATE_FOLDER = "notes"
"""The folder of intermediate results, from which an interrupted run continues."""


def build_benchmark(
    runs: str,
    name: str,
    stage: Any,
    named: Any,
    inputs: Mapping[str, str],
    make: Callable[[Path, Path], WrittenFiles],
) -> Artifact:
    """Returns the benchmark's artefact, built unless it exists.

    Args:
        runs: the folder of all runs.
        name: the beginning of the folder's name.
        stage: the configuration for config.yaml.
        named: the part of the configuration that names the folder.
        inputs: the digests of the inputs by name, which also name the folder.
        make: builds the content, from the folder and the folder of intermediate results.
    """
    folder = run_folder(Path(runs), KIND, name, named, inputs)
    intermediates = folder / INTERMEDIATE_FOLDER

    def make_with_intermediates(folder: Path) -> WrittenFiles:
        intermediates.mkdir(exist_ok=True)
        return make(folder, intermediates)

    artifact = build_or_open(folder, stage, inputs, make_with_intermediates, named=named)
    shutil.rmtree(intermediates, ignore_errors=True)
    return artifact


def digest_rows(inputs: Mapping[str, str]) -> list[dict[str, str]]:
    """Returns the inputs as the datasheet lists them."""
    return [{"file": name, "sha256": digest} for name, digest in inputs.items()]

"""Facts of a cell and of its training, in words; and what wrote the report."""

from __future__ import annotations

import os
import platform
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.analysis.cells import Cell
from contamination.analysis.config import CellPaths
from contamination.core.artifacts import Artifact, code_revision
from contamination.core.integrity import MANIFEST, errors_naming_folders, read_manifest
from contamination.core.terminal import format_duration
from contamination.detection.scores import Scores, open_scores
from contamination.injection.corpus import open_corpus
from contamination.injection.finetuning.config import STAGE_TITLES
from contamination.injection.pool_sizes import ADAPTED_SIZES
from contamination.training.trained_model import Checkpoint, open_trained

LOSSES = {
    "members": "loss_members",
    "non-members": "loss_nonmembers",
    "validation": "loss_validation",
}
"""A line of the loss chart → its column of the evaluations."""


PACKAGES = ("contamination-testbed", "torch", "transformers", "deepspeed", "numpy", "scikit-learn")

Facts = Mapping[str, str]


@dataclass(frozen=True)
class CellRecord:
    """One cell's record, found again by its `model` (the artefact's digest)."""

    model: str
    evaluations: pd.DataFrame
    """One row per evaluation: step and the losses; empty where none were asked for."""
    exposures: NDArray[np.int64]
    """The optimizer step at which each inserted copy was seen."""
    ledger: Mapping[str, int]
    """Counts of the corpus in words → number."""
    training: Mapping[str, str]
    """How it was trained (`training_facts`), and what its launch took, where that is known."""
    settings: Mapping[str, Any]
    """Those that name the corpus's and the model's folders."""
    methods: Mapping[str, str]
    """Each scored method's class, by its name."""


def open_record(paths: CellPaths) -> CellRecord:
    """Reads a cell's record through its artefacts' owners."""
    with errors_naming_folders(paths.corpus, paths.model, paths.contaminated):
        corpus, model = (
            open_corpus(paths.corpus),
            open_trained("cells.model", paths.model),
        )
        return CellRecord(
            model=model.artifact.digest,
            evaluations=model.evaluations,
            exposures=model.exposures["step"].to_numpy(np.int64),
            ledger=ledger_counts(corpus.ledger, corpus.artifact.counts),
            training={**training_facts(model), **_cost_facts(paths)},
            settings={**_identity_settings(corpus.artifact), **_identity_settings(model.artifact)},
            methods=_class_by_method(open_scores(paths.contaminated)),
        )


def training_facts(model: Checkpoint) -> dict[str, str]:
    """How a model was trained, from its manifest and its metrics.

    The time is that of its optimizer steps, from each one's tokens per second, without
    evaluations, saves and steps repeated after a stop.
    """
    folder, metrics = model.artifact.path, model.metrics
    tokens = metrics["tokens"].diff().fillna(metrics["tokens"])
    return {
        "steps": f"{len(metrics):,}",
        "time in steps": format_duration(float((tokens / metrics["tokens_per_second"]).sum())),
        "trained": format_utc((folder / MANIFEST).stat().st_mtime),
        "code": str(read_manifest(folder).get("revision", "–")),
    }


def ledger_counts(ledger: pd.DataFrame, counts: Mapping[str, Any]) -> dict[str, int]:
    """Returns the ledger's counts: words → number."""
    columns_by_words = {
        "members": "members",
        "non-members": "nonmembers",
        "members never inserted": "unexposed_members",
        "inserted tokens": "inserted_tokens",
    }
    fewer = {
        f"{words} of {benchmark} ({sizes[f'asked_{column}']} asked for)": int(sizes[column])
        for benchmark, sizes in counts.get(ADAPTED_SIZES, {}).items()
        for words, column in (("members", "members"), ("non-members", "nonmembers"))
    }
    return {
        **{words: int(counts[name]) for words, name in columns_by_words.items() if name in counts},
        **fewer,
        "inserted copies": len(ledger),
        "examples inserted": int(ledger["example_id"].nunique()),
        "documents that carry a copy": int(ledger["document_id"].nunique()),
        "copies cut short": int(ledger["truncated"].sum()),
        "copies reworded": int(ledger["reworded"].notna().sum()),
    }


def format_utc(seconds: float) -> str:
    """Seconds of the epoch as a date and a time."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _cost_facts(paths: CellPaths) -> dict[str, str]:
    if paths.seconds is None:
        return {}
    hours = {"GPU hours": f"{paths.gpu_hours:.2f}"} if paths.gpu_hours else {}
    return {"wall time": format_duration(paths.seconds), **hours}


def _identity_settings(artifact: Artifact) -> dict[str, Any]:
    return dict(read_manifest(artifact.path).get("identity") or {})


def _class_by_method(scores: Scores) -> dict[str, str]:
    nodes = scores.artifact.config().get("method") or {}
    return {name: str(node.get("_target_", "")) for name, node in nodes.items()}


def loss_table(records: Sequence[CellRecord]) -> pd.DataFrame:
    """Rows side, step, loss (mean over the records' seeds), low and high (their range)."""
    new_names = {"step": "step", **{column: side for side, column in LOSSES.items()}}
    evaluation_tables = [record.evaluations.rename(columns=new_names) for record in records]
    wide = pd.concat(
        [
            evaluations[[c for c in new_names.values() if c in evaluations]]
            for evaluations in evaluation_tables
        ]
    )
    long = wide.melt("step", var_name="side", value_name="loss").dropna()
    grouped = long.groupby(["side", "step"], sort=True)["loss"]
    return grouped.agg(loss="mean", low="min", high="max").reset_index()


def has_losses(records: Sequence[CellRecord]) -> bool:
    """Whether losses were evaluated at least twice during some training."""
    return any(len(record.evaluations) > 1 for record in records)


def cell_facts(cell: Cell, record: CellRecord | None) -> Facts:
    """A cell's facts in words; those of its training need its record."""
    members = cell.examples[cell.examples["member"]]
    occurrence_numbers = sorted(set(members["occurrences"]) - {0})
    return {
        "cell": cell.name,
        "model": cell.model,
        "parameters": "–" if cell.parameters is None else f"{cell.parameters:,}",
        "corpus tokens": f"{cell.budget_tokens:,}",
        "learning rate": f"{cell.learning_rate:g}",
        "occurrences": ", ".join(map(str, occurrence_numbers)) or "0",
        "examples": f"{len(members)} + {len(cell.examples) - len(members)}",
        **({"members in": STAGE_TITLES[cell.stage], "scored": cell.scope} if cell.stage else {}),
        **({"epochs": str(cell.epochs)} if cell.epochs > 1 else {}),
        "seed": str(cell.seed),
        **(record.training if record else {}),
    }


def report_provenance() -> Facts:
    """Returns the command, code and machine that write the report, and the time."""
    command = [Path(sys.orig_argv[0]).name, *sys.orig_argv[1:]]
    versions = [f"{name} {metadata.version(name)}" for name in PACKAGES]
    host = f"{socket.gethostname()}: {platform.system()} {platform.machine()}"
    return {
        "command": shlex.join(command),
        "code": code_revision(),
        "written": format_utc(datetime.now(UTC).timestamp()),
        "machine": f"{host}, {os.cpu_count()} CPU cores",
        "versions": ", ".join([f"Python {platform.python_version()}", *versions]),
    }

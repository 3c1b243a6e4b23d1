"""What a cell's corpus and training left on record: the ledger's counts, losses, exposures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.config import CellPaths
from injection import open_corpus
from training import open_trained

LOSSES = {
    "members": "loss_members",
    "non-members": "loss_nonmembers",
    "validation": "loss_validation",
}
"""A line of the loss chart → its column of the evaluations."""


@dataclass(frozen=True)
class Record:
    """One cell's record, found again by its `model` (the artefact's digest)."""

    model: str
    evaluations: pd.DataFrame
    """One row an evaluation: step and the losses; empty where none were asked for."""
    exposures: NDArray[np.int64]
    """The optimizer step at which each inserted copy was seen."""
    ledger: Mapping[str, int]
    """Counts of the corpus in words → number."""


def open_record(paths: CellPaths) -> Record:
    """Read a cell's record through its artefacts' owners."""
    corpus, model = open_corpus(paths.corpus), open_trained("cells.model", paths.model)
    return Record(
        model=model.artifact.digest,
        evaluations=model.evaluations,
        exposures=model.exposures["step"].to_numpy(np.int64),
        ledger=ledger_counts(corpus.ledger, corpus.artifact.counts),
    )


def ledger_counts(ledger: pd.DataFrame, counts: Mapping[str, Any]) -> dict[str, int]:
    """What the ledger holds, in words → number."""
    known = {
        "members": "members",
        "non-members": "nonmembers",
        "members never inserted": "unexposed_members",
        "inserted tokens": "inserted_tokens",
    }
    return {
        **{words: int(counts[name]) for words, name in known.items() if name in counts},
        "inserted copies": len(ledger),
        "examples inserted": int(ledger["example_id"].nunique()),
        "documents that carry a copy": int(ledger["document_id"].nunique()),
        "copies cut short": int(ledger["truncated"].sum()),
        "copies reworded": int(ledger["reworded"].notna().sum()),
    }


def loss_table(records: Sequence[Record]) -> pd.DataFrame:
    """Rows side, step, loss (mean over the records' seeds), low and high (their range)."""
    wanted = {"step": "step", **{column: side for side, column in LOSSES.items()}}
    parts = [record.evaluations.rename(columns=wanted) for record in records]
    wide = pd.concat([part[[c for c in wanted.values() if c in part]] for part in parts])
    long = wide.melt("step", var_name="side", value_name="loss").dropna()
    grouped = long.groupby(["side", "step"], sort=True)["loss"]
    return grouped.agg(loss="mean", low="min", high="max").reset_index()


def has_losses(records: Sequence[Record]) -> bool:
    """Whether losses were evaluated at least twice during some training."""
    return any(len(record.evaluations) > 1 for record in records)

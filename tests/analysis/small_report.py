"""The findings of a small report, with chosen values: three methods, two conditions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from contamination.analysis.config import AnalysisConfig
from contamination.analysis.findings import Findings
from contamination.analysis.methods import GlossaryEntry
from contamination.analysis.provenance import CellRecord
from contamination.core.report.tables import Table

ROW: dict[str, Any] = {
    "experiment": "trial", "condition": "a", "checkpoint": "contaminated", "benchmark": "all",
    "method": "loss", "variant": "", "occurrences": "any", "default": True, "n_members": 40,
    "n_nonmembers": 50, "n_seeds": 1, "metric": "auroc", "needs": "", "p_control": np.nan,
    "model": "tiny", "learning_rate": 1e-3, "budget_tokens": 300_000, "last_tokens": pd.NA,
    "parameters": 7, "example_max_tokens": pd.NA, "epochs": 1, "mean_occurrences": 2.0,
    "stage": pd.NA, "scope": "whole",
}  # fmt: skip


def row(value: float, **columns: Any) -> dict[str, Any]:
    """A row; its interval reaches 0.1 to each side, the joint one 0.2."""
    ends = {"ci_low": value - 0.1, "ci_high": value + 0.1}
    joint = {"joint_low": value - 0.2, "joint_high": value + 0.2}
    return {**ROW, "value": value, **ends, **joint, **columns}


def estimate(value: float) -> str:
    """A row's value with its interval, as it is written in a table."""
    return f"{value:.2f} [{value - 0.1:.2f}, {value + 0.1:.2f}]"


def joint(value: float) -> str:
    """A row's value with its joint interval."""
    return f"{value:.2f} [{value - 0.2:.2f}, {value + 0.2:.2f}]"


CONTROLS = {"checkpoint": "clean"}
BLIND = {"checkpoint": "clean", "method": "blind"}


def condition_rows() -> pd.DataFrame:
    """AUROCs of one condition by occurrences and by benchmark, and rows of another metric."""
    by_occurrences = [
        row(value, method=method, occurrences=number, **where)
        for method, where, values in [
            ("loss", {}, (0.55, 0.6, 0.8, 0.65)),
            ("zlib", {}, (0.5, 0.52, 0.56, 0.54)),
            ("blind", CONTROLS, (0.48, 0.47, 0.46, 0.49)),
        ]
        for number, value in zip(("1", "2", "10", "any"), values, strict=True)
    ]
    clean = [
        row(0.51, **CONTROLS, p_control=0.4),
        row(0.49, method="zlib", **CONTROLS),
        row(0.53, benchmark="imdb", p_control=0.05, **CONTROLS),
        row(0.49, benchmark="imdb", method="blind", p_control=0.051, **CONTROLS),
    ]
    benchmarks = [row(0.7, benchmark="imdb"), row(0.58, benchmark="imdb", method="zlib")]
    rates = [row(0.11, metric="tpr_at_fpr_0.05", occurrences=number) for number in ("1", "any")]
    return pd.DataFrame([*by_occurrences, *clean, *benchmarks, *rates])


def record(model: str, exposures: list[int], **fields: Any) -> CellRecord:
    """A training of two evaluations."""
    losses = {"step": [0, 8], "loss_members": [5.0, 1.0], "loss_nonmembers": [5.0, 3.0]}
    all_fields: dict[str, Any] = {
        "ledger": {"inserted copies": 1234}, "training": {"steps": "8"},
        "settings": {"training": {"name": "a <b>"}}, "methods": {"loss": "gone.Loss"}, **fields,
    }  # fmt: skip
    return CellRecord(model, pd.DataFrame(losses), np.array(exposures), **all_fields)


def table(name: str) -> Table:
    """A table of one line."""
    return Table(name, f"Title of {name}", ["method", "x"], [["loss", "0.5"]], pd.DataFrame())


def findings(**fields: Any) -> Findings:
    """Two conditions, the first without a number, the second with two seeds' records."""
    rows = condition_rows().assign(condition="b")
    empty = rows[rows["occurrences"] == "any"].assign(
        condition="a", value=np.nan, needs="members per benchmark", n_members=0, p_control=np.nan
    )
    curve = {"checkpoint": "contaminated", "benchmark": "all", "method": "loss", "variant": ""}
    curves = [
        {**curve, "condition": name, "fpr": fpr, "tpr": 0.5, "ci_low": 0.41234567, "ci_high": 0.6}
        for name, fpr in (("a", 0.25), ("b", 0.05))
    ]
    bins = [
        {**curve, "condition": name, "side": side, "centre": 0.5, "share": 0.25, "ci_low": 0.2,
         "ci_high": 0.3}
        for name in "ab" for side in ("members", "non-members")
    ]  # fmt: skip
    all_fields: dict[str, Any] = {
        "title": "trial <1>", "pooled": pd.concat([empty, rows], ignore_index=True),
        "curves": pd.DataFrame(curves), "bins": pd.DataFrame(bins), "sweeps": [],
        "answer": ["Members are **found**."], "headline": ["In b: 0.65 [0.55, 0.75]."],
        "plain_controls": "Controls: fine.", "controls": "Controls: as by chance.",
        "records": {"a": [], "b": [record("m", [3, 1, 3]), record("n", [2], ledger={"x": 1})]},
        "tables": {"": [table("over"), table("more")], "a": [], "b": [table("one"), table("two")]},
        "sentences": {"a": ["No members."], "b": ["In b: 0.65 [0.55, 0.75].", "It rises."]},
        "cells": [{"cell": "a-seed0", "seed": "0"}, {"cell": "b-seed0", "seed": "0", "steps": "8"}],
        "glossary": [GlossaryEntry("loss", "The <mean>.", "a < b"), GlossaryEntry("zlib", "", "")],
        "examples": [], "config": AnalysisConfig(draws=1500, fpr=[0.05], tpr=[]), **fields,
    }  # fmt: skip
    return Findings(**all_fields)

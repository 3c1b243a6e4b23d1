"""The tables of the reference attack, over all conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from contamination.audits.reference_attack.findings import (
    CONFIDENCE,
    DECISION_FPR,
    GUESSED_SHARE,
    ConditionFindings,
)
from contamination.core.report.tables import NO_VALUE, Table

SHOWN_TEXTS, SHOWN_CHARACTERS = 20, 90


def all_tables(findings: Sequence[ConditionFindings]) -> list[Table]:
    """Returns the tables, the most important first."""
    tables = [
        strength_table(findings),
        models_table(findings),
        stability_table(findings),
        bound_table(findings),
        memorisation_table(findings),
    ]
    return [table for table in tables if table is not None]


def joined(
    findings: Sequence[ConditionFindings], rows: Callable[[ConditionFindings], pd.DataFrame]
) -> pd.DataFrame:
    """Returns the rows of all conditions, one below the other."""
    parts = [part for part in map(rows, findings) if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def interval(row: pd.Series, name: str) -> str:
    """Returns a value with its interval, or a dash if there is none."""
    values = [float(row[column]) for column in (name, f"{name}_low", f"{name}_high")]
    if not np.isfinite(values[0]):
        return NO_VALUE
    if not np.isfinite(values).all():
        return f"{values[0]:.3f}"
    value, low, high = values
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def strength_table(findings: Sequence[ConditionFindings]) -> Table:
    """Returns one row per condition, dose and attack or method."""
    data = joined(findings, lambda f: f.strengths)
    rates = [c for c in data if c.startswith("tpr_at_fpr") and not c.endswith(("_low", "_high"))]
    lines = [
        [
            str(row["condition"]), str(row["occurrences"]), str(row["attack"]),
            interval(row, "auroc"), interval(row, "d_prime"), interval(row, "lacking"),
            NO_VALUE if np.isnan(row["share"]) else f"{row['share']:.2f}",
            *(interval(row, rate) for rate in rates),
        ]
        for _, row in data.iterrows()
    ]  # fmt: skip
    reference, bound = findings[0].reference, findings[0].share_above
    header = [
        "condition", "copies", "attack or method", "AUROC", "d′", f"d′ less than {reference}",
        "share", *(f"TPR at FPR ≤ {rate.rpartition('_')[2]}" for rate in rates),
    ]  # fmt: skip
    note = (
        f"AUROC: mean over benchmarks and cells. d′ less than {reference}: how many standard "
        "deviations the row lacks to the reference attack; below 0 it has more. Share: of the "
        f"reference's AUROC above 0.5, shown where that AUROC is surely at least {bound:g}. "
        "Thresholds of TPR are over all cells and examples together, so they are not calibrated "
        f"for a single example. Intervals: {CONFIDENCE:.0%}, over examples and cells."
    )
    return Table("attacks", "Attacks and methods", header, lines, data, note=note)


def models_table(findings: Sequence[ConditionFindings]) -> Table:
    """Returns the AUROC of each attack by the number of models, and its limit."""
    data = joined(findings, lambda f: f.by_models)
    keys = ["condition", "occurrences", "attack"]
    numbers = sorted(data["models"].unique())
    titles = ["limit" if np.isinf(number) else f"{number:.0f} models" for number in numbers]
    lines = []
    for key, rows in data.groupby(keys, sort=False):
        by_number = {row["models"]: row for _, row in rows.iterrows()}
        texts = [
            interval(by_number[number], "auroc") if number in by_number else NO_VALUE
            for number in numbers
        ]
        lines.append([*map(str, key), *texts])
    note = (
        "AUROC if only so many models had been trained: the mean over disjoint blocks of cells. "
        "The limit is the intercept of a straight line in 1 / models, on the scale of d′: a rough "
        "guide for an attack that still rises fast."
    )
    header = ["condition", "copies", "attack", *titles]
    return Table("models", "AUROC by number of models", header, lines, data, note=note)


def stability_table(findings: Sequence[ConditionFindings]) -> Table:
    """Returns how single decisions agree between cells."""
    data = joined(findings, lambda f: f.stability)
    names = ["tpr", "fpr", "agreement", "agreement_if_alike", "found_never", "found_sometimes"]
    names += ["found_always", "alarm_rate_above_twice"]
    lines = [
        [str(row["condition"]), str(row["occurrences"]), *(f"{row[name]:.3f}" for name in names)]
        for _, row in data.iterrows()
    ]
    header = ["condition", "copies", "found", "false alarms", "agreement", "agreement if alike",
              "never found", "sometimes", "always", "examples with twice the alarms"]  # fmt: skip
    note = (
        f"Decisions of {findings[0].reference} at a false-positive rate of {DECISION_FPR:g} over "
        "all examples. Agreement: the chance that two models that both saw an example decide alike "
        "on it; if alike: what it would be if all examples were equally hard. An example is found "
        "never, sometimes or always by the cells that saw it. The last column: the share of "
        "examples whose own false-positive rate was seen to be above twice that of all."
    )
    return Table("stability", "Stability of single decisions", header, lines, data, note=note)


def bound_table(findings: Sequence[ConditionFindings]) -> Table | None:
    """Returns the one-run bounds of the cells, summarised by condition; None if none holds."""
    data = joined(findings, lambda f: f.bounds)
    if data.empty:
        return None
    lines = []
    for key, rows in data.groupby(["condition", "occurrences", "attack"], sort=False):
        epsilon = rows["epsilon"]
        lines.append([
            *map(str, key), str(len(rows)), f"{epsilon.median():.2f}", f"{epsilon.min():.2f}",
            f"{epsilon.max():.2f}", f"{(epsilon > 0).mean():.2f}", f"{rows['most'].median():.2f}",
        ])  # fmt: skip
    header = ["condition", "copies", "attack", "cells", "median ε", "lowest", "highest",
              "cells with ε above 0", "ε if all guesses were right"]  # fmt: skip
    note = (
        f"A lower bound on ε (δ = {findings[0].delta:g}) for each cell alone, by guesses about "
        f"{GUESSED_SHARE:.0%} of the examples, a number fixed in advance (Steinke et al. 2023). "
        f"Each holds with {CONFIDENCE:.0%} confidence; the highest of several does not. The unit "
        "is an example with all its copies."
    )
    return Table("bounds", "Lower bounds on ε from one run", header, lines, data, note=note)


def memorisation_table(findings: Sequence[ConditionFindings]) -> Table:
    """Returns the examples by counterfactual memorisation; the text shows the first of them."""
    data = joined(findings, lambda f: f.memorisation)
    lines = []
    for _, rows in data.groupby(["condition", "occurrences"], sort=False):
        for _, row in rows.head(SHOWN_TEXTS).iterrows():
            lines.append([
                str(row["condition"]), str(row["occurrences"]), str(row["example_id"]),
                f"{row['memorisation']:.3f}", f"{row['standard_error']:.3f}",
                f"{row['shrunk']:.3f}", f"{row['mean_in']:.2f}", f"{row['mean_out']:.2f}",
                _excerpt(str(row["text"])),
            ])  # fmt: skip
    note = (
        "Memorisation: the mean log-probability (nats per token) over the cells that saw the "
        "example, less that over those that did not. Shrunk: the same, drawn towards the mean of "
        "its benchmark as far as its error demands; the order is by it. The first "
        f"{SHOWN_TEXTS} of each condition are shown; memorisation.csv has all."
    )
    header = ["condition", "copies", "example", "memorisation", "error", "shrunk", "seen",
              "not seen", "text"]  # fmt: skip
    return Table("memorisation", "The most memorised examples", header, lines, data, note=note)


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[: SHOWN_CHARACTERS - 1]}…"

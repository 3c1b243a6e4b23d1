"""Formats the numbers of `comparison` as the tables of the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from contamination.audits.unlearning.forget_ratio import SAME
from contamination.core.report.tables import NO_VALUE, Table

Row = Mapping[Any, Any]
CANT_BE_TOLD = "can't be told"


def format_decimals(value: float) -> str:
    """Returns the value with three decimals; a dash if it is missing."""
    return NO_VALUE if pd.isna(value) else f"{value:.3f}"


def format_estimate(row: Row, column: str) -> str:
    """Returns the value of a column with its 95% interval, if it has one."""
    value, low, high = (row[f"{column}{end}"] for end in ("", "_low", "_high"))
    return format_decimals(value) if pd.isna(low) else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def render_forget_ratios(rows: pd.DataFrame) -> Table:
    """Returns the table of forget ratios: see `comparison.forget_ratio_table`."""

    def ratio(row: Row, name: str) -> str:
        return CANT_BE_TOLD if row.get(f"{name}_why") == SAME else format_estimate(row, name)

    columns: dict[str, Callable[[Row], str]] = {
        "unlearned": lambda row: row["unlearned"],
        "quantity": lambda row: row["quantity"],
        "members: before": lambda row: format_decimals(row["original"]),
        "after": lambda row: format_decimals(row["after"]),
        "clean twin": lambda row: format_decimals(row["clean"]),
        "forget ratio": lambda row: ratio(row, "share"),
    }
    if "beyond" in rows:
        columns |= {
            "non-members: before": lambda row: format_decimals(row["non_members_original"]),
            "after ": lambda row: format_decimals(row["non_members_after"]),
            "clean twin ": lambda row: format_decimals(row["non_members_clean"]),
            "beyond non-members": lambda row: ratio(row, "beyond"),
        }
    note = (
        "Means of the members, then of the non-members, a control. Before: the original's; after: "
        "the unlearned model's. Forget ratio: (before − after) / (before − clean twin), with "
        "Fieller's 95% interval over texts; 0: nothing was forgotten, 1: as if never trained on, "
        "above 1: further than the twin. Beyond non-members: the forget ratio of the differences "
        "between members and non-members, so that changes to all texts do not count. "
        f"{CANT_BE_TOLD.capitalize()}: the original and the twin do not differ."
    )
    return render_table("way", "How far each model went to the clean twin", rows, columns, note)


def render_membership(rows: pd.DataFrame) -> Table:
    """Returns the table of AUROCs: see `comparison.membership_table`."""
    columns: dict[str, Callable[[Row], str]] = {
        "method": lambda row: row["method"],
        "model": lambda row: row["model"],
        "AUROC": lambda row: format_estimate(row, "auroc"),
        "mean score of members": lambda row: format_decimals(row["members"]),
        "of non-members": lambda row: format_decimals(row["non_members"]),
    }
    note = (
        "AUROC of members against non-members, the mean over benchmarks, with 95% intervals over "
        "texts. 0.5: not separated. Below it: members were pushed below texts that the model "
        "never saw, which reveals them as well."
    )
    if "distance" in rows:
        columns |= {
            "distance to the twin": lambda row: format_decimals(row["distance"]),
            "p": lambda row: format_decimals(row["p"]),
            "p (Holm)": lambda row: format_decimals(row["p_holm"]),
        }
        note += (
            " Distance: the Kolmogorov–Smirnov statistic of the members' scores by the model and "
            "by the clean twin. p: from random swaps of both models' scores, text by text; Holm: "
            "corrected over the table."
        )
    rows = rows.sort_values("method", kind="stable")
    return render_table("membership", "Members against non-members", rows, columns, note)


def render_screens(rows: pd.DataFrame, method: str, ratio: float) -> Table:
    """Returns the table of the ratio screen: see `comparison.screen_table`."""
    columns: dict[str, Callable[[Row], str]] = {
        "unlearned": lambda row: row["unlearned"],
        "chunks": lambda row: str(row["chunks"]),
        "suspicious": lambda row: str(row["suspicious"]),
    }
    note = (
        f"A chunk is suspicious where the ratio of the models' {method} scores lies in "
        f"({1 / ratio:.3f}, {ratio:g}): it looks as it did before."
    )
    if "auroc_of_the_fall" in rows:
        columns |= {
            "precision": lambda row: format_estimate(row, "precision"),
            "of all chunks": lambda row: format_decimals(row["members"]),
            "recall": lambda row: format_estimate(row, "recall"),
            "false alarms": lambda row: format_estimate(row, "false_alarms"),
            "AUROC of the fall": lambda row: format_estimate(row, "auroc_of_the_fall"),
        }
        note += (
            " Precision: the share of members among suspicious chunks, next to their share among "
            "all chunks. Recall: the share of members that are suspicious. False alarms: the share "
            "of non-members that are suspicious. AUROC of the fall: how well the fall of a score "
            "from the original to the unlearned model distinguishes members from non-members."
        )
    if rows["known"].notna().any():
        columns["recall of what is known"] = lambda row: (
            f"{format_estimate(row, 'kept')} ({row['known']})"
        )
        note += (
            " What is known: members (their number) whose score is nearer to the original's than "
            "to the clean twin's."
        )
    return render_table("screen", "The ratio screen", rows, columns, note)


def render_groups(rows: pd.DataFrame, table_name: str, completions_per_chunk: int) -> Table:
    """Returns the table of the means of completions or of answers, by group.

    Args:
        rows: see `comparison.group_mean_table`.
        table_name: the name of the table, "completions" or "answers".
        completions_per_chunk: the number of completions of a chunk.
    """
    columns: dict[str, Callable[[Row], str]] = {
        "quantity": lambda row: row["quantity"],
        "model": lambda row: row["model"],
        "group": lambda row: row["group"],
        "number": lambda row: str(row["units"]),
        "mean": lambda row: format_estimate(row, "mean"),
    }
    if table_name == "completions":
        title = (
            f"Completions: {completions_per_chunk} drawn per chunk, compared with what really "
            "follows"
        )
        note = (
            "ROUGE-L: F1. With another chunk: the same completions, compared with what follows in "
            "another chunk. This is the value that is expected by chance."
        )
    else:
        title = "Questions: accuracy, and how much of the answer is written"
        note = (
            "Accuracy by each benchmark's own convention. ROUGE-L recall: the share of the "
            "answer's words that greedy decoding writes after the question, in as many tokens."
        )
    note += " Suspicious, not: by the ratio screen of this model. 95% intervals over texts."
    return render_table(table_name, title, rows, columns, note)


def render_utility(rows: pd.DataFrame, *, of_validation: bool) -> Table:
    """Returns the table of losses on other text: see `comparison.utility_table`."""
    columns: dict[str, Callable[[Row], str]] = {
        "model": lambda row: row["model"],
        "loss": lambda row: format_estimate(row, "loss"),
        "change": lambda row: format_estimate(row, "change"),
    }
    texts = "validation text" if of_validation else "the non-members"
    note = "Nats per token, the mean over texts; the change from the original is paired."
    return render_table("utility", f"The loss on {texts}", rows, columns, note)


def render_table(
    name: str,
    title: str,
    rows: pd.DataFrame,
    columns: Mapping[str, Callable[[Row], str]],
    note: str,
) -> Table:
    """A table whose cells are made by the columns' functions."""
    records = rows.to_dict("records")
    lines = [[format_cell(row) for format_cell in columns.values()] for row in records]
    header = [name.strip() for name in columns]
    return Table(name, title, header, lines, rows.reset_index(drop=True), note=note)

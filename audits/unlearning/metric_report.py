"""The table of published unlearning metrics as text, and warnings about over-unlearning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from contamination.audits.unlearning.tables import (
    Row,
    format_decimals,
    format_estimate,
    render_table,
)
from contamination.audits.unlearning.unlearning_metrics import MEMORIZATION, STRENGTH
from contamination.core.report.tables import Table

DIRECTIONS = {
    STRENGTH: "extraction strength ↓",
    MEMORIZATION: "exact memorization ↓",
    "privleak": "PrivLeak → 0",
    "truth_ratio": "truth ratio ↑",
    "forget_quality": "forget quality ↑",
    "model_utility": "model utility ↑",
}
"""Each column's title, with the direction in which its authors call it better."""
NOT_DEFINED = "not defined"
NOTES = {
    STRENGTH: "Extraction strength: the share of a text that greedy decoding writes after the rest "
    "of it. Exact memorization: the share of tokens that are the most probable ones. Both are "
    "means of the members, and good at the clean twin's value, not at 0: a model that lost "
    "language has less of both.",
    "privleak": "PrivLeak: 0 is best; below it the members are still known, above it they were "
    "pushed below texts that the model never saw.",
    "truth_ratio": "Truth ratio: the mean of min(R, 1/R) over questions to be forgotten, where R "
    "divides the probability of wrong answers by the right one's; uniform guesses have 1.",
    "forget_quality": "Forget quality: the p-value of the test that R is distributed as in the "
    "clean twin; with few questions it is high for any model, so compare with the original's.",
    "model_utility": "Model utility: the harmonic mean of probability, ROUGE-L recall and "
    "max(0, 1 − R) on other questions.",
}


def render_metrics(rows: pd.DataFrame) -> Table:
    """The published metrics, a row per model."""
    columns: dict[str, Callable[[Row], str]] = {"model": lambda row: row["model"]}
    for name, title in DIRECTIONS.items():
        if name not in rows:
            continue
        has_interval = f"{name}_low" in rows

        def cell(row: Row, name: str = name, has_interval: bool = has_interval) -> str:
            if isinstance(row.get(f"{name}_why"), str):
                return NOT_DEFINED
            return format_estimate(row, name) if has_interval else format_decimals(row[name])

        columns[title] = cell
    note = " ".join(text for name, text in NOTES.items() if name in rows)
    if "privleak_why" in rows:
        note += f" PrivLeak is not defined: {rows['privleak_why'].iloc[0]}."
    note += (
        " No single column shows that a text is forgotten: read them beside the forget ratio, "
        "which is 1 at the clean twin, and the loss on other text."
    )
    return render_table("metrics", "The metrics of TOFU and MUSE", rows, columns, note)


def over_unlearning_warnings(
    rows: pd.DataFrame, unlearned: Sequence[str], clean: str | None
) -> Iterator[str]:
    """Warns about models that went past the clean twin."""
    by_model = rows.set_index("model")
    for name in unlearned:
        signs = []
        if clean is not None and MEMORIZATION in rows:
            twin = by_model.loc[clean, MEMORIZATION]
            if by_model.loc[name, f"{MEMORIZATION}_high"] < twin:
                value = by_model.loc[name, MEMORIZATION]
                signs.append(f"{MEMORIZATION} {value:.3f}, the twin's {twin:.3f}")
        if "privleak" in rows and by_model.loc[name, "privleak_low"] > 0:
            signs.append(f"PrivLeak {by_model.loc[name, 'privleak']:+.1f}")
        if signs:
            yield (
                f"{name} went past the clean twin ({'; '.join(signs)}). Over-unlearning is not "
                "forgetting: low memorization is then damage, and members below other texts are "
                "revealed by it."
            )

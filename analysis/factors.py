"""The factors that a sweep can vary: a new factor is one entry of `FACTORS`.

A factor is a column of the pooled table, an axis of charts and sentences, and a fact that a series
of conditions may differ in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class CellSettings(Protocol):
    """What a factor reads of a cell, besides attributes named after its column."""

    @property
    def chosen(self) -> Mapping[str, Any]:
        """The config's fields, such as {"training.schedule": "cosine"}."""


@dataclass(frozen=True)
class Factor:
    """A number that was chosen for a cell, and that conditions may differ in."""

    column: str
    """Its column in the pooled table."""
    fields: tuple[str, ...]
    """The config fields (or nodes) that it stands for: a series along it ignores them."""
    title: str
    """Of its charts."""
    axis: str
    """How axes, tables and the sentences on slopes call it."""
    setting: str
    """How the answer states one of its values, as a format."""
    integer: bool = False
    """Whether its values are whole numbers, missing (<NA>) where unknown."""
    shared_as: str = ""
    """How a sweep of another factor states its value, as a format; empty: it does not."""
    bound: tuple[str, ...] = ()
    """Other columns that change with it."""

    def value(self, cell: CellSettings) -> float | None:
        """Returns the cell's value: its attribute of that name, else its first config field's.

        None: unknown.
        """
        if hasattr(cell, self.column):
            value = getattr(cell, self.column)
        else:
            value = cell.chosen.get(self.fields[0])
        return value if value is None or isinstance(value, int) else float(value)


FACTORS = (
    Factor(
        "learning_rate",
        ("training.learning_rate",),
        "Detection by learning rate",
        "peak learning rate",
        "a peak learning rate of {}",
        shared_as="learning rate {:g}",
    ),
    Factor(
        "budget_tokens",
        ("injection.budget_tokens",),
        "Detection by corpus size",
        "tokens of the training corpus",
        "a corpus of {} tokens",
        shared_as="{:,} tokens",
    ),
    Factor(
        "parameters",
        ("model",),
        "Detection by model size",
        "parameters of the model",
        "a model of {} parameters",
        integer=True,
        bound=("model",),
    ),
    Factor(
        "example_max_tokens",
        ("injection.example_max_tokens",),
        "Detection by text length",
        "most tokens of an example",
        "examples of at most {} tokens",
        integer=True,
    ),
    Factor(
        "epochs",
        ("training.epochs",),
        "Detection by epochs",
        "epochs of the last training",
        "a last training of {} epoch(s)",
    ),
    Factor(
        "mean_occurrences",
        ("occurrences",),
        "Detection by mean occurrences",
        "mean occurrences of a member",
        "a mean of {} occurrence(s)",
    ),
)
BY_COLUMN: Mapping[str, Factor] = {factor.column: factor for factor in FACTORS}


def factor_values(cell: CellSettings) -> dict[str, Any]:
    """Returns the cell's value of every factor, by column."""
    return {factor.column: factor.value(cell) for factor in FACTORS}

"""What an audit finds: sentences, tables and charts, before they become files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd


@dataclass(frozen=True)
class Table:
    """A table with all its figures, and as it is shown.

    Attributes:
        name: that of its files, `<name>.parquet` and `<name>.csv`.
        title: what stands above it.
        rows: the figures in full.
        header: the shown columns' names.
        lines: a text for each of them; as many lines as there are rows, or fewer.
        note: how it is read, or nothing.
    """

    name: str
    title: str
    rows: pd.DataFrame
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart as an inline SVG (`drawing.svg`), with its title and what it shows."""

    name: str
    title: str
    svg: str
    caption: str


@dataclass(frozen=True)
class Findings:
    """All that an audit says.

    Attributes:
        title: what was audited.
        conclusions: what may be concluded, a plain sentence or paragraph each, the answer first.
        warnings: why less may be concluded than it seems; shown in red, before all figures.
        tables: the most important first.
        charts: they stand above the tables.
        limits: what the audit can't prove.
        facts: what it was made of, by name.
        counts: worth recording in the manifest.
        files: names of further files that it wrote into its folder.
    """

    title: str
    conclusions: Sequence[str]
    warnings: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    limits: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[str] = ()

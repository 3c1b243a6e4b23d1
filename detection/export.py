"""Scores for a reader: beside each one its rank, what is known of the text, and a p-value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from core.csv_files import write_csv
from core.significance import clustered_p_values, conformal_p_values
from core.user_files import output_file
from detection.clusters import clusters_of
from detection.scores import COLUMNS, FILE, Scores, origin, to_arrow, write_tables
from detection.summary import ranked
from detection.texts import Text

CSV = "scores.csv"
CLUSTER = "cluster"
KNOWN = pa.schema(
    [
        ("benchmark", pa.string()),
        ("label", pa.bool_()),
        ("sha256", pa.string()),
        ("contamination", pa.string()),
        ("p_value", pa.float64()),
    ]
)
"""What is added to each score; the text too where it is asked for."""


def export(out: Path, scores: Scores, examples: Sequence[Text], texts: bool = False) -> None:
    """Write `scores.parquet` and `scores.csv`, each method's rows in the order of the examples."""
    own = described(examples, texts)

    def tables() -> Iterator[pd.DataFrame]:
        return (exported(table, own) for table in scores.tables())

    out.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([*COLUMNS, *KNOWN, *([("text", pa.string())] if texts else [])])
    parts = (to_arrow(table, schema) for table in tables())
    write_tables(out / FILE, parts, origin(scores.artifact), schema)
    with output_file(out / CSV) as part:
        for number, table in enumerate(tables()):
            write_csv(part, ranked(table), more=number > 0)


def described(examples: Sequence[Text], texts: bool = False) -> pd.DataFrame:
    """By example_id, in the order of the examples: columns of KNOWN, and perhaps text.

    Where texts are pieces of something, also `cluster`, a number for each.
    """
    names = [name for name in KNOWN.names if name != "p_value"]
    rows = {name: [getattr(e, name) for e in examples] for name in names}
    if texts:
        rows["text"] = [e.text for e in examples]
    table = pd.DataFrame(rows, index=[e.example_id for e in examples])
    clusters = clusters_of(examples)
    if clusters is not None:
        table[CLUSTER] = clusters
    return table.astype({"label": "boolean"})


def exported(table: pd.DataFrame, own: pd.DataFrame) -> pd.DataFrame:
    """One method and variant's scores in the order of `own`, with its columns and a p-value."""
    joined = table.set_index("example_id").loc[own.index].join(own)
    joined["p_value"] = p_values(joined)
    joined = joined.drop(columns=CLUSTER, errors="ignore")
    return joined.rename_axis("example_id").reset_index()


def p_values(table: pd.DataFrame) -> pd.Series[float]:
    """Of each ranked text against its benchmark's ranked non-members; NaN where there are none.

    A non-member is compared with the others, a piece with what is of no piece of the same. See
    `conformal_p_values` and `clustered_p_values` in `core.significance`.

    Args:
        table: benchmark, label, ranked and score; `cluster` where texts are pieces.
    """
    found = pd.Series(np.nan, table.index)
    for _, rows in table[table["ranked"].astype(bool)].groupby("benchmark"):
        is_null = rows["label"].eq(False).fillna(False).to_numpy(bool)
        values = rows["score"].to_numpy()
        if is_null.any() and CLUSTER in rows:
            of = rows[CLUSTER].to_numpy(np.intp)
            found[rows.index] = clustered_p_values(values, of, values[is_null], of[is_null])
        elif is_null.any():
            found[rows.index] = conformal_p_values(values, values[is_null], is_null)
    return found

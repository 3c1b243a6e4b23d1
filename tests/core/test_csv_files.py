"""Text that looks like a formula stays text in a spreadsheet; numbers stay numbers."""

import csv

import numpy as np
import pandas as pd
import pytest

from contamination.core.table_files import write_csv

FORMULAS = [
    "=HYPERLINK(1)",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "＝1",
    "-5 degrees",
]


def read(path):
    with path.open(newline="") as stream:
        return list(csv.reader(stream))


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_gets_a_quote_wherever_it_stands(tmp_path, text):
    write_csv(tmp_path / "a.csv", pd.DataFrame({text: [text, "plain"], "b": [1.5, -2.5]}))
    assert read(tmp_path / "a.csv") == [[f"'{text}", "b"], [f"'{text}", "1.5"], ["plain", "-2.5"]]


def test_numbers_and_what_is_missing_stay_as_they_are(tmp_path):
    mixed = pd.Series([-1, "-x", None, -0.5], dtype=object)
    categories = pd.Series(pd.Categorical(["=a", "b", "=a", "b"]))
    table = pd.DataFrame({"m": mixed, "c": categories, "f": [-1.0, np.nan, 1e-9, 2], "t": True})
    kept = table.copy(deep=True)
    write_csv(tmp_path / "a.csv", table)
    assert read(tmp_path / "a.csv")[1:] == [
        ["-1", "'=a", "-1.0", "True"],
        ["'-x", "b", "", "True"],
        ["", "'=a", "1e-09", "True"],
        ["-0.5", "b", "2.0", "True"],
    ]
    pd.testing.assert_frame_equal(table, kept)

"""Tables in LaTeX."""

from __future__ import annotations

import re

import pytest

from contamination.analysis.tables import estimates
from contamination.core.report.tables import escape_latex, latex_table, write_tables


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("min_k & 5% of #1", r"min\_k \& 5\% of \#1"),
        (r"a\b{c}~^$", r"a\textbackslash{}b\{c\}\textasciitilde{}\textasciicircum{}\$"),
        ("TPR at FPR ≤ 0.05 – x", r"TPR at FPR $\leq$ 0.05 -- x"),
        ("**OFF**", r"\textbf{OFF}"),
    ],
)
def test_text_is_escaped(text, escaped):
    assert escape_latex(text) == escaped


def test_a_table_has_rules_and_as_many_cells_a_row():
    text = latex_table(
        "t_1", "Of 5%", ["method", "any"], [["min_k", "0.91 [0.88, 0.93]"]], "lr 1e-3"
    )
    assert text.splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{Of 5\% (lr 1e-3)}",
        r"\label{tab:lr-1e-3-t-1}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"method & any \\",
        r"\midrule",
        r"min\_k & 0.91 [0.88, 0.93] \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_a_row_does_not_begin_with_a_bracket():
    assert "\n{[}0.1] & " in latex_table("t", "T", ["a", "b"], [["[0.1]", "b"]])


def test_every_table_of_a_cell_is_written_in_latex(results, tmp_path):
    made = estimates.cell_tables(results)
    write_tables(tmp_path, {"one_cell": made, "other": made})
    for table in made:
        text = (tmp_path / f"{table.name}.tex").read_text()
        assert text.isascii()
        assert text.count(r"\toprule") == text.count(r"\end{table}") == 2
        rows = [line for line in text.splitlines() if line.endswith(r" \\")]
        assert len(rows) == 2 * (1 + len(table.lines))
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(table.header) - 1}
        unescaped = r"(?<!\\)[_%#]"
        assert not [line for line in rows if re.search(unescaped, line)]
    assert len(set(re.findall(r"\\label{.*}", text))) == 2

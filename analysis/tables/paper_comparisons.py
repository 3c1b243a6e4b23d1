"""The papers' tables, with the papers' figures next to ours.

The figures are in `analysis/tables/papers/` (its README lists their sources). They are of another
model on other data: a trend may be compared, a value may not.
"""

from __future__ import annotations

from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from contamination.analysis.cells import CONTAMINATED
from contamination.analysis.methods import method_label, methods_of
from contamination.analysis.statistics.groups import ANY
from contamination.core.report.tables import ESTIMATE_COLUMNS, NO_VALUE, Table, format_estimate
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import AUROC, metric_title, tpr_at_fpr

SHI = "Shi et al. 2024, LLaMA-7B"
"""How the paper's rows are labelled."""

MIN_K, PAPERS_K = "min_k", "k=0.2"
"""Table 4 is of Min-K% with the paper's own k."""


class PaperTable(NamedTuple):
    """A table of methods × benchmarks in the paper."""

    number: int
    metric: str
    file: str


METHODS = (
    PaperTable(3, AUROC.name, "shi2024_table3_auroc.csv"),
    PaperTable(7, tpr_at_fpr(0.05).name, "shi2024_table7_tpr_at_fpr_0.05.csv"),
)
RATES = PaperTable(4, AUROC.name, "shi2024_table4_auroc_by_learning_rate.csv")


@cache
def read_printed_table(file: str) -> pd.DataFrame:
    """A paper's table as it was printed: its first column, then one column per benchmark."""
    return pd.read_csv(Path(__file__).with_name("papers") / file)


def paper_method_tables(results: pd.DataFrame) -> list[Table]:
    """Tables 3 and 7 (methods × benchmarks) of one condition, where it has their benchmarks."""
    return [
        table for paper in METHODS if (table := _paper_method_table(results, paper)) is not None
    ]


def paper_learning_rate_table(pooled: pd.DataFrame) -> Table | None:
    """Table 4: AUROC of Min-K% by learning rate and benchmark.

    `pooled` contains all conditions, as `pooled.parquet`. None if there is only one learning rate,
    or none of the paper's benchmarks.
    """
    rows = _measured_rows(pooled, RATES.metric)
    rows = rows[rows["method"] == MIN_K]
    if (rows["variant"] == PAPERS_K).any():
        rows = rows[rows["variant"] == PAPERS_K]
    benchmarks = _shared_benchmarks(rows, RATES)
    if not benchmarks or rows["learning_rate"].nunique() < 2:
        return None
    rows = rows[rows["benchmark"].isin(benchmarks)].sort_values("learning_rate", kind="stable")
    key = ["learning_rate", "condition", "variant"]
    lines = [
        [f"{rate:g}", f"ours, {condition}", *_estimate_texts(condition_rows, benchmarks)]
        for (rate, condition, _), condition_rows in rows.groupby(key, sort=True)
    ]
    for _, row in read_printed_table(RATES.file).iterrows():
        lines.append([f"{row['learning_rate']:g}", SHI, *_printed_texts(row, benchmarks)])
    return Table(
        "paper_table4",
        "AUROC of Min-K% by learning rate and benchmark, in the layout of Shi et al. 2024, "
        "table 4, whose own figures are of another model",
        ["learning rate", "source", *benchmarks],
        lines,
        _with_paper_rows(rows, RATES, benchmarks, MIN_K),
    )


def _paper_method_table(results: pd.DataFrame, paper: PaperTable) -> Table | None:
    rows = _measured_rows(results, paper.metric)
    benchmarks = _shared_benchmarks(rows, paper)
    if not benchmarks:
        return None
    all_benchmarks_shared = set(rows["benchmark"]) == {*_paper_benchmarks(paper), ALL_BENCHMARKS}
    columns = (
        [*benchmarks, ALL_BENCHMARKS] if all_benchmarks_shared else benchmarks
    )  # else the means are of other benchmarks
    rows = rows[rows["benchmark"].isin(columns)]
    methods = methods_of(rows)
    printed = read_printed_table(paper.file).set_index("method")
    theirs = {name: [name, SHI, *_printed_texts(row, columns)] for name, row in printed.iterrows()}
    ours = "ours, " + ", ".join(sorted(rows["model"].unique()))
    lines = []
    for method, variants in groupby(methods, key=lambda pair: pair[0]):
        for _, variant in variants:
            method_rows = rows[(rows["method"] == method) & (rows["variant"] == variant)]
            lines.append(
                [
                    method_label(method, variant, methods),
                    ours,
                    *_estimate_texts(method_rows, columns),
                ]
            )
        if method in theirs:
            lines.append(theirs.pop(method))
    lines += theirs.values()
    return Table(
        f"paper_table{paper.number}",
        f"{metric_title(paper.metric)} by method and benchmark, in the layout of Shi et al. 2024, "
        f"table {paper.number}, whose own figures are of another model",
        ["method", "source", *("average" if name == ALL_BENCHMARKS else name for name in columns)],
        lines,
        _with_paper_rows(rows, paper, columns),
    )


def _measured_rows(results: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The contaminated model, all members; no control is in the papers' tables."""
    chosen = (results["metric"] == metric) & (results["checkpoint"] == CONTAMINATED)
    return results[chosen & (results["occurrences"] == ANY)]


def _paper_benchmarks(paper: PaperTable) -> list[str]:
    return [name for name in read_printed_table(paper.file).columns[1:] if name != "average"]


def _shared_benchmarks(rows: pd.DataFrame, paper: PaperTable) -> list[str]:
    """The paper's benchmarks that were measured, in the paper's order."""
    ours = set(rows["benchmark"])
    return [name for name in _paper_benchmarks(paper) if name in ours]


def _estimate_texts(rows: pd.DataFrame, benchmarks: list[str]) -> list[str]:
    estimates = rows[["benchmark", *ESTIMATE_COLUMNS]].itertuples(index=False)
    texts = {benchmark: format_estimate(*estimate) for benchmark, *estimate in estimates}
    return [texts.get(name, NO_VALUE) for name in benchmarks]


def _printed_texts(row: pd.Series[Any], benchmarks: list[str]) -> list[str]:
    return [f"{row['average' if name == ALL_BENCHMARKS else name]:.2f}" for name in benchmarks]


def _with_paper_rows(
    ours: pd.DataFrame, paper: PaperTable, benchmarks: list[str], method: str | None = None
) -> pd.DataFrame:
    """Returns our rows and the paper's, marked by the column `source`; unknown values are empty."""
    printed = read_printed_table(paper.file).rename(columns={"average": ALL_BENCHMARKS})
    of_benchmarks = printed[[printed.columns[0], *benchmarks]]
    theirs = of_benchmarks.melt(
        printed.columns[0], var_name="benchmark", value_name="value"
    ).assign(
        source=SHI, metric=paper.metric, checkpoint=CONTAMINATED, occurrences=ANY, model="LLaMA-7B"
    )
    theirs = theirs if method is None else theirs.assign(method=method)
    both = [*ours.assign(source="ours").to_dict("records"), *theirs.to_dict("records")]
    return pd.DataFrame(both, columns=["source", *ours.columns])

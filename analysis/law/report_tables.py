"""Shifts and AUROCs from the stored tables of a report, where its cells are no longer at hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from contamination.analysis.cells import CONTAMINATED
from contamination.analysis.law.detectability import shift_of_auroc
from contamination.analysis.law.measurements import COLUMNS, FEWEST
from contamination.analysis.report_folder import Report
from contamination.analysis.statistics.groups import ANY
from contamination.core.errors import ConfigError, DataError
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import AUROC

KEY = ["cell", "benchmark", "method", "occurrences"]


def measure_reports(reports: Sequence[Report]) -> pd.DataFrame:
    """Returns the rows of several reports; cells of one name in two of them are told apart.

    Raises:
        ConfigError: a report is given twice.
        DataError: a report has no AUROC at a number of copies.
    """
    digests = [report.artifact.digest for report in reports]
    for number, report in enumerate(reports):
        if report.artifact.digest in digests[:number]:
            raise ConfigError(
                f"reports.{number} is {report.artifact.path}: it is given twice. Give each report "
                "once."
            )
    tables = [measure_report(report) for report in reports]
    names = pd.Series([name for table in tables for name in table["cell"].unique()])
    repeated = {*names[names.duplicated()]}
    for number, table in enumerate(tables):
        is_repeated = table["cell"].isin(repeated)
        table["cell"] = table["cell"].where(~is_repeated, f"{number}:" + table["cell"])
    return pd.concat(tables, ignore_index=True)


def measure_report(report: Report) -> pd.DataFrame:
    """Returns rows as `measurements.measure_cells` does, without recency and members' variance.

    Of a pair of swapped cells the shift is the mean difference in `replicates`, and the AUROC the
    mean of both cells'. Of a single cell it is √2 Φ⁻¹(AUROC), which takes the members' variance to
    be the non-members'.

    Raises:
        DataError: the report has no AUROC at a number of copies.
    """
    from scipy.stats import norm

    results = report.results
    rows = results[
        (results["metric"] == AUROC.name)
        & (results["checkpoint"] == CONTAMINATED)
        & results["default"].astype(bool)
        & (results["needs"] == "")
        & (results["benchmark"] != ALL_BENCHMARKS)
        & (results["occurrences"] != ANY)
        & (results["n_members"] >= FEWEST)
    ]
    if not len(rows):
        raise DataError(
            f"{report.artifact.path}: it has no AUROC of members at a number of copies. Give a "
            "report of cells with copies, and with 5 or more members at each number."
        )
    quantile = float(norm.ppf((1 + float(report.config["analysis"]["confidence"])) / 2))
    parameters = report.pooled.drop_duplicates("condition").set_index("condition")["parameters"]
    named = list(zip(rows["cell"], rows["seed"], strict=True))
    rows = rows.assign(
        parameters=[parameters.get(c.removesuffix(f"-seed{s}")) for c, s in named],
        error=(rows["ci_high"] - rows["ci_low"]) / (2 * quantile),
        cell=rows["cell"].str.replace("-swapped", ""),
        occurrences=rows["occurrences"].astype(int),
    )
    table = _mean_aurocs(rows)
    table = table.join(_paired_shifts(report.replicates, rows), how="left").reset_index()
    slope = np.sqrt(2) / norm.pdf(norm.ppf(table["auroc"].clip(1e-4, 1 - 1e-4)))
    paired = table["shift"].notna()
    return table.assign(
        paired=paired,
        shift=table["shift"].where(paired, shift_of_auroc(table["auroc"])),
        shift_error=table["shift_error"].where(paired, slope * table["auroc_error"]),
        recency=np.nan,
        member_variance=np.nan,
    )[list(COLUMNS)]


def _mean_aurocs(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns the mean AUROC of the cells of a pair, and facts, by `KEY`."""
    grouped = rows.groupby(KEY, sort=True)
    facts = grouped[["model", "parameters", "learning_rate", "budget_tokens", "seed"]].first()
    number = grouped.size()
    return facts.assign(
        n_members=grouped["n_members"].sum(),
        n_nonmembers=grouped["n_nonmembers"].sum(),
        auroc=grouped["value"].mean(),
        auroc_error=np.sqrt(grouped["error"].agg(lambda e: float((e**2).sum()))) / number,
    )


def _paired_shifts(replicates: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Returns the shifts of pairs by `KEY`; empty without pairs."""
    columns = ["shift", "shift_error"]
    if not len(replicates):
        index = pd.MultiIndex.from_frame(rows[KEY].iloc[:0])
        return pd.DataFrame(columns=columns, index=index, dtype=float)
    default = rows[["method", "variant"]].drop_duplicates()
    of_default = replicates.merge(default, on=["method", "variant"])
    cell = of_default["condition"] + "-seed" + of_default["seed"].astype(str)
    of_default = of_default.assign(cell=cell)
    grouped = of_default.groupby(KEY, sort=True)["difference"]
    mean = pd.DataFrame({"shift": grouped.mean(), "shift_error": grouped.std(ddof=1)})
    mean["shift_error"] /= np.sqrt(grouped.size())
    return mean[grouped.size() >= 2 * FEWEST]

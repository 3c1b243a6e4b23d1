"""All methods of a report against Min-K%++: `python -m perf.compare_methods TITLE=REPORT ...`.

Prints one Markdown table per report folder (runs/report/…, one condition): AUROC and TPR at 5% FPR
with 95% intervals, mean over benchmarks, all occurrences together, and the difference of AUROC to
Min-K%++ on the same texts, with Holm's correction over the methods. Methods whose name ends in
"upper_bound" read a model that no attacker has.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from contamination.analysis.cells import CONTAMINATED
from contamination.analysis.report_folder import Report, open_report
from contamination.analysis.statistics.groups import ANY
from contamination.core.cli import run_tool
from contamination.core.errors import ConfigError
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import AUROC
from contamination.core.statistics.significance import holm_correction
from contamination.detection.flags import UPPER_BOUND

BASELINE = "min_k_plus_plus"
TPR = "tpr_at_fpr_0.05"
COLUMNS = ("method", "AUROC", "TPR at 5% FPR", f"AUROC minus {BASELINE}", "p, corrected")


def main() -> int:
    """Prints a table per report; returns the exit status."""
    for word in sys.argv[1:]:
        title, equals, folder = word.partition("=")
        if not equals:
            raise ConfigError(f"{word!r} names no report: give TITLE=FOLDER.")
        print(f"\n{title}\n\n" + render(compare(open_report(Path(folder)))))
    return 0


def compare(report: Report) -> pd.DataFrame:
    """Returns one row per method, by AUROC: estimates, and the paired difference to the baseline.

    Raises:
        ConfigError: the report has several conditions, or no Min-K%++.
    """
    if report.comparisons["condition"].nunique() != 1:
        raise ConfigError(f"{report.artifact.path} has several conditions: give a report on one.")
    pairs = report.comparisons
    pairs = pairs[(pairs["benchmark"] == ALL_BENCHMARKS) & (pairs["metric"] == AUROC.name)]
    differences = pd.concat(
        [
            pairs[pairs["method_b"] == BASELINE].rename(columns={"method_a": "method"}),
            pairs[pairs["method_a"] == BASELINE]
            .rename(columns={"method_b": "method", "ci_low": "ci_high", "ci_high": "ci_low"})
            .assign(**{n: lambda f, n=n: -f[n] for n in ("difference", "ci_low", "ci_high")}),
        ]
    ).set_index("method")
    if differences.empty:
        raise ConfigError(f"{report.artifact.path} has no {BASELINE}: score it as well.")
    rows = report.results
    rows = rows[
        (rows["benchmark"] == ALL_BENCHMARKS)
        & (rows["occurrences"] == ANY)
        & (rows["checkpoint"] == CONTAMINATED)
    ]
    by_metric = {m: rows[rows["metric"] == m].set_index("method") for m in (AUROC.name, TPR)}
    table = by_metric[AUROC.name][["value", "ci_low", "ci_high"]].join(
        by_metric[TPR][["value", "ci_low", "ci_high"]], rsuffix="_tpr"
    )
    corrected = holm_correction(differences["p_value"].to_numpy(np.float64))
    table = table.join(
        differences[["difference", "ci_low", "ci_high"]].assign(p=corrected), rsuffix="_difference"
    )
    return table.drop(index="blind", errors="ignore").sort_values("value", ascending=False)


def render(table: pd.DataFrame) -> str:
    """Returns the table as Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    for row in table.itertuples():
        name = str(row.Index)
        name = f"{name.removesuffix(UPPER_BOUND)} †" if name.endswith(UPPER_BOUND) else name
        cells = [
            name,
            f"{row.value:.3f} [{row.ci_low:.3f}, {row.ci_high:.3f}]",
            "too few texts"
            if np.isnan(row.value_tpr)
            else f"{row.value_tpr:.2f} [{row.ci_low_tpr:.2f}, {row.ci_high_tpr:.2f}]",
        ]
        if np.isnan(row.difference):
            cells += ["–", "–"]
        else:
            interval = f"[{row.ci_low_difference:+.3f}, {row.ci_high_difference:+.3f}]"
            cells += [f"{row.difference:+.3f} {interval}", f"{row.p:.3f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_tool(main))

"""README's quickstart table: rendered from a stored file, and compared with a new run in CI.

    python -m perf.readme [runs=DIR]
    python -m perf.readme check [runs=DIR]

The first takes the newest report in `runs`, which must be the quickstart's. It stores the rows of
its main table in docs/results/quickstart.csv, renders README's table from that file as the report
does, and copies the chart. The second exits with 1 unless README is what the stored file renders to
and each figure of the newest report is within TOLERANCE of the stored one: other processors round
differently in training.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from contamination.analysis.report_folder import CHARTS, KIND, LATEST, Report, open_report
from contamination.analysis.tables.estimates import occurrences_table
from contamination.core.cli import run_tool
from contamination.core.errors import ArtifactError
from contamination.core.files import write_text_atomically
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import AUROC
from contamination.core.table_files import write_csv

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
STORED = ROOT / "docs" / "results" / "quickstart.csv"
CHART = ROOT / "docs" / "quickstart.png"
BEGIN, END = "<!-- quickstart table: begin -->\n", "<!-- quickstart table: end -->"
TOLERANCE = 0.01
KEY = ("checkpoint", "method", "variant", "occurrences")
FIGURES = ("value", "ci_low", "ci_high")


def newest_report(runs: Path) -> Report:
    """The newest report in a runs folder.

    Raises:
        ArtifactError: there is none, or it is not the quickstart's.
    """
    latest = runs / KIND / LATEST
    remedy = "Run make quickstart first."
    if not latest.is_file():
        raise ArtifactError(f"runs is {str(runs)!r}: there is no report. {remedy}")
    report = open_report(runs / KIND / json.loads(latest.read_text())["folder"])
    experiments = sorted(report.pooled["experiment"].unique())
    if experiments != ["quickstart"]:
        found = ", ".join(experiments)
        raise ArtifactError(f"runs is {str(runs)!r}: its newest report is on {found}. {remedy}")
    return report


def table_rows(report: Report) -> pd.DataFrame:
    """The rows that the report's main table shows, one per estimate."""
    pooled = report.pooled
    rows = pooled[(pooled["metric"] == AUROC.name) & (pooled["benchmark"] == ALL_BENCHMARKS)]
    return rows[[*KEY, "metric", "benchmark", *FIGURES, "needs"]].reset_index(drop=True)


def read_rows(path: Path = STORED) -> pd.DataFrame:
    """The rows as they were stored."""
    rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    return rows.assign(**{name: pd.to_numeric(rows[name]) for name in FIGURES})


def render_table(rows: pd.DataFrame) -> str:
    """What stands between README's markers: the table as the report prints it."""
    table = occurrences_table(rows, AUROC.name)
    return f"{table.title}, with 95% intervals:\n\n{table.markdown()}\n"


def with_table(text: str, rows: pd.DataFrame) -> str:
    """README's text with the rows' table between the markers.

    Raises:
        ArtifactError: a marker is missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ArtifactError(f"{README.name} lacks the line {BEGIN.strip()} or {END}: restore it.")
    return f"{before}{BEGIN}{render_table(rows)}{END}{after}"


def differences(stored: pd.DataFrame, new: pd.DataFrame) -> Iterator[str]:
    """The figures that one table lacks, or that differ by more than TOLERANCE."""
    stored, new = (rows.set_index([*KEY]) for rows in (stored, new))
    for key in sorted({*stored.index} ^ {*new.index}):
        which = "the stored table" if key in new.index else "the new run"
        yield f"{' '.join(key)}: not in {which}"
    for key in sorted({*stored.index} & {*new.index}):
        for name in FIGURES:
            before, now = stored.loc[key, name], new.loc[key, name]
            if not (abs(now - before) <= TOLERANCE or (before != before and now != now)):
                yield f"{' '.join(key)}: {name} is {now:.4f}, stored is {before:.4f}"


def update_readme(report: Report) -> None:
    """Stores the report's rows; rewrite README's table and the chart."""
    write_csv(STORED, table_rows(report))
    write_text_atomically(README, with_table(README.read_text(), read_rows()))
    (chart,) = (report.artifact.path / CHARTS).glob(f"{AUROC.name}_by_occurrences-*.png")
    shutil.copyfile(chart, CHART)


def find_differences(report: Report) -> list[str]:
    """What is not in step, in words."""
    found = list(differences(read_rows(), table_rows(report)))
    if with_table(README.read_text(), read_rows()) != README.read_text():
        found.append(f"{README.name}: its table is not that of {STORED.relative_to(ROOT)}")
    return found


def main() -> int:
    """Updates, or check; the exit status."""
    words = [word for word in sys.argv[1:] if not word.startswith("runs=")]
    given = [word.removeprefix("runs=") for word in sys.argv[1:] if word.startswith("runs=")]
    if words not in ([], ["check"]) or len(given) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    return run_tool(lambda: _run_command(Path(*(given or ["runs"])), checks=bool(words)))


def _run_command(runs: Path, *, checks: bool) -> int:
    report = newest_report(runs)
    if not checks:
        update_readme(report)
        print(f"wrote {README}, {STORED} and {CHART}")
        return 0
    if found := find_differences(report):
        print("\n".join(found), "Run `make readme` and commit what it changes.", sep="\n")
        return 1
    print(f"README's quickstart table is in step: all figures within {TOLERANCE}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

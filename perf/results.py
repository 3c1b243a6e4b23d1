"""Everything that docs/results.md shows, made again: python -m perf.results [NAME …].

    make results [ONLY="frequency law"] [OUT=DIR]

Each experiment is launched as a user would, one after another; the first one that fails ends it.
Finished cells are reused, so the same command goes on where it was stopped. Then each report's
charts (PNG, SVG and PDF) and tables (CSV) are copied to DIR/EXPERIMENT (out=DIR, outputs/results
by default; runs=DIR). Audits that follow a report are under runs/audit. It takes hours on two
cores.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from contamination.analysis.report_folder import CHARTS, KIND, LATEST, TABLES, open_report
from contamination.core.cli import run_tool
from contamination.core.errors import ConfigError, UserError, near_names

EXPERIMENTS = {
    "quickstart": [],
    "frequency": ["-m"],
    "learning_rate": ["-m"],
    "in_distribution": ["-m"],
    "corpus_size": ["-m"],
    "corpus_size_smollm2": ["-m"],
    "two_stage": ["-m"],
    "reference_attack": ["-m"],
    "inflation": ["-m"],
    "decontamination": ["-m"],
    "forgetting": ["-m"],
    "law": ["-m"],
}
"""The options of each experiment's launch."""


def make_results(words: list[str]) -> None:
    """Launches the experiments and copies what their reports show.

    Args:
        words: out=DIR, runs=DIR, and names of experiments; none: all.

    Raises:
        ConfigError: there is no such experiment.
        UserError: a launch failed.
    """
    fields = dict(word.split("=", 1) for word in words if "=" in word)
    names = [word for word in words if "=" not in word] or [*EXPERIMENTS]
    for name in names:
        if name not in EXPERIMENTS:
            raise ConfigError(f"{name!r} is no experiment. {near_names(name, EXPERIMENTS)}")
    out, runs = Path(fields.get("out", "outputs/results")), Path(fields.get("runs", "runs"))
    for number, name in enumerate(names, 1):
        print(f"{number} of {len(names)}: experiment={name}", flush=True)
        command = ["-m", "contamination.launch", *EXPERIMENTS[name], f"experiment={name}"]
        status = subprocess.run([sys.executable, *command, f"runs={runs}"], check=False).returncode
        if status:
            raise UserError(
                f"experiment={name} ended with status {status}; see its last lines above. The same "
                "command goes on where it stopped."
            )
        copy_report(runs, out / name)


def copy_report(runs: Path, folder: Path) -> None:
    """Copies the charts and the tables of the newest report in a runs folder."""
    latest = json.loads((runs / KIND / LATEST).read_text())["folder"]
    report = open_report(runs / KIND / latest)
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for kind in (CHARTS, TABLES):
        for file in sorted((report.artifact.path / kind).iterdir()):
            if file.suffix in (".png", ".svg", ".pdf", ".csv"):
                shutil.copy2(file, folder)
    print(f"{folder}: {len([*folder.iterdir()])} files of {latest}", flush=True)


if __name__ == "__main__":
    sys.exit(run_tool(lambda: make_results(sys.argv[1:])))

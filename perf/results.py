"""The launches of docs/results.md, made again: python -m perf.results [NAME …].

    make results [ONLY="frequency law"] [OUT=DIR]

Each of `LAUNCHES` is launched as a user would, one after another; the first one that fails ends it.
Finished cells are reused, so the same command goes on where it was stopped. Then each report's
charts (PNG, SVG and PDF) and tables (CSV), and the documents, charts and tables of the audits and
of the law that follow it, are copied to DIR/NAME (out=DIR, outputs/results by default; runs=DIR).
SmolLM2-135M's launch is left out unless smollm2=FILE.gguf names its weights. It takes hours on two
cores.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from contamination.analysis.report_folder import CHARTS, KIND, LATEST, TABLES, open_report
from contamination.core.cli import run_tool
from contamination.core.errors import ConfigError, UserError, near_names
from contamination.core.stored_files import read_json

SMOLLM2 = "FILE.gguf"
LAUNCHES = {
    "quickstart": "experiment=quickstart",
    "frequency": "-m experiment=frequency",
    "frequency_swapped": "-m experiment=frequency injection.swap_members=false,true",
    "learning_rate": "-m experiment=learning_rate",
    "in_distribution": "-m experiment=in_distribution",
    "corpus_size": "-m experiment=corpus_size",
    "corpus_size_smollm2": f"-m experiment=corpus_size_smollm2 model.path={SMOLLM2}",
    "two_stage": "-m experiment=two_stage",
    "reference_attack": "-m experiment=reference_attack",
    "set_tests": "-m experiment=set_tests",
    "set_tests_published": "-m experiment=set_tests_published",
    "inflation": "-m experiment=inflation injection.members=100 injection.nonmembers=100 "
    "injection.budget_tokens=250_000 audits=[inflation,score]",
    "decontamination": "-m experiment=decontamination",
    "forgetting": "-m experiment=forgetting",
    "law": "-m experiment=law model=tiny_llama",
}
"""The words of each launch, behind `python -m launch`."""
AUDITS = {
    "reference_attack": ["reference_attack"],
    "set_tests": ["set_tests"],
    "set_tests_published": ["set_tests"],
    "inflation": ["inflation", "score"],
    "decontamination": ["decontamination"],
    "forgetting": ["forgetting"],
}
"""The audits that follow a launch's report."""
FITS = {"law": "held_out=[{learning_rate:2e-3}]"}
"""The words of `python -m analysis law` for the cells of a launch."""
FIELDS = ("out", "runs", "smollm2")


def make_results(words: list[str]) -> None:
    """Launches the experiments and copies what their reports and audits show.

    Args:
        words: out=DIR, runs=DIR, smollm2=FILE, and names of launches; none: all.

    Raises:
        ConfigError: there is no such launch or field.
        UserError: a launch failed.
    """
    fields = dict(word.split("=", 1) for word in words if "=" in word)
    for field in fields:
        if field not in FIELDS:
            raise ConfigError(f"{field!r} is no field. {near_names(field, FIELDS)}")
    names = [word for word in words if "=" not in word] or [*LAUNCHES]
    for name in names:
        if name not in LAUNCHES:
            raise ConfigError(f"{name!r} is no launch. {near_names(name, LAUNCHES)}")
    out, runs = Path(fields.get("out", "outputs/results")), Path(fields.get("runs", "runs"))
    for number, name in enumerate(names, 1):
        print(f"{number} of {len(names)}: {name}", flush=True)
        launch = LAUNCHES[name].split()
        if f"model.path={SMOLLM2}" in launch:
            if "smollm2" not in fields:
                print(f"{name}: left out, since smollm2=FILE.gguf is not given.", flush=True)
                continue
            launch = [word.replace(SMOLLM2, fields["smollm2"]) for word in launch]
        _run(name, ["contamination.launch", *launch, f"name={name}", f"runs={runs}"])
        if name in FITS:
            words = [f"reports=[{_latest_report(runs)}]", FITS[name], f"name={name}"]
            _run(name, ["contamination.analysis", "law", *words, f"runs={runs}"])
        copy_results(runs, out / name, AUDITS.get(name, []), has_law=name in FITS)


def _run(name: str, words: list[str]) -> None:
    status = subprocess.run([sys.executable, "-m", *words], check=False).returncode
    if status:
        raise UserError(
            f"{name} ended with status {status}; see its last lines above. The same command "
            "goes on where it stopped."
        )


def _latest_report(runs: Path) -> Path:
    return open_report(runs / KIND / read_json(runs / KIND / LATEST)["folder"]).artifact.path


def copy_results(runs: Path, folder: Path, audits: list[str], *, has_law: bool = False) -> None:
    """Copies charts and tables of the newest report, and the newest audit of each kind, and law."""
    report = _latest_report(runs)
    sources = [(report / kind, folder) for kind in (CHARTS, TABLES)]
    folders = [(audit, f"audit/{audit}-*") for audit in audits] + [("law", "law/*")] * has_law
    for audit, pattern in folders:
        made = [path.parent for path in runs.glob(f"{pattern}/manifest.json")]
        newest = max(made, key=lambda path: path.stat().st_mtime)
        sources += [(newest, folder / audit), (newest / CHARTS, folder / audit / CHARTS)]
    if folder.exists():
        shutil.rmtree(folder)
    for source, target in sources:
        for file in sorted(source.iterdir()) if source.is_dir() else ():
            if file.suffix in (".png", ".svg", ".pdf", ".csv", ".md", ".html"):
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, target)
    print(f"{folder}: {len([*folder.rglob('*.*')])} files of {report.name}", flush=True)


if __name__ == "__main__":
    sys.exit(run_tool(lambda: make_results(sys.argv[1:])))

"""Runs stages once on much more than they usually get: their time, memory and disk.

    python -m perf.load injection [GIGABYTES]    default: 5
    python -m perf.load analysis [CELLS]         default: 2000
    python -m perf.load launches [CELLS]         default: 6

perf.memory has detection and sweeps. Linux only; each command runs in a process of its own, and
memory is the largest resident size of it or of a process that it started. 1 GB is 10^9 bytes.

- injection: JSON Lines of the embedded corpus again and again, each document under another number.
  A tokenizer of 32,000 entries is trained, the corpus is tokenised by two processes and searched
  for the pool, and copies of 100 members of each of two benchmarks are inserted.
- analysis: a report on cells in 20 learning rates. One cell is launched; the others are its
  artefacts as those of other seeds and learning rates, with noise added to the scores, so that no
  two cells have the same.
- launches: a sweep by one launch, and the same by two that start together in one runs folder: the
  artefacts are the same, and each is made once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contamination.core.artifacts import (
    CONFIG,
    Artifact,
    WrittenFiles,
    build_or_open,
    open_artifact,
    run_folder,
)
from contamination.core.integrity import MANIFEST
from perf.memory import CELL, ROOT

GB = 1e9
TEXT_FILES = 8
LEARNING_RATES = [1e-3 * 1.2**i for i in range(20)]
INJECTION = [
    "corpus=local_jsonl", "benchmark=[boolq,truthfulqa]", "tokenizer.vocab_size=32000",
    "injection.sequence_tokens=2048", "injection.num_proc=2", "injection.base_fraction=0.05",
]  # fmt: skip
CHARACTERS_PER_TOKEN = 5.5
"""More than that tokenizer reaches here, as a part of the documents is kept for other corpora."""


@dataclass(frozen=True)
class ResourceUse:
    """What a command took, with the processes that it started and waited for."""

    seconds: float
    cpu_seconds: float
    mib: float

    def __str__(self) -> str:
        return f"{self.seconds:,.0f} s, {self.cpu_seconds:,.0f} s of CPU, {self.mib:,.0f} MiB"


def run_command(*words: str) -> ResourceUse:
    """Runs Python with these arguments in the repository's folder.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    began = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return ResourceUse(time.perf_counter() - began, cpu_seconds, usage.ru_maxrss / 2**10)


def folder_gigabytes(folder: Path) -> float:
    """Returns the size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / GB


# Injection


def write_documents(folder: Path, gigabytes: float) -> int:
    """Writes JSON Lines of the embedded corpus until they are so large; returns their characters.

    No two documents are equal: each begins with its number.
    """
    from contamination.data.readers.embedded import EmbeddedCorpus

    texts = [document.text for document in EmbeddedCorpus().documents()]
    characters = number = 0
    for file in range(TEXT_FILES):
        limit, written = gigabytes * GB / TEXT_FILES, 0
        with (folder / f"part-{file}.jsonl").open("w") as out:
            while written < limit:
                text = f"{number} {texts[number % len(texts)]}"
                written += out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                characters, number = characters + len(text), number + 1
    return characters


def measure_injection(gigabytes: float) -> None:
    """Prints the cost of a corpus that reads so much text, and of its verification."""
    with tempfile.TemporaryDirectory() as place:
        texts, runs = Path(place) / "texts", Path(place) / "runs"
        texts.mkdir()
        characters = write_documents(texts, gigabytes)
        budget = int(characters / CHARACTERS_PER_TOKEN)
        words = [*INJECTION, f"corpus.paths={texts}", f"injection.budget_tokens={budget}"]
        cost = run_command("-m", "injection", *words, f"runs={runs}")
        (folder,) = (runs / "corpus").iterdir()
        copies, size = open_artifact(folder, "corpus").counts["copies"], folder_gigabytes(folder)
        print(
            f"injection of {folder_gigabytes(texts):.2f} GB: {cost}; {budget:,} tokens, "
            f"{copies:,} copies, {size:.1f} GB on disk"
        )
        print(f"its verification: {run_command('-m', 'injection', 'verify', str(folder))}")


# Analysis


def make_cells(cells: int, runs: Path) -> list[dict[str, str]]:
    """Launches one cell and makes the others of it; returns the paths of each."""
    run_command("-m", "launch", *CELL, f"runs={runs}")
    (report,) = (path.parent for path in (runs / "report").glob(f"*/{MANIFEST}"))
    (paths,) = open_artifact(report, "report").config()["cells"]
    kinds = {"corpus": "corpus", "model": "model", "clean": "scores", "contaminated": "scores"}
    first = {name: open_artifact(paths[name], kind) for name, kind in kinds.items()}
    return [_copied_cell(first, number, runs) for number in range(cells)]


def _copied_cell(first: Mapping[str, Artifact], number: int, runs: Path) -> dict[str, str]:
    """Returns the paths of another cell: cells of one seed share their corpus and clean scores."""
    seed, rate = divmod(number, len(LEARNING_RATES))
    config = first["model"].config()
    config["training"]["learning_rate"] = LEARNING_RATES[rate]
    corpus = copy_artifact(first["corpus"], runs, {**first["corpus"].config(), "seed": seed}, {})
    model = copy_artifact(first["model"], runs, config, {"corpus": corpus.digest})
    scored = {"examples": corpus.digest}
    clean = copy_artifact(first["clean"], runs, first["clean"].config(), scored, noise=seed)
    scored |= {"target": model.digest}
    contaminated = copy_artifact(
        first["contaminated"], runs, first["contaminated"].config(), scored, noise=10_000 + number
    )
    cell = {"corpus": corpus, "model": model, "clean": clean, "contaminated": contaminated}
    return {name: str(artifact.path) for name, artifact in cell.items()}


def copy_artifact(
    artifact: Artifact,
    runs: Path,
    config: dict[str, Any],
    inputs: Mapping[str, str],
    noise: int | None = None,
) -> Artifact:
    """Returns an artefact with the same files but for its config, its inputs and the scores."""
    from contamination.detection.scores import FILE, to_arrow, write_score_tables

    inputs = {**artifact.inputs, **inputs}
    folder = run_folder(runs, artifact.kind, "copied", config, inputs)

    def write(place: Path) -> WrittenFiles:
        content, records = [*artifact.files], [*artifact.records.keys() - {CONFIG}]
        for name in (*content, *records):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            if noise is None or name != FILE:
                os.link(artifact.path / name, place / name)
                continue
            table = artifact.table(name)
            rng = np.random.default_rng(noise)
            table["score"] += rng.normal(size=len(table)) * table["score"].std()
            write_score_tables(place / name, [to_arrow(table)])
        return WrittenFiles(content, artifact.counts, records)

    return build_or_open(folder, config, inputs, write, log_nearest=False)


def report_on(cells: Path, runs: Path) -> None:
    """Writes the report on the cells whose paths a JSON file lists."""
    from contamination.analysis.config import AnalysisStage, CellPaths
    from contamination.analysis.run import run

    paths = [CellPaths(**cell) for cell in json.loads(cells.read_text())]
    run(AnalysisStage("load", 0, str(runs), paths))


def measure_analysis(cells: int) -> None:
    """Prints the cost of a report on so many cells."""
    with tempfile.TemporaryDirectory() as place:
        runs, listing = Path(place) / "runs", Path(place) / "cells.json"
        listing.write_text(json.dumps(make_cells(cells, runs)))
        code = "import sys; from pathlib import Path; from perf.load import report_on;"
        code += "report_on(*map(Path, sys.argv[1:]))"
        cost = run_command("-c", code, str(listing), f"{place}/reported")
        size = folder_gigabytes(Path(place) / "reported")
        print(f"analysis of {cells:,} cells: {cost}, {1e3 * size:,.0f} MB on disk")


# Launches


def measure_launches(cells: int) -> None:
    """Prints the cost of one launch, and of two of the same cells at once.

    Raises:
        RuntimeError: the two made other artefacts than the one.
    """
    words = ["-m", "launch", "-m", *CELL, f"seed={','.join(map(str, range(cells)))}"]
    with tempfile.TemporaryDirectory() as place:
        runs = Path(place) / "alone"
        alone = run_command(*words, f"runs={runs}")
        print(f"one launch of {cells} cells: {alone}")
        both = Path(place) / "both"
        with ThreadPoolExecutor(2) as pool:
            costs = list(pool.map(lambda _: run_command(*words, f"runs={both}"), range(2)))
        print(*(f"one of two at once: {cost}" for cost in costs), sep="\n")
        cpu_ratio = sum(cost.cpu_seconds for cost in costs) / alone.cpu_seconds
        if _checksums(runs) != _checksums(both):
            raise RuntimeError("two launches at once made other artefacts than one")
        print(f"the same {len(_checksums(both))} artefacts with {cpu_ratio:.2f} times the CPU time")


def _checksums(runs: Path) -> dict[str, Any]:
    """Each artefact's folder → the SHA-256 of its files."""
    return {
        str(path.parent.relative_to(runs)): json.loads(path.read_text())["files"]
        for path in runs.glob(f"*/*/{MANIFEST}")
    }


def main() -> None:
    """Runs the measurement that the command line names."""
    what, *size = sys.argv[1:] or ["all"]
    if what not in ("all", "injection", "analysis", "launches") or len(size) > 1:
        sys.exit("Give injection, analysis or launches, and a size, or nothing for all.")
    if what in ("all", "injection"):
        measure_injection(float(*size or ["5"]))
    if what in ("all", "analysis"):
        measure_analysis(int(*size or ["2000"]))
    if what in ("all", "launches"):
        measure_launches(int(*size or ["6"]))


if __name__ == "__main__":
    main()

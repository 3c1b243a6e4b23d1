"""Measures how the memory of a sweep grows with its cells, and that of a detection with its texts.

    python -m perf.memory [sweep CELLS | detection TEXTS …]

Default: a sweep of 50 cells; 20,000 and 200,000 texts. Linux only; each runs in its own process.

- sweep: `python -m launch -m seed=0,1,…` in one process. Each cell makes a tiny corpus, trains a
  tiny model on it and scores it. The resident size is measured after each cell.
- detection: `python -m detection` on short texts without labels, with the golden model and METHODS,
  which are all methods that need no other input, except those that are too slow for so many texts
  (infilling, neighbor, pac). The peak of the whole command is compared with the resident size once
  the model is loaded, and with that of a detection of 10 texts, whose texts take next to nothing.
  With labels the command ends with metrics and the blind baseline, whose draws are matrices of all
  texts: 2,000 such texts have a line of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "tests" / "golden" / "target"
METHODS = "loss,zlib,lowercase,min_k,min_k_plus_plus,max_k,surp"
CELL = [
    "name=memory", "benchmark=[boolq,truthfulqa]", "corpus.subsets=[common_crawl,book]",
    "model.pretraining.budget_tokens=30_000", "model.pretraining.vocab_size=512",
    "model.pretraining.tokenizer_characters=200_000", "model.pretraining.sequence_tokens=128",
    "model.pretraining.warmup_steps=2", "injection.members=16", "injection.nonmembers=16",
    "injection.budget_tokens=20_000", "injection.sequence_tokens=128",
    "injection.example_max_tokens=100", "training.learning_rate=4e-3", "training.warmup_steps=2",
    "occurrences.rungs=[2]", "analysis.draws=100", "wandb.mode=disabled",
]  # fmt: skip


def resident_mib(field: str = "VmRSS") -> float:
    """Returns a field of this process's status in MiB; VmHWM is the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 2**10


def sweep(cells: int) -> list[float]:
    """Runs a sweep in this process; returns the MiB after each cell and after the report."""
    from contamination.launch import pipeline
    from contamination.launch.__main__ import main

    sizes: list[float] = []
    run_cell = pipeline.run_cell

    def measured_run_cell(*args: Any, **kwargs: Any) -> Any:
        try:
            return run_cell(*args, **kwargs)
        finally:
            sizes.append(resident_mib())

    pipeline.run_cell = measured_run_cell
    seeds = ",".join(map(str, range(cells)))
    with tempfile.TemporaryDirectory() as runs:
        sys.argv = ["launch", "-m", *CELL, f"runs={runs}", f"seed={seeds}"]
        status = main()
    if status or len(sizes) != cells:
        raise RuntimeError(f"status {status}, {len(sizes)} of {cells} cells ended")
    return [*sizes, resident_mib()]


def detection(texts: int, labels: bool = False) -> list[float]:
    """Runs a detection in this process; returns MiB with the model, at the peak, and seconds."""
    from contamination.core.cli import run_hydra_command
    from contamination.detection import __main__ as stage
    from contamination.detection.models.hf_model import HFModel

    sizes: list[float] = []
    load = HFModel.load

    def measured_load(*args: Any) -> Any:
        model = load(*args)
        sizes.append(resident_mib())
        return model

    setattr(HFModel, "load", measured_load)  # noqa: B010
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.jsonl"
        write_texts(file, texts, labels)
        paths = [f"runs={folder}/runs", f"examples.path={file}", f"model.path={MODEL}"]
        sys.argv = ["detection", *paths, f"method=[{METHODS}]", "detection.device=cpu"]
        started = time.perf_counter()
        status = run_hydra_command("detection", stage.main)
    if status:
        raise RuntimeError(f"status {status}")
    return [sizes[0], resident_mib("VmHWM"), time.perf_counter() - started]


def write_texts(path: Path, texts: int, labels: bool) -> None:
    """Writes short distinct texts of about 10 words."""
    sentence = "a cat sees the old red house by a road and then it runs home to sleep"
    words = sentence.split()
    with path.open("w") as file:
        for i in range(texts):
            text = " ".join(words[(i * 7 + k * k + i // 17) % 16] for k in range(8))
            row = {"id": str(i), "text": f"{text} {i}.", **({"label": i % 2} if labels else {})}
            file.write(json.dumps(row) + "\n")


def child(call: str) -> list[float]:
    """Evaluates a call of this module in a new process, and returns its result."""
    code = f"import json; from perf.memory import *; print(json.dumps({call}))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    measurements: list[float] = json.loads(run.stdout.splitlines()[-1])
    return measurements


def print_sweep(cells: int) -> None:
    """Prints the resident size after the first and the last cell, and with the report."""
    *sizes, end = child(f"sweep({cells})")
    print(f"sweep of {cells} cells: {sizes[0]:,.0f} MiB after the first, {sizes[-1]:,.0f} after "
          f"the last ({sizes[-1] - sizes[0]:+,.0f}); {end:,.0f} with the report")  # fmt: skip


def print_detection(sizes: list[int]) -> None:
    """Prints the peaks above the resident size with the model."""
    loaded, *_ = child("detection(10)")
    for texts, labels in [*((n, False) for n in sizes), (2_000, True)]:
        base, peak, seconds = child(f"detection({texts}, {labels})")
        print(
            f"detection of {texts:,} texts{' with labels' * labels}: {peak - base:,.0f} MiB above "
            f"the model, {peak - loaded:,.0f} with the texts themselves; {seconds:,.0f} s"
        )


def main() -> None:
    """Runs the measurements that the command line names."""
    what, *sizes = sys.argv[1:] or [""]
    if what in ("", "sweep"):
        print_sweep(*(int(size) for size in sizes or ["50"]))
    if what in ("", "detection"):
        print_detection([int(size) for size in sizes] or [20_000, 200_000])


if __name__ == "__main__":
    main()

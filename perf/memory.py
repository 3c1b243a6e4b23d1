"""How much memory a sweep takes for each cell more, and a detection for each text more.

    python -m perf.memory [sweep CELLS | detection TEXTS …]

Default: a sweep of 50 cells; 20,000 and 200,000 texts. Linux; each in a process of its own.

- sweep: `python -m launch -m seed=0,1,…`, in one process: each cell makes a tiny corpus, trains a
  tiny model on it and scores it. The resident size after each cell.
- detection: `python -m detection` over short texts without labels, by the golden model and METHODS:
  all that need nothing else, but for those whose time alone forbids so many texts (infilling,
  neighbor, pac). The peak of the whole command, above the resident size once the model is loaded,
  and above that of a detection of 10 texts (which has no texts in it). With labels the command ends
  with metrics and the blind baseline, whose draws are matrices of all texts: the peak of 2,000
  texts has a line of its own.
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


def resident(field: str = "VmRSS") -> float:
    """A line of this process's status, in MiB; VmHWM is the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 2**10


def sweep(cells: int) -> list[float]:
    """MiB after each cell of a sweep, and after its report. Takes this process over."""
    from contamination.launch import pipeline
    from contamination.launch.__main__ import main

    sizes: list[float] = []
    run_cell = pipeline.run_cell

    def watched(*given: Any, **named: Any) -> Any:
        try:
            return run_cell(*given, **named)
        finally:
            sizes.append(resident())

    pipeline.run_cell = watched
    seeds = ",".join(map(str, range(cells)))
    with tempfile.TemporaryDirectory() as runs:
        sys.argv = ["launch", "-m", *CELL, f"runs={runs}", f"seed={seeds}"]
        status = main()
    if status or len(sizes) != cells:
        raise RuntimeError(f"status {status}, {len(sizes)} of {cells} cells ended")
    return [*sizes, resident()]


def detection(texts: int, labels: bool = False) -> list[float]:
    """MiB once the model is loaded, and at the peak; seconds. Takes this process over."""
    from contamination.core.cli import command
    from contamination.detection import __main__ as stage
    from contamination.detection.models.hf_model import HFModel

    sizes: list[float] = []
    load = HFModel.load

    def watched(*given: Any) -> Any:
        model = load(*given)
        sizes.append(resident())
        return model

    setattr(HFModel, "load", watched)  # noqa: B010
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.jsonl"
        write_texts(file, texts, labels)
        given = [f"runs={folder}/runs", f"examples.path={file}", f"model.path={MODEL}"]
        sys.argv = ["detection", *given, f"method=[{METHODS}]", "detection.device=cpu"]
        started = time.perf_counter()
        status = command("detection", stage.main)
    if status:
        raise RuntimeError(f"status {status}")
    return [sizes[0], resident("VmHWM"), time.perf_counter() - started]


def write_texts(path: Path, texts: int, labels: bool) -> None:
    """Short distinct texts of some 10 words."""
    words = "a cat sees the old red house by a road and then it runs home to sleep"
    drawn = words.split()
    with path.open("w") as file:
        for i in range(texts):
            text = " ".join(drawn[(i * 7 + k * k + i // 17) % 16] for k in range(8))
            row = {"id": str(i), "text": f"{text} {i}.", **({"label": i % 2} if labels else {})}
            file.write(json.dumps(row) + "\n")


def child(call: str) -> list[float]:
    """What a call of this module gives, in a process of its own."""
    code = f"import json; from perf.memory import *; found = {call}; print(json.dumps(found))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    found: list[float] = json.loads(run.stdout.splitlines()[-1])
    return found


def print_sweep(cells: int) -> None:
    """The resident size after some cells, and what each adds once all is warm."""
    *sizes, end = child(f"sweep({cells})")
    print(f"sweep of {cells} cells: {sizes[0]:,.0f} MiB after the first, {sizes[-1]:,.0f} after "
          f"the last ({sizes[-1] - sizes[0]:+,.0f}); {end:,.0f} with the report")  # fmt: skip


def print_detection(sizes: list[int]) -> None:
    """The peaks above the model."""
    loaded, *_ = child("detection(10)")
    for texts, labels in [*((n, False) for n in sizes), (2_000, True)]:
        own, peak, seconds = child(f"detection({texts}, {labels})")
        print(
            f"detection of {texts:,} texts{' with labels' * labels}: {peak - own:,.0f} MiB above "
            f"the model, {peak - loaded:,.0f} with the texts themselves; {seconds:,.0f} s"
        )


def main() -> None:
    """What the command line asks for."""
    what, *sizes = sys.argv[1:] or [""]
    if what in ("", "sweep"):
        print_sweep(*(int(size) for size in sizes or ["50"]))
    if what in ("", "detection"):
        print_detection([int(size) for size in sizes] or [20_000, 200_000])


if __name__ == "__main__":
    main()

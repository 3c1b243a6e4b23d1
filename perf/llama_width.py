"""A cell of LLaMA-7B's width, killed and resumed, beside plain transformers.

    python -m perf.llama_width [runs=DIR] [field=value …]

`experiment=llama_7b_width` runs from nothing; further fields are added to its command. The peaks
are the largest resident sizes of its process, to be compared with the plan of `python -m training
memory`. Then the contaminated training runs again with checkpoints, is killed (SIGKILL) once it has
saved the third of its five steps, and is resumed: its weights must be equal to the last byte. Last,
each text's mean log-probability is computed by transformers alone, one text after another. It takes
19 GB of memory and 50 GB of disk. Linux only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

from contamination.core.artifacts import is_complete
from contamination.core.cli import run_tool
from contamination.core.errors import UserError
from contamination.core.hashing import file_digest
from perf.memory import ROOT

COMMAND = [sys.executable, "-m", "contamination.launch", "experiment=llama_7b_width"]
KILLED_AFTER = "step-00000003"
POLL_SECONDS = 0.25


def measure(runs: Path, words: list[str]) -> pd.DataFrame:
    """Runs the cell whole, and killed and resumed; returns one row per measurement."""
    whole, killed = runs / "whole", runs / "killed"
    started = time.perf_counter()
    peaks = peak_by_stage([*COMMAND, f"runs={whole}", *words], whole)
    seconds = time.perf_counter() - started
    copy_inputs(whole, killed)
    kill([*COMMAND, f"runs={killed}", "training.checkpoint_every_steps=1", *words], killed)
    subprocess.run([*COMMAND, f"runs={killed}", "method=[loss]", *words], check=True)
    weights = [
        file_digest(only(r, "model/*-study-*/hf/model.safetensors")) for r in (whole, killed)
    ]
    rows = [
        ("from nothing, seconds", f"{seconds:,.0f}"),
        *((f"peak of {stage}, GB", f"{peak / 1e9:.2f}") for stage, peak in peaks.items()),
        ("weights, killed and resumed", "equal" if len({*weights}) == 1 else "DIFFERENT"),
        (
            "largest difference from transformers, nats per token",
            f"{largest_difference(whole):.1e}",
        ),
    ]
    return pd.DataFrame(rows, columns=["", "measured"])


def peak_by_stage(command: list[str], runs: Path) -> dict[str, int]:
    """Runs a command; returns the largest resident bytes until each stage had ended."""
    peaks = {"the base training": 0, "the contaminated training": 0, "the detections": 0}
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            done = sum(is_complete(folder) for folder in runs.glob("model/*"))
            stage = [*peaks][min(done, 2)]
            peaks[stage] = max(peaks[stage], resident_bytes(process.pid))
            time.sleep(POLL_SECONDS)
    if process.returncode:
        raise UserError(f"The command ended with status {process.returncode}; see above.")
    return peaks


def resident_bytes(process: int) -> int:
    """Returns the resident size of a process; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(s.split()[1]) * 1024 for s in lines if s.startswith("VmRSS")), 0)


def copy_inputs(whole: Path, killed: Path) -> None:
    """Links the corpora and the base model of one runs folder into another."""
    for folder in [*whole.glob("corpus/*"), *whole.glob("model/*-base-*")]:
        target = killed / folder.relative_to(whole)
        if not target.exists():
            shutil.copytree(folder, target, copy_function=os.link)


def kill(command: list[str], runs: Path) -> None:
    """Starts a launch and kills it once the contaminated training has saved its third step."""
    with subprocess.Popen(command) as process:
        while not [*runs.glob(f"model/*-study-*/checkpoints/{KILLED_AFTER}")]:
            if process.poll() is not None:
                raise UserError(
                    f"The command ended with status {process.returncode} before a kill."
                )
            time.sleep(POLL_SECONDS)
        process.kill()


def largest_difference(runs: Path) -> float:
    """Returns the largest difference of a score of `loss` from transformers' own."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    scores = pd.read_parquet(only(runs, "scores/*-study-*/scores.parquet"))
    stored = scores[scores["method"] == "loss"].set_index("example_id")["score"]
    texts = pd.read_parquet(only(runs, "corpus/*-study-*/examples.parquet"))
    folder = only(runs, "model/*-study-*/hf")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    differences: list[float] = []
    for text in texts.itertuples():
        ids = torch.tensor([tokenizer(text.text)["input_ids"]])
        with torch.inference_mode():
            log_probs = model(ids).logits[0, :-1].log_softmax(-1)
        mean = log_probs.gather(-1, ids[0, 1:, None]).double().mean().item()
        differences.append(abs(mean - stored[text.example_id]))
    return max(differences)


def only(runs: Path, pattern: str) -> Path:
    """Returns the one path of a pattern."""
    (path,) = runs.glob(pattern)
    return path


def main() -> None:
    """Measures, and prints the table."""
    words = sys.argv[1:]
    given = [word.removeprefix("runs=") for word in words if word.startswith("runs=")]
    runs = Path(given[-1] if given else ROOT / "outputs" / "llama_width")
    table = measure(runs, [word for word in words if not word.startswith("runs=")])
    print(table.to_string(index=False, header=False))


if __name__ == "__main__":
    sys.exit(run_tool(main))

"""A cell of LLaMA-7B's width, killed and resumed, beside plain transformers.

    python -m perf.llama_width [runs=DIR] [field=value …]

`experiment=llama_7b_width` runs from nothing; further fields are added to its command. The peaks
are the largest resident sizes of its one process, to be compared with the plan of `python -m
training memory`. Then the contaminated training runs again with checkpoints, is killed (SIGKILL)
while it saves the third of its five steps, and is resumed: its weights must be equal to the last
byte. Last, each text's score by `loss` under the contaminated model is computed by transformers
alone, one text after another. It takes 19 GB of memory and 50 GB of disk, and a processor with
instructions for bfloat16; docs/llama-7b.md has the fields for one without them. Linux only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

from contamination.core.artifacts import is_complete
from contamination.core.cli import run_tool
from contamination.core.errors import ConfigError, UserError
from contamination.core.hashing import file_digest
from perf.memory import ROOT

COMMAND = [sys.executable, "-m", "contamination.launch", "experiment=llama_7b_width"]
KILLED_AFTER = "step-00000003"
POLL_SECONDS = 0.25


def measure(runs: Path, words: list[str]) -> pd.DataFrame:
    """Runs the cell whole, and killed and resumed; returns one row per measurement."""
    whole, killed = runs / "whole", runs / "killed"
    if runs.exists() and any(runs.iterdir()):
        raise ConfigError(f"runs={runs} is not empty: what is there would not be run again.")
    started = time.perf_counter()
    peaks = peak_by_stage([*COMMAND, f"runs={whole}", *words], whole)
    seconds = time.perf_counter() - started
    copy_inputs(whole, killed)
    kill([*COMMAND, f"runs={killed}", "training.checkpoint_every_steps=1", *words], killed)
    step = resume([*COMMAND, f"runs={killed}", "method=[loss]", *words])
    files = [only(folder, "model/*-study-*/hf/model.safetensors") for folder in (whole, killed)]
    equal = file_digest(files[0]) == file_digest(files[1])
    rows = [
        ("from nothing, seconds", f"{seconds:,.0f}"),
        *((f"peak of {stage}, GB", f"{peak / 1e9:.2f}") for stage, peak in peaks.items()),
        (f"weights, resumed after step {step}", "equal" if equal else "DIFFERENT"),
        ("largest difference of a score, nats per token", f"{largest_difference(whole):.1e}"),
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
    """Starts a launch and kills it while the contaminated training saves its third step."""
    with subprocess.Popen(command) as process:
        while not [*runs.glob(f"model/*-study-*/checkpoints/{KILLED_AFTER}")]:
            if process.poll() is not None:
                raise UserError(f"status {process.returncode} before the third step was saved.")
            time.sleep(POLL_SECONDS)
        process.kill()


def resume(command: list[str]) -> int:
    """Runs a launch again; returns the step after which its contaminated training goes on."""
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    said = run.stdout + run.stderr
    print(said, flush=True)
    found = re.search(r"resuming after step (\d+)", said)
    if run.returncode or found is None:
        raise UserError(f"status {run.returncode}, and no step to go on from; see above.")
    return int(found[1])


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
    paths = [*runs.glob(pattern)]
    if len(paths) != 1:
        raise UserError(f"{runs}/{pattern}: {len(paths)} paths, not one.")
    return paths[0]


def main() -> None:
    """Measures, and prints the table."""
    words = sys.argv[1:]
    given = [word.removeprefix("runs=") for word in words if word.startswith("runs=")]
    runs = Path(given[-1] if given else ROOT / "outputs" / "llama_width")
    table = measure(runs, [word for word in words if not word.startswith("runs=")])
    print(table.to_string(index=False, header=False))


if __name__ == "__main__":
    sys.exit(run_tool(main))

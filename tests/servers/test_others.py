"""llama.cpp's server, `transformers serve` and litellm, themselves: `pytest -m served`.

They take the environments of tests/servers/make.sh.
"""

import json
import logging
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contamination.core.models import load_model, load_tokenizer
from contamination.data.config import ExamplesConfig
from contamination.detection.config import DetectionConfig, DetectionStage, ScoredModelConfig
from contamination.detection.models.base import Prompt
from contamination.detection.requirements import open_models
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from tests.detection.golden import GOLDEN, examples
from tests.detection.model.served.conftest import NODES
from tests.rounding import FORWARD
from tests.servers.others import (
    LITELLM,
    LLAMACPP,
    SMOLLM2,
    TRANSFORMERS,
    litellm,
    llamacpp,
    transformers_serve,
)

pytestmark = pytest.mark.served
FOLDER = str(GOLDEN / "target")


def takes(*programs):
    missing = [str(path) for path in programs if not path.is_file()]
    return pytest.mark.skipif(bool(missing), reason=f"{missing} are not there: see make.sh")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """The address of llama.cpp's server with the golden model in float32."""
    place = tmp_path_factory.mktemp("llama")
    script = Path(__file__).with_name("to_gguf.py")
    subprocess.run([LLAMACPP, script, FOLDER, place / "golden.gguf"], check=True)
    with llamacpp(place / "golden.gguf", place / "log") as url:
        yield url


@pytest.fixture
def stage(tmp_path):
    """`stage(model)` scores the beginnings of a few texts."""
    rows = [{"text": " ".join(one["text"].split()[:12])} for one in examples()[:4]]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(model, methods=("loss", "min_k", "zlib")):
        return DetectionStage(
            runs=str(tmp_path / "runs"),
            examples=ExamplesConfig(str(tmp_path / "texts.jsonl")),
            model=model,
            method={name: NODES[name] for name in methods},
            detection=DetectionConfig(device="cpu"),
        )

    return make


def scores(stage):
    return open_scores(run(stage).path).table["score"].to_numpy()


@takes(LLAMACPP)
def test_llama_cpp_scores_as_the_model_in_its_files(llama, stage):
    served = scores(stage(ScoredModelConfig(url=llama, tokenizer=FOLDER, requests=2)))
    local = scores(stage(ScoredModelConfig(FOLDER)))
    np.testing.assert_allclose(served, local, rtol=1e-5, atol=FORWARD)


@takes(LLAMACPP)
def test_llama_cpp_in_four_bits_is_near_the_same_weights_in_float32(stage, tmp_path):
    """It multiplies in 8 bits what transformers expands."""
    pytest.importorskip("gguf", reason="needs the extra [gguf]")
    folder = str(tmp_path / "hf")
    load_model("model.path", str(SMOLLM2)).save_pretrained(folder)
    load_tokenizer("model.path", str(SMOLLM2)).save_pretrained(folder)
    with llamacpp(SMOLLM2, tmp_path / "log") as url:
        served = scores(stage(ScoredModelConfig(url=url, tokenizer=folder, requests=2), ("loss",)))
    local = scores(stage(ScoredModelConfig(folder), ("loss",)))
    np.testing.assert_allclose(served, local, atol=0.1)


@takes(LLAMACPP, LITELLM)
def test_a_proxy_shows_what_is_behind_it(llama, stage, tmp_path):
    behind = {"model": "text-completion-openai/served", "api_base": llama}
    with litellm({"named": behind}, tmp_path / "log") as url:
        served = scores(stage(ScoredModelConfig(url=url, tokenizer=FOLDER, requests=2)))
    local = scores(stage(ScoredModelConfig(FOLDER)))
    np.testing.assert_allclose(served, local, rtol=1e-5, atol=FORWARD)


@takes(TRANSFORMERS)
def test_transformers_serve_lists_nothing_and_writes(stage, tmp_path, caplog):
    with transformers_serve(tmp_path / "log") as url, caplog.at_level(logging.WARNING):
        node = ScoredModelConfig(url=url, name=FOLDER, tokenizer=FOLDER, requests=2)
        served = open_models(stage(node), ())["target"]
        assert served.probe.strategy == "sampling only"
        prompts = [Prompt(load_tokenizer("m", FOLDER)("The boat was")["input_ids"], 8)]
        local = open_models(replace(stage(node), model=ScoredModelConfig(FOLDER)), ())["target"]
        settings = DetectionConfig(device="cpu")
        assert served.load(settings).generate(prompts, 0) == local.load(settings).generate(
            prompts, 0
        )
    assert "does not list the model" in caplog.text

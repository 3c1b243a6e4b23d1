"""A model behind the real vLLM against the same model in its files: `pytest -m served`.

It takes the environment of tests/servers/make.sh. With SMOLLM2_GGUF, a GGUF file of SmolLM2-135M,
that model is served as well as the golden one.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from contamination.core.models import load_model, load_tokenizer
from contamination.data.config import ExamplesConfig
from contamination.detection.config import (
    METHODS_FOLDER,
    DetectionConfig,
    DetectionStage,
    ScoredModelConfig,
)
from contamination.detection.models.base import Prompt
from contamination.detection.requirements import open_models
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.detection.tasks.config import ExtractionConfig, ExtractionStage
from contamination.detection.tasks.extraction import run as extract
from tests.detection.golden import GOLDEN, examples
from tests.rounding import FORWARD
from tests.servers.vllm import VLLM, serving
from tests.servers.wide import widen

pytestmark = [
    pytest.mark.served,
    pytest.mark.skipif(not VLLM.is_file(), reason=f"{VLLM} is not there: see make.sh"),
]
SMOLLM2 = os.environ.get("SMOLLM2_GGUF", "")
NODES = {p.stem: yaml.safe_load(p.read_text())[p.stem] for p in METHODS_FOLDER.glob("*.yaml")}
READ = ("loss", "zlib", "lowercase", "min_k", "max_k", "pac", "polarized_distance")
"""Methods that only read log-probabilities, and need no further model."""


@pytest.fixture(scope="module", params=["smollm2", "golden"])
def model(request, tmp_path_factory):
    """The folder of a model, and where vLLM serves it."""
    made = tmp_path_factory.mktemp("served")
    folder = made / "hf"
    if request.param == "golden":
        widen(str(GOLDEN / "target"), str(folder))
    elif Path(SMOLLM2).is_file():
        load_model("model.path", SMOLLM2).save_pretrained(folder)
        load_tokenizer("model.path", SMOLLM2).save_pretrained(folder)
    else:
        pytest.skip("SMOLLM2_GGUF names no GGUF file")
    with serving(folder, made / "log", context=512) as url:
        yield folder, url


@pytest.fixture
def stages(model, tmp_path):
    """The same stage for the files, and for the server."""
    folder, url = model
    rows = [{"text": one["text"], "label": i % 2} for i, one in enumerate(examples()[:10])]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    local = DetectionStage(
        runs=str(tmp_path / "runs"),
        examples=ExamplesConfig(str(tmp_path / "texts.jsonl")),
        model=ScoredModelConfig(str(folder)),
        method={name: NODES[name] for name in READ},
        detection=DetectionConfig(device="cpu"),
    )
    return local, replace(local, model=ScoredModelConfig(url=url, tokenizer=str(folder)))


def test_scores_are_those_of_the_model_in_its_files(stages):
    local, served = (open_scores(run(stage).path).table for stage in stages)
    both = served.merge(local, on=["example_id", "method", "variant"], suffixes=("", "_local"))
    nats = (both["score"] - both["score_local"]).abs()
    off = both.assign(nats=nats, relative=nats / both["score_local"].abs())
    print(off.groupby("method")[["nats", "relative"]].max().to_string())
    assert set(off["method"]) == set(READ)
    # the likeliest tokens' mean is near 0: what is left of logits that round
    np.testing.assert_allclose(both["score"], both["score_local"], rtol=1e-4, atol=FORWARD)


def test_it_writes_what_the_model_in_its_files_writes(stages, model):
    tokenizer = load_tokenizer("model", str(model[0]))
    prompts = [Prompt(tokenizer(e["text"])["input_ids"][:20], 12, 5) for e in examples()[:4]]
    local, served = (
        open_models(stage, ())["target"].load(DetectionConfig(device="cpu")) for stage in stages
    )
    assert served.generate(prompts, 0) == local.generate(prompts, 0)
    drawn = served.generate(prompts, 0.8)
    assert drawn != served.generate([replace(p, seed=6) for p in prompts], 0.8)
    again = open_models(replace(stages[1], runs=f"{stages[1].runs}-2"), ())["target"]
    assert again.load(DetectionConfig()).generate(prompts, 0.8) == drawn  # asked anew


def test_what_it_writes_is_scored_and_extracted(stages, tmp_path):
    served = stages[1]
    own = {"cdd": {**NODES["cdd"], "n": 3}, "samia": {**NODES["samia"], "n": 2}}
    table = open_scores(run(replace(served, method=own)).path).table
    assert table.groupby("method")["score"].count().to_dict() == {"cdd": 10, "samia": 10}
    config = ExtractionConfig(tokens=3, prefix_tokens=[20])
    given = [ExtractionStage(s.runs, s.examples, s.model, detection=s.detection, extraction=config)
             for s in stages]  # fmt: skip
    first, second = (extract(one).path / "extraction.parquet" for one in given)
    assert first.read_bytes() == second.read_bytes()

"""A stage that scores texts with the golden model behind a server."""

import json

import pytest
import yaml

from contamination.data.config import ExamplesConfig
from contamination.detection.config import (
    METHODS_FOLDER,
    DetectionConfig,
    DetectionStage,
    ScoredModelConfig,
)
from tests.detection.golden import GOLDEN, examples

NODES = {p.stem: yaml.safe_load(p.read_text())[p.stem] for p in METHODS_FOLDER.glob("*.yaml")}
FOLDER = GOLDEN / "target"


@pytest.fixture
def stage(tmp_path):
    """`stage(url, …)`, or `stage(None)` for the same model in its files."""
    rows = [{"text": one["text"], "label": i % 2} for i, one in enumerate(examples()[:6])]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(url, methods=("loss", "min_k"), texts="texts.jsonl", **server):
        model = ScoredModelConfig(str(FOLDER))
        if url:
            model = ScoredModelConfig(url=url, **{"tokenizer": str(FOLDER), **server})
        return DetectionStage(
            runs=str(tmp_path / "runs"), examples=ExamplesConfig(str(tmp_path / texts)),
            model=model, method={name: NODES[name] for name in methods},
            detection=DetectionConfig(device="cpu"),
        )  # fmt: skip

    return make

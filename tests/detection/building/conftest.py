"""Small dumps of invented sentences, and benchmarks that are built of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from contamination.core.cli import compose_stage
from contamination.detection.building.run import run
from contamination.detection.config import BuildStage
from tests.bad_inputs.material import sentence

LINE = ["build.members_before=2016-01-01", "build.nonmembers_from=2019-01-01"]
SMALL = ["build.number=10", "build.lengths=[8,16]"]


def texts(number, words=30):
    """Texts of sentences that are drawn at random, so that no two share 13 words."""
    rng = np.random.default_rng(0)
    drawn = (" ".join(sentence(int(n)) for n in rng.integers(10**6, size=4)) for _ in range(number))
    return [" ".join(f"{n} {text}".split()[:words]) for n, text in enumerate(drawn)]


@pytest.fixture
def built(tmp_path):
    """Builds with these words; returns the folder's rows by set, its datasheet and the folder."""

    def make(*words, runs=tmp_path / "runs"):
        stage = compose_stage("build", [*LINE, *SMALL, f"runs={runs}", *words], BuildStage)
        folder = run(stage).path
        files = sorted((folder / "data").iterdir())
        rows = {f.stem: [json.loads(line) for line in f.read_text().splitlines()] for f in files}
        return rows, json.loads((folder / "datasheet.json").read_text()), folder

    return make


def jsonl(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path

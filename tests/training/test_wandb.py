"""The training's run in Weights & Biases, written offline and read back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import pytest

from analysis.mirror.read import _inspect
from core.artifacts import Built, build
from injection.pack import LEDGER_COLUMNS
from tests.analysis.test_wandb import needs_reader
from training.config import WandbConfig
from training.metrics import Record


@dataclass(frozen=True)
class CorpusConfig:
    """As far as the training's record reads it."""

    injection: dict[str, Any]


@pytest.fixture
def corpus_of(tmp_path):
    """A corpus of one part, with nothing inserted."""

    def make(part):
        def write(folder):
            pd.DataFrame(columns=list(LEDGER_COLUMNS)).to_parquet(folder / "ledger.parquet")
            return Built(["ledger.parquet"])

        config = CorpusConfig({"part": part, "members": 0})
        return str(build(tmp_path / "corpus" / f"{part}-000000000000", config, {}, write).path)

    return make


def recorded(stage, folder):
    """What the run of one step says of itself."""
    place = folder.parents[1]
    stage = replace(stage, name="trial", runs=str(place), wandb=WandbConfig("offline"))
    folder.mkdir(parents=True)
    record = Record(stage, folder, 0, 1, {})
    record.step({"step": 1, "loss": 2.0, "tokens": 128, "tokens_per_second": 9.0})
    record.close()
    (path,) = place.glob("wandb/offline-run-*/*.wandb")
    (run,) = [line["run"] for line in _inspect(path) if line["type"] == "run"]
    return run


@needs_reader
def test_only_a_base_models_training_is_pretraining(stage, corpus_of, tmp_path):
    """A study without members, such as a clean twin, trains the shared model like any other."""
    scratch, given = stage.model, replace(stage.model, path="runs/model/base-0001")
    cases = [
        ("base", scratch, "pretrain"),
        ("study", given, "train"),
        ("study", scratch, "train"),
        ("base", given, "train"),
    ]
    for number, (part, model, expected) in enumerate(cases):
        own = replace(stage, corpus_folder=corpus_of(part), model=model)
        run = recorded(own, tmp_path / f"{number}/model/m-000{number}")
        assert (run["run_group"], run["job_type"]) == ("trial", expected)

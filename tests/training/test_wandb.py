"""The training's run in Weights & Biases, written offline and read back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import pytest

from contamination.analysis.wandb.read import _inspect_record
from contamination.core.artifacts import WrittenFiles, build_or_open
from contamination.injection.packing import LEDGER_COLUMNS
from contamination.training.config import WandbConfig
from contamination.training.metrics import TrainingRecord, _wandb_job_type
from tests.analysis.wandb.test_wandb import needs_reader


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
            return WrittenFiles(["ledger.parquet"])

        config = CorpusConfig({"part": part, "members": 0})
        return str(
            build_or_open(tmp_path / "corpus" / f"{part}-000000000000", config, {}, write).path
        )

    return make


def recorded(stage, folder):
    """What the run of one step says of itself."""
    place = folder.parents[1]
    stage = replace(stage, name="trial", runs=str(place), wandb=WandbConfig("offline"))
    folder.mkdir(parents=True)
    record = TrainingRecord(stage, folder, 0, 1, {})
    record.record_step({"step": 1, "loss": 2.0, "tokens": 128, "tokens_per_second": 9.0})
    record.close()
    (path,) = place.glob("wandb/offline-run-*/*.wandb")
    (run,) = [line["run"] for line in _inspect_record(path) if line["type"] == "run"]
    return run


def test_only_a_base_models_training_is_pretraining(stage, corpus_of):
    """A study without members, such as a clean twin, trains the shared model like any other."""
    given = replace(stage.model, path="runs/model/base-0001")
    for part, model, expected in (
        ("base", stage.model, "pretrain"), ("study", given, "train"),
        ("study", stage.model, "train"), ("base", given, "train"),
    ):  # fmt: skip
        own = replace(stage, corpus_folder=corpus_of(part), model=model)
        assert _wandb_job_type(own) == expected


@needs_reader
def test_the_mirror_is_told_the_experiment_and_the_type(stage, corpus_of, tmp_path):
    run = recorded(replace(stage, corpus_folder=corpus_of("base")), tmp_path / "model/m-0001")
    assert (run["run_group"], run["job_type"]) == ("trial", "pretrain")

"""The training's run in Weights & Biases, written offline and read back."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from analysis.mirror.read import _inspect
from core.artifacts import Built, build
from injection.pack import LEDGER_COLUMNS
from tests.analysis.test_wandb import needs_reader
from training.config import WandbConfig
from training.metrics import Record

from .conftest import Nothing


@pytest.fixture
def clean_corpus(tmp_path):
    """A corpus with nothing inserted, as the base model's."""

    def make(folder):
        pd.DataFrame(columns=list(LEDGER_COLUMNS)).to_parquet(folder / "ledger.parquet")
        return Built(["ledger.parquet"])

    return build(tmp_path / "corpus" / "clean-000000000000", Nothing(), {}, make).path


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
def test_the_base_models_run_is_told_apart_in_its_group(stage, clean_corpus, tmp_path):
    base = recorded(replace(stage, corpus_folder=str(clean_corpus)), tmp_path / "a/model/m-0001")
    study = recorded(stage, tmp_path / "b/model/m-0002")
    assert (base["run_group"], base["job_type"]) == ("trial", "pretrain")
    assert (study["run_group"], study["job_type"]) == ("trial", "train")

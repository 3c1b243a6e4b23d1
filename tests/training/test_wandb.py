"""The training's run in Weights & Biases, written offline and read back."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import pytest

from contamination.analysis.wandb.read import _inspect_record
from contamination.core.artifacts import WrittenFiles, build_or_open
from contamination.core.config import identity_data
from contamination.core.errors import ConfigError
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


class Bar:
    """A progress bar of two seconds."""

    def __init__(self, **options):
        self.calls, self.format_dict = [options], {"elapsed": 2.0}

    def set_postfix(self, **values):
        self.calls.append(values)

    def update(self):
        self.calls.append("step")

    def close(self):
        self.calls.append("closed")


class Run:
    """A run in Weights & Biases that keeps its calls."""

    def __init__(self, **options):
        self.calls = [options]

    def log(self, values, step):
        self.calls.append((step, values))

    def finish(self):
        self.calls.append("finished")


def test_a_record_is_a_file_a_bar_and_a_run(stage, corpus_of, tmp_path, monkeypatch):
    folder = tmp_path / "model" / "toy-lr-0123456789ab"
    folder.mkdir(parents=True)
    steps = [{"step": number, "tokens": 100 * number, "loss": 9.0} for number in (2, 3, 4)]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, steps)) + '\n{"st')
    (folder / "evaluations.jsonl").write_text('{"step": 0}\n{"step": 4}\n')
    monkeypatch.setattr("contamination.training.metrics.progress_bar", Bar)
    monkeypatch.setattr("wandb.init", Run)
    named_stage = replace(
        stage, name="trial", runs=str(tmp_path / "runs"), corpus_folder=corpus_of("study"),
        wandb=WandbConfig("offline", "mine", "us"),
    )  # fmt: skip
    record = TrainingRecord(named_stage, folder, 3, 12, {"corpus": "c"}, first_tokens=1000)
    row = {"step": 4, "tokens": 9000, "loss": 1.23456, "mfu": None}
    record.record_step(row)
    evaluation = {"step": 4, "tokens": 9000, "loss_members": 2.0}
    record.record_evaluation(evaluation)
    record.close()
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [*steps[:2], row]
    lines = (folder / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"step": 0}, evaluation]
    assert record._bar.calls == [
        {"desc": "toy", "stage": "train", "total": 12, "initial": 3, "unit": "step"},
        {"loss": "1.235", "tok_s": "4,000", "refresh": False}, "step", "closed",
    ]  # fmt: skip
    options, *logged = record._wandb.calls
    assert logged == [
        (4, {"train/tokens": 9000, "train/loss": 1.23456}),
        (4, {"eval/tokens": 9000, "eval/loss_members": 2.0}), "finished",
    ]  # fmt: skip
    settings = options.pop("settings")
    assert (settings.silent, settings.x_transaction_log_flush_interval) == (True, 1)
    identity = identity_data(named_stage)
    assert options == {
        "project": "mine", "entity": "us", "mode": "offline", "resume": "allow",
        "dir": str(tmp_path / "runs"), "name": folder.name, "id": "0123456789ab",
        "group": "trial", "job_type": "train",
        "config": {**identity, "inputs": {"corpus": "c"}, "folder": folder.name},
    }  # fmt: skip
    assert (tmp_path / "runs").is_dir()


def test_a_record_without_evaluations_or_a_run_has_one_file(stage, tmp_path, monkeypatch):
    monkeypatch.setattr("wandb.init", None)
    (tmp_path / "metrics.jsonl").write_text("of another training\n")
    record = TrainingRecord(stage, tmp_path, 0, 1, {})
    record.record_step({"step": 1, "loss": 2.0, "tokens": 128})
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 1  # before it is closed
    record.close()
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize("logged_in", [True, False])
def test_only_online_runs_need_a_login(monkeypatch, logged_in):
    logins = []
    monkeypatch.setattr("wandb.login", lambda **keywords: logins.append(keywords) or logged_in)
    for mode in ("offline", "disabled"):
        WandbConfig(mode).check_login()
    assert not logins
    if logged_in:
        WandbConfig("online").check_login()
    else:
        with pytest.raises(ConfigError) as error:
            WandbConfig("online").check_login()
        assert str(error.value) == (
            "wandb.mode is 'online': you are not logged in. Run `wandb login`, or choose "
            "wandb.mode=offline."
        )
    assert logins == [{"prompt": False, "verify": False}]


@needs_reader
def test_the_mirror_is_told_the_experiment_and_the_type(stage, corpus_of, tmp_path):
    run = recorded(replace(stage, corpus_folder=corpus_of("base")), tmp_path / "model/m-0001")
    assert (run["run_group"], run["job_type"]) == ("trial", "pretrain")

"""An audit's run: its folder, its conclusions and its mirror in Weights & Biases."""

import logging
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml

from contamination.audits.base import AuditStage
from contamination.audits.run import read_conclusions, run
from contamination.core.hashing import file_digest


class WandbError(Exception):
    """An error of Weights & Biases."""


class WandbRun:
    """A run that remembers how it was opened and what was logged while it was open."""

    def __init__(self, opened_with):
        self.opened_with, self.is_open = opened_with, False
        self.summary, self.logged = {}, []

    def __enter__(self):
        self.is_open = True

    def __exit__(self, *_):
        self.is_open = False

    def log(self, values):
        assert self.is_open
        self.logged.append(values)


@pytest.fixture
def stage(tmp_path):
    (tmp_path / "a.txt").write_text("abc")
    node = {"_target_": "tests.audits.sample.Letters", "file": str(tmp_path / "a.txt")}
    stage = AuditStage(audit=node, runs=str(tmp_path / "runs"), name="mine")
    return replace(stage, wandb=replace(stage.wandb, mode="offline"))


@pytest.fixture
def wandb_runs(monkeypatch):
    """The runs that were opened, each with what was logged in it."""
    wandb_runs = []

    def open_run(config, folder, settings, /, **fields):
        run = WandbRun((config, folder, settings, fields))
        wandb_runs.append(run)
        return run

    module = SimpleNamespace(
        Table=lambda *, dataframe: dataframe.to_dict("list"), Html=lambda text: ("page", text),
        errors=SimpleNamespace(Error=WandbError),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr("contamination.audits.run.open_wandb_run", open_run)
    return wandb_runs


def test_a_finished_audit_is_mirrored_once_with_its_numbers_tables_and_page(stage, wandb_runs):
    artifact = run(stage)
    (mirror,) = wandb_runs
    config, folder, settings, fields = mirror.opened_with
    assert (config, folder) == (stage.wandb, Path(stage.runs))
    assert settings == {"console": "off", "x_disable_stats": True}
    assert fields == {
        "id": artifact.path.name.rpartition("-")[2], "name": artifact.path.name, "group": "mine",
        "job_type": "audit",
        "config": {
            "audit": {"kind": "letters", **stage.audit},
            "artifacts": {"file": file_digest(Path(stage.audit["file"]))},
        },
    }  # fmt: skip
    assert mirror.summary == {"letters/letters": 3}
    assert mirror.logged == [
        {"tables/letters/letters": {"title": ["<b>a|b</b>"], "letters": [3]}},
        {"pages/letters": ("page", str(artifact.path / "report.html"))},
    ]
    assert not mirror.is_open
    run(stage)
    run(replace(stage, seed=1, wandb=replace(stage.wandb, mode="disabled")))
    assert len(wandb_runs) == 1


def test_an_audit_whose_mirror_fails_is_finished_with_a_warning(
    stage, wandb_runs, monkeypatch, caplog
):
    def fail(*_, **__):
        raise WandbError("\nno login\nmore")

    monkeypatch.setattr("contamination.audits.run.open_wandb_run", fail)
    artifact = run(stage)
    (warning,) = [
        record.message
        for record in caplog.records
        if (record.name, record.levelno) == ("contamination.audits.run", logging.WARNING)
    ]
    assert warning == (
        "The audit is finished, but Weights & Biases failed (no login): log in with `wandb login` "
        f"or give wandb.mode=offline, remove {artifact.path} and run this again."
    )
    assert (artifact.path / "report.html").is_file()


def test_a_run_names_its_page_and_its_conclusions_can_be_read(stage, caplog):
    caplog.set_level("INFO")
    artifact = run(replace(stage, wandb=replace(stage.wandb, mode="disabled")))
    assert f"audit: {artifact.path / 'report.html'}" in caplog.messages
    conclusions = read_conclusions(artifact)
    assert conclusions[0].startswith("There are 3 letters &")
    assert len(conclusions) == 2
    assert artifact.path.parent == Path(stage.runs) / "audit"
    config = yaml.safe_load((artifact.path / "config.yaml").read_text())
    assert config["audit"] == stage.audit
    table = pd.read_csv(artifact.path / "letters.csv")
    assert table.to_dict("list") == {"title": ["<b>a|b</b>"], "letters": [3]}
    text = (artifact.path / "audit.md").read_text()
    assert "(charts/letters.svg)" in text

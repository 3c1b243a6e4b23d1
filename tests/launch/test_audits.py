"""Audits of a launch's cells: refused before any work, or conducted after the report."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from contamination.analysis.config import CellPaths
from contamination.core.cli import CONF
from contamination.core.errors import ConfigError
from contamination.launch import pipeline
from contamination.launch.audits import check_audits
from contamination.launch.config import SecondStage
from contamination.launch.second_stage import normalize_members_in


def compose_pipeline(*overrides):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("pipeline", [*overrides])


def check(*overrides):
    """Checks the audits while a Hydra application runs, as a launch does."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        running = GlobalHydra.instance().hydra
        check_audits(compose("pipeline", ["experiment=quickstart", *overrides]))
        assert GlobalHydra.instance().hydra is running


def test_audits_that_read_cells_are_accepted():
    check()
    check("audits=[one_run_bound, reference_attack]")
    check("experiment=reference_attack")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("one_run", "Did you mean one_run_bound"), ("books", "Known: decontamination, forgetting")],
)
def test_others_are_refused(name, hint):
    with pytest.raises(ConfigError, match=f"audits: '{name}' is no audit of cells. {hint}"):
        check(f"audits=[{name}]")


def test_cells_with_the_same_artefacts_are_reported_once(monkeypatch):
    """Clean twins of two stages: `members_in` changes nothing."""
    stages = []
    monkeypatch.setattr("contamination.analysis.run.run", stages.append)
    monkeypatch.setattr(pipeline, "run_audits", lambda *_: None)
    config = compose_pipeline("experiment=quickstart")
    twin = CellPaths("corpus", "model", "clean", "contaminated", "first", "set")
    same = replace(twin, seconds=3.0)
    other = replace(twin, contaminated="other scores")
    pipeline.report(config, [twin, same, other])
    assert stages[0].cells == [twin, other]


@pytest.mark.parametrize("members_in", ["pretraining", "finetuning", "both"])
@pytest.mark.parametrize("copies", [0, 8])
def test_without_copies_it_does_not_matter_in_which_stage_members_would_be(members_in, copies):
    second = SecondStage(members_in, instructions={"siqa": {}})
    made = normalize_members_in(second, SimpleNamespace(counts={"copies": copies}))
    assert made.members_in == (members_in if copies else "pretraining")

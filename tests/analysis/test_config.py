"""Ranges of the analysis stage's configuration."""

from __future__ import annotations

import pytest

from contamination.analysis.config import AnalysisConfig, AnalysisStage, CellPaths, WandbReport
from contamination.core.config import identity_data
from contamination.core.errors import ConfigError

CELL = CellPaths("c", "m", "s", "t")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("draws", 1),
        ("confidence", 1.0),
        ("confidence", 95.0),
        ("fpr", [5.0]),
        ("fpr", [0.05, 0.05]),
        ("tpr", [0.0]),
        ("blind_folds", 2),
    ],
)
def test_a_value_out_of_range_names_its_field(field, value):
    with pytest.raises(ConfigError, match=f"analysis.{field} is"):
        AnalysisConfig(**{field: value})


def test_every_path_of_a_cell_is_needed():
    with pytest.raises(ConfigError, match="cells.clean is ''"):
        CellPaths(corpus="c", model="m", contaminated="t")


def test_at_least_one_cell_is_needed():
    words = (
        r"^cells is \[\]: give at least one: cells=\[\{corpus: …, model: …, clean: …, "
        r"contaminated: …\}\]\.$"
    )
    with pytest.raises(ConfigError, match=words):
        AnalysisStage(name="trial", seed=0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, r"^project is None: give either project=NAME or local=FOLDER \(local is None\)\.$"),
        (
            {"project": "p", "local": "runs/wandb"},
            r"^project is 'p': give either project=NAME or local=FOLDER \(local is 'runs/wandb'\)",
        ),
    ],
)
def test_a_report_is_read_of_a_project_or_of_a_local_record(fields, words):
    with pytest.raises(ConfigError, match=words):
        WandbReport(**fields)
    assert WandbReport(project="p").local is None
    assert WandbReport(local="runs/wandb").project is None


def test_where_artefacts_lie_is_not_part_of_a_reports_identity():
    here = AnalysisStage("trial", 0, "runs", [CELL])
    there = AnalysisStage("trial", 0, "elsewhere", [CellPaths("1", "2", "3", "4")])
    assert identity_data(here) == identity_data(there)
    assert identity_data(here) != identity_data(AnalysisStage("trial", 1, "runs", [CELL]))

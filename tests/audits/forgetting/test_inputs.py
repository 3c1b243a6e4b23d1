"""Which scored models of a cell are used, and which cells are refused."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pandas as pd
import pytest

from contamination.analysis import report_folder
from contamination.audits.forgetting import inputs
from contamination.core.artifacts import Artifact
from contamination.core.errors import ArtifactError, ConfigError
from contamination.core.hashing import combined_digest
from contamination.training.trained_model import Checkpoint
from tests.audits.forgetting.simulated import LAST_STEP, SEEN_BY, STEPS, forgetting_cell

EXPORTED = (3, *STEPS[:-1])


@dataclass(frozen=True)
class Stored:
    """A cell whose training and scores are opened from here."""

    cell: object
    model: Checkpoint
    scores: dict


@pytest.fixture
def stored(tmp_path, monkeypatch):
    simulated = forgetting_cell(0)
    simulated.model.exposures.to_parquet(tmp_path / "exposures.parquet")
    files = {f"exports/step-{step:08d}/model.safetensors": f"{step}" for step in EXPORTED}
    counts = {"steps": LAST_STEP}
    model = Checkpoint(Artifact(tmp_path, "model", "final", {"corpus": ""}, counts, files))
    rows = simulated.cell.cell.examples["example_id"]
    frame = pd.DataFrame({"example_id": rows, "method": "loss", "variant": "", "score": 1.0})
    digests = {f"s{s}": combined_digest({"model.safetensors": f"{s}"}) for s in EXPORTED}
    scores = {
        name: SimpleNamespace(
            artifact=SimpleNamespace(inputs={"target": d}, digest=name), table=frame
        )
        for name, d in {**digests, "end": "final"}.items()
    }
    paths = replace(simulated.cell.paths, contaminated="end", exports=[*digests])
    monkeypatch.setattr(inputs, "open_trained", lambda field, path: model)
    monkeypatch.setattr(inputs, "open_scores", lambda path: scores[path])
    return Stored(replace(simulated.cell, paths=paths), model, scores)


def test_the_scored_models_from_the_last_exposure_on_are_used_in_order(stored):
    (found,) = inputs.read_cells("audit.cells", [stored.cell])
    assert [scored.step for scored in found.steps] == [*STEPS]
    assert found.steps_before == 1  # step 3, before the last exposure at step 5
    assert found.last_exposures.max() == SEEN_BY
    folders = [scored.model for scored in found.steps]
    assert folders[-1] == stored.model.artifact.path
    assert folders[0].name == f"step-{STEPS[0]:08d}"


def test_a_cell_with_too_few_scored_models_is_refused(stored):
    paths = replace(stored.cell.paths, exports=["s3", "s5"])
    with pytest.raises(ConfigError, match="has 2 scored models after the last member was seen"):
        inputs.read_cells("audit.cells", [replace(stored.cell, paths=paths)])


def test_scores_of_another_model_are_refused(stored):
    stored.scores["s8"].artifact.inputs["target"] = "another"
    with pytest.raises(ArtifactError, match="s8 has the scores of a model that is not an export"):
        inputs.read_cells("audit.cells", [stored.cell])


def test_an_example_without_a_score_is_refused(stored):
    stored.scores["s8"].table = stored.scores["s8"].table.iloc[1:]
    with pytest.raises(ArtifactError, match="has no score"):
        inputs.read_cells("audit.cells", [stored.cell])


def test_the_cells_of_several_reports_are_read(monkeypatch):
    cells = {
        name: [{"corpus": name, "model": "m", "clean": "c", "contaminated": "d"}] for name in "ab"
    }
    monkeypatch.setattr(
        report_folder, "open_report", lambda path: SimpleNamespace(config={"cells": cells[path]})
    )
    assert [paths.corpus for paths in report_folder.cell_paths("audit.cells", ["a", "b"])] == [
        "a",
        "b",
    ]
    with pytest.raises(ConfigError, match="a list of such folders"):
        report_folder.cell_paths("audit.cells", ["a", 3])

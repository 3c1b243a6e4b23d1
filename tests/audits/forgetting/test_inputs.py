"""Which scored models of a cell are used, and which cells are refused."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
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


def test_three_scored_models_are_enough(stored):
    paths = replace(stored.cell.paths, exports=["s3", "s5", "s8"])
    (cell,) = inputs.read_cells("audit.cells", [replace(stored.cell, paths=paths)])
    assert [scored.step for scored in cell.steps] == [5, 8, LAST_STEP]
    assert [scored.digest for scored in cell.steps] == ["s5", "s8", "end"]


def test_a_cell_of_two_stages_is_refused(stored):
    staged = replace(stored.cell, cell=replace(stored.cell.cell, stage="finetuning"))
    with pytest.raises(ConfigError, match=r"^audit\.cells: .* has a second stage, whose exports"):
        inputs.read_cells("audit.cells", [staged])


def test_members_are_grouped_by_their_occurrences_if_these_differ():
    def groups(*doses):
        cell = SimpleNamespace(doses=np.array(doses))
        return {name: group.tolist() for name, group in inputs.groups_of(cell)}

    assert groups(0, 1, 1) == {"any": [False, True, True]}
    assert groups(4, 0, 1) == {
        "any": [True, False, True], "1": [False, False, True], "4": [True, False, False],
    }  # fmt: skip


@pytest.mark.parametrize(("path", "complete", "digest", "tokens", "expected"), [
    ("start", True, "start", 96_000, 96_000.0), (None, True, "start", 96_000, None),
    ("start", False, "start", 96_000, None), ("start", True, "another", 96_000, None),
    ("start", True, "start", None, None),
])  # fmt: skip
def test_the_tokens_before_are_those_of_the_starting_model(
    monkeypatch, path, complete, digest, tokens, expected
):
    cell = forgetting_cell(0)
    cell.model.config["model"]["path"] = path
    start = SimpleNamespace(artifact=SimpleNamespace(counts={"tokens": tokens}, digest=digest))
    monkeypatch.setattr(inputs, "is_complete", lambda folder: complete)
    monkeypatch.setattr(inputs, "open_checkpoint", {"start": start}.get)
    assert cell.tokens_before == pytest.approx(expected or np.nan, nan_ok=True)


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

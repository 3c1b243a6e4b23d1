"""Cells of audits: the labels are those of the corpus, or of the fine-tuning set made from it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from contamination.analysis.config import CellPaths
from contamination.audits import cells
from contamination.core.errors import ArtifactError

PATHS = CellPaths("study", "model", "clean", "contaminated", "first", "set")
INPUTS = {"study": {}, "other": {}, "set": {"corpus": "study"}, "first": {"corpus": "clean"}}


@pytest.fixture(autouse=True)
def two_stage_cell(monkeypatch):
    """The cell that is opened; the digests of its artefacts are their paths."""
    cell = SimpleNamespace(stage="finetuning")

    def opened(path):
        return SimpleNamespace(
            artifact=SimpleNamespace(path=path, digest=path, inputs=INPUTS[path])
        )

    monkeypatch.setattr(cells, "cell_paths", lambda _, source: source)
    monkeypatch.setattr(cells, "open_corpus", opened)
    monkeypatch.setattr(cells, "open_trained", lambda _, path: opened(path))
    monkeypatch.setattr(cells, "open_cell", lambda _: cell)
    return cell


def test_members_in_fine_tuning_alone_are_accepted_where_an_audit_says_so():
    (cell,) = cells.open_cells("cells", [PATHS], members_in_finetuning=True)
    assert cell.paths == PATHS
    with pytest.raises(ArtifactError, match="model first was not trained on it"):
        cells.open_cells("cells", [PATHS])


def test_the_fine_tuning_set_must_be_of_the_corpus():
    other = replace(PATHS, corpus="other")
    with pytest.raises(ArtifactError, match="members of set were not taken from it"):
        cells.open_cells("cells", [other], members_in_finetuning=True)


def test_a_twin_that_saw_no_copies_must_be_trained_on_the_corpus(two_stage_cell):
    two_stage_cell.stage = "neither"
    with pytest.raises(ArtifactError, match="model first was not trained on it"):
        cells.open_cells("cells", [PATHS], members_in_finetuning=True)

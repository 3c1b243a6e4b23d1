"""Cells of audits: the labels are those of the corpus, or of the fine-tuning set made from it."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.config import CellPaths
from contamination.audits import cells
from contamination.core.errors import ArtifactError, ConfigError
from tests.audits.reference_attack.simulated import audited_cells

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
    message = (
        "cells.0.corpus is study: the model first was not trained on it, so its labels say nothing "
        "about that model. Give the corpus of its training, or launch the cell again."
    )
    with pytest.raises(ArtifactError, match=f"^{re.escape(message)}$"):
        cells.open_cells("cells", [PATHS])
    without_set = replace(PATHS, finetuning=None)
    with pytest.raises(ArtifactError, match="^cells.1.corpus is study: the model first was not"):
        cells.open_cells("cells", [PATHS, without_set], members_in_finetuning=True)


def test_a_cell_of_one_stage_is_its_model_trained_on_its_corpus(monkeypatch, two_stage_cell):
    two_stage_cell.stage, calls = None, []
    trained = SimpleNamespace(artifact=SimpleNamespace(path="m", inputs={"corpus": "study"}))
    monkeypatch.setattr(
        cells, "open_trained", lambda *arguments: calls.append(arguments) or trained
    )
    paths = CellPaths("study", "model", "clean", "contaminated")
    (cell,) = cells.open_cells("cells", [paths])
    assert (cell.paths, cell.cell) == (paths, two_stage_cell)
    assert cell.corpus.artifact.path == "study"
    assert calls == [("cells.0.model", "model")]


def test_the_fine_tuning_set_must_be_of_the_corpus():
    other = replace(PATHS, corpus="other")
    message = (
        "cells.0.corpus is other: the members of set were not taken from it, so its labels say "
        "nothing about the model. Give the corpus that the set was made from (corpus_folder)."
    )
    with pytest.raises(ArtifactError, match=f"^{re.escape(message)}$"):
        cells.open_cells("cells", [other], members_in_finetuning=True)


def test_a_twin_that_saw_no_copies_must_be_trained_on_the_corpus(two_stage_cell):
    two_stage_cell.stage = "neither"
    with pytest.raises(ArtifactError, match="model first was not trained on it"):
        cells.open_cells("cells", [PATHS], members_in_finetuning=True)


def test_scores_are_found_by_method_or_by_method_and_variant():
    """A method alone is its variant with its own hyperparameters, or its only variant."""
    (cell,) = audited_cells(1, 3, 0.0)
    names = [("loss", ""), ("loss", "b"), ("min_k", "k=0.1"), ("min_k", "k=0.2"), ("zlib", "x")]
    table = pd.DataFrame(np.arange(15).reshape(3, 5), columns=pd.MultiIndex.from_tuples(names))
    defaults = [("loss", ""), ("min_k", "k=0.2")]
    content = replace(cell.cell, scores={"contaminated": table}, defaults=defaults)
    cell = replace(cell, cell=content)
    assert cell.attacks == ["loss", "loss b", "min_k k=0.1", "min_k k=0.2", "zlib x"]
    for attack, column in (
        ("loss", 0), ("loss b", 1), ("min_k k=0.1", 2), ("min_k", 3), ("zlib", 4), ("zlib x", 4),
    ):  # fmt: skip
        scores = cell.scores("audit.attack", attack)
        assert scores.tolist() == [column, column + 5, column + 10], attack
        assert scores.dtype == np.float64
    message = (
        f"audit.attack is 'zlb': cell {cell.name} has no such scores. Did you mean zlib x? Known: "
        "loss, loss b, min_k k=0.1, min_k k=0.2, zlib x."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        cell.scores("audit.attack", "zlb")
    without = replace(cell, cell=replace(content, defaults=[]))
    with pytest.raises(ConfigError, match="audit.attack is 'min_k': cell .* has no such scores"):
        without.scores("audit.attack", "min_k")


def test_one_cell_is_chosen_by_its_name_unless_it_is_alone():
    several = cells.named_apart(audited_cells(3, 4, 0.0))
    assert [cell.name[-5:] for cell in several] == ["seed0", "seed1", "seed2"]
    assert cells.choose_cell("audit.cell", several, several[1].name) is several[1]
    assert cells.choose_cell("audit.cell", several[2:], None) is several[2]
    assert cells.choose_cell("audit.cell", several[2:], several[2].name) is several[2]
    all_known = f"Known: {', '.join(cell.name for cell in several)}."
    for candidates, hint in ((several, all_known), (several[:1], f"Known: {several[0].name}.")):
        name = None if candidates is several else "other"
        with pytest.raises(ConfigError) as error:
            cells.choose_cell("audit.cell", candidates, name)
        assert str(error.value) == f"audit.cell is {name!r}: name one cell. {hint}"


def test_cells_are_named_in_order_and_keep_what_is_theirs():
    cells_by_seed = audited_cells(3, 4, 0.0)
    named_cells = cells.named_apart(cells_by_seed[::-1])
    for cell, original in zip(named_cells, cells_by_seed, strict=True):
        assert (cell.paths, cell.corpus) == (original.paths, original.corpus)
        assert cell.digests == {f"{cell.name}/{k}": v for k, v in original.cell.digests.items()}
        assert cell.doses.tolist() == original.cell.examples["occurrences"].tolist()

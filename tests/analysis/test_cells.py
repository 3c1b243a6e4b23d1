"""Joining a cell's artefacts, and refusing what doesn't fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.cells import make_cell, name_apart
from contamination.core.errors import ArtifactError, ConfigError, DataError


def test_a_cell_is_named_after_what_varies(cell):
    assert cell.name == "tiny_llama-lr0.001-tokens400000-seed0"
    assert cell.inputs["tiny_llama-lr0.001-tokens400000-seed0/model"] == "model0.001"
    assert len(cell.inputs) == 4


def test_scores_are_in_the_order_of_the_examples(make_parts):
    parts = make_parts()
    shuffled = parts["clean"].table.sample(frac=1, random_state=0)
    cell = make_cell(**{**parts, "clean": replace(parts["clean"], table=shuffled)})
    assert cell.scores["clean"].index.tolist() == cell.examples["example_id"].tolist()
    np.testing.assert_array_equal(
        cell.scores["clean"]["loss", ""],
        parts["clean"].table.query("method == 'loss'")["score"],
    )


def test_the_last_scored_step_counts(make_parts):
    parts = make_parts()
    table = parts["contaminated"].table
    earlier = table.assign(checkpoint_step=5, score=-1.0)
    both = replace(parts["contaminated"], table=pd.concat([table, earlier]))
    cell = make_cell(**{**parts, "contaminated": both})
    assert (cell.scores["contaminated"].to_numpy() != -1).any()


@pytest.mark.parametrize("harm", ["nan", "infinite", "missing"])
def test_a_score_that_is_not_there_is_an_error_with_its_place(make_parts, harm):
    parts = make_parts()
    table = parts["contaminated"].table.copy()
    place = (table["method"] == "min_k") & (table["example_id"] == "imdb-003")
    if harm == "missing":
        table = table[~place]
    else:
        table.loc[place, "score"] = np.nan if harm == "nan" else np.inf
    with pytest.raises(DataError, match="example imdb-003, method min_k, has no finite score"):
        make_cell(**{**parts, "contaminated": replace(parts["contaminated"], table=table)})


def test_scores_of_another_model_are_refused(make_parts):
    parts, other = make_parts(), make_parts(learning_rate=1.0)
    with pytest.raises(ArtifactError, match="cells.contaminated is .* not scores of the model"):
        make_cell(**{**parts, "contaminated": other["contaminated"]})
    with pytest.raises(ArtifactError, match="cells.clean is .* of the contaminated model itself"):
        make_cell(**{**parts, "clean": parts["contaminated"]})
    model = parts["model"].artifact.digest
    as_reference = with_inputs(other["contaminated"], reference=model)
    with pytest.raises(ArtifactError, match="cells.contaminated is .* not scores of the model"):
        make_cell(**{**parts, "contaminated": as_reference})


def test_scores_are_of_their_target_whatever_the_reference_or_its_own_code(make_parts):
    parts = make_parts()
    model = parts["model"].artifact.digest
    clean = with_inputs(parts["clean"], reference=model)
    make_cell(**{**parts, "clean": clean})
    own_code = with_inputs(parts["contaminated"], target=f"{model}+code")
    make_cell(**{**parts, "contaminated": own_code})


def test_models_trained_from_others_are_of_another_recipe(make_parts):
    parts = make_parts()
    starts = [with_inputs(parts["model"], model=start) for start in ("one", "two", "two")]
    one, two, again = (make_cell(**{**parts, "model": model}).recipe for model in starts)
    assert one != two == again


def with_inputs(scores, **inputs):
    """The scores, made from other models."""
    artifact = replace(scores.artifact, inputs={**scores.artifact.inputs, **inputs})
    return replace(scores, artifact=artifact)


@pytest.mark.parametrize("column", ["example_id", "text", "member"])
def test_the_membership_digest_is_of_each_of_these_columns(cell, column):
    changed = cell.examples.copy()
    old = changed.loc[3, column]
    changed.loc[3, column] = not old if column == "member" else old * 2
    assert replace(cell, examples=changed).membership_digest != cell.membership_digest
    twin = replace(cell, examples=cell.examples.copy(), scores={}, seed=9)
    assert twin.membership_digest == cell.membership_digest


def test_a_score_that_is_there_twice_is_an_error(make_parts):
    parts = make_parts()
    table = parts["clean"].table
    twice = replace(parts["clean"], table=pd.concat([table, table.iloc[:1]]))
    with pytest.raises(DataError, match="boolq-000, method min_k, was scored twice"):
        make_cell(**{**parts, "clean": twice})


def test_cells_of_one_name_are_told_apart_and_sorted(make):
    cell = make()
    twin = replace(cell, digests={**cell.digests, "contaminated": "abcdef0123"})
    other = make(learning_rate=1e-5)
    named = name_apart([twin, other, cell])
    assert [c.name.rpartition("-")[2] for c in named] == ["seed0", "abcdef", "contam"]
    again = name_apart([cell, twin, other])
    assert [(c.name, c.digests) for c in named] == [(c.name, c.digests) for c in again]


def test_a_cell_given_twice_is_an_error(make):
    with pytest.raises(ConfigError, match="2 times: give each cell once"):
        name_apart([make(), make()])

"""The answers of cells and of their clean twins, seed by seed, on items that are few."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.base import AuditStage
from contamination.audits.inflation import inputs
from contamination.audits.inflation.inputs import (
    ACCURACY,
    MARGIN,
    Answered,
    Family,
    Group,
    items_table,
    make_groups,
    split_into_families,
)
from contamination.core.errors import ConfigError, DataError
from contamination.detection.config import DetectionConfig
from tests.audits.inflation.simulated import ITEMS, simulated_cells

NAN = np.nan


def cell(seed, swapped=False, name="cell", stage=None, **chosen):
    content = SimpleNamespace(
        seed=seed, swapped=swapped, learning_rate=0.01, stage=stage, chosen=chosen
    )
    return SimpleNamespace(cell=content, name=name, doses=np.zeros(1))


@pytest.fixture
def group():
    """Seed 5 has two replicates and a twin, seed 3 has one replicate and no twin."""
    items = pd.DataFrame(
        {"example_id": ["x", "y", "z"], "benchmark": ["a", "b", "b"], "chance": [0.25, 0.0, 0.0]}
    )
    twins = {
        ACCURACY: np.array([[0.0, 1, 0], [1, 1, 0]]),
        MARGIN: np.array([[-1.0, 2, -3], [5, 6, -7]]),
    }
    members = np.zeros((2, 3), bool)
    family = Family("clean", [5, 7], items, twins, np.zeros((2, 3)), members, [cell(5), cell(7)])
    margins = np.array([[1.0, 2, 4], [10, 20, 40], [100, 200, 400]])
    answers = {ACCURACY: (margins > 15).astype(float), MARGIN: margins}
    doses = np.array([[4, 0, 0], [0, 4, 0], [1, 4, 0]])
    return Group("leaked", [cell(5), cell(5, True), cell(3)], family, answers, doses)


def test_results_are_by_seed_with_the_twin_of_the_seed_or_the_mean_of_all(group):
    assert (group.seeds, group.dose_levels, group.rows_of(5)) == ([3, 5], [1, 4], [0, 1])
    np.testing.assert_array_equal(group.inserted_doses, [[1, 4, 0], [4, 4, 0]])
    results = group.results(MARGIN)
    np.testing.assert_array_equal(results.inserted, [[100, 200, NAN], [1, 20, NAN]])
    np.testing.assert_array_equal(results.left_out, [[NAN, NAN, 400], [10, 2, 22]])
    np.testing.assert_array_equal(results.twin, [[2, 4, -5], [-1, 2, -3]])
    assert group.has_replicates
    alone = replace(group, cells=group.cells[2:], doses=group.doses[2:],
                    answers={name: rows[2:] for name, rows in group.answers.items()})  # fmt: skip
    assert not alone.has_replicates
    assert alone.seeds == [3]


def test_the_items_of_every_cell_are_beside_those_of_its_twin(group):
    table = items_table([group, replace(group, name="other", cells=group.cells[:1])])
    assert [*table] == [
        "example_id", "benchmark", "chance", "condition", "seed", "swapped", "occurrences",
        "accuracy", "margin", "twin_accuracy", "twin_margin",
    ]  # fmt: skip
    assert [*table.index] == [*range(12)]
    assert table["condition"].tolist() == ["leaked"] * 9 + ["other"] * 3
    assert table["seed"].tolist() == [5] * 6 + [3] * 3 + [5] * 3
    assert table["swapped"].tolist() == [False] * 3 + [True] * 3 + [False] * 6
    assert table["occurrences"].tolist() == [4, 0, 0, 0, 4, 0, 1, 4, 0, 4, 0, 0]
    assert table["margin"].tolist() == [1, 2, 4, 10, 20, 40, 100, 200, 400, 1, 2, 4]
    assert table["accuracy"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0]
    assert table["twin_margin"].tolist() == [-1, 2, -3] * 2 + [2, 4, -5] + [-1, 2, -3]
    assert table["twin_accuracy"].tolist() == [0, 1, 0] * 2 + [0.5, 1, 0] + [0, 1, 0]
    assert table["example_id"].tolist() == ["x", "y", "z"] * 4


@pytest.mark.parametrize(
    ("chosen", "form"),
    [
        ({}, "verbatim"),
        ({"leak.form": "answers"}, "answers"),
        ({"rewording._target_": "some.module.Exact"}, "verbatim"),
        ({"leak.form": "answers", "rewording._target_": "some.Typos"}, "answers, Typos"),
    ],
)
def test_the_form_is_that_of_the_leak_and_of_its_rewording(group, chosen, form):
    finetuned = replace(group, cells=[cell(1, stage="finetuning", **chosen)])
    assert (finetuned.form, finetuned.stage, finetuned.learning_rate) == (form, "finetuning", 0.01)
    assert group.stage == "pretraining"


def test_groups_have_the_items_that_all_cells_share_and_the_first_twin_of_each_seed():
    answered = [*simulated_cells(2, direct=1.0)]
    answered = [*answered[3:], *answered[:3]]  # seed 1 first
    for number, (row, index) in enumerate(((0, 3), (2, 5))):
        answers = answered[row].answers
        assert len(answers) == ITEMS
        answered[row] = Answered(answered[row].cell, answers.drop(index=index + number))
    unranked = answered[1].cell
    with_gap = replace(unranked.cell, examples=unranked.cell.examples.drop(index=9))
    answered[1] = Answered(replace(unranked, cell=with_gap), answered[1].answers)
    twin = answered[2].cell
    later = replace(twin, cell=replace(twin.cell, swapped=True, name="later"))
    later_answers = answered[2].answers.assign(margin=-100.0)
    (group,) = make_groups("audit.cells", [Answered(later, later_answers), *answered])
    family = group.family
    assert [*family.items] == ["example_id", "benchmark", "chance"]
    assert [*family.items.index] == [*range(ITEMS - 3)]
    shared_ids = [f"p-{number:03d}" for number in range(ITEMS) if number not in (3, 6, 9)]
    assert family.items["example_id"].tolist() == shared_ids
    assert (family.name, family.seeds, len(family.cells)) == ("clean", [0, 1], 2)
    assert [cell.cell.swapped for cell in family.cells] == [False, False]
    by_id = answered[2].answers.set_index("example_id").loc[shared_ids, "margin"]
    np.testing.assert_array_equal(family.results[MARGIN][1], by_id)
    assert family.members.dtype == bool
    is_member = answered[2].cell.cell.examples.set_index("example_id").loc[shared_ids, "member"]
    np.testing.assert_array_equal(family.members[1], is_member)
    losses = twin.scores("audit.cells", "loss")
    np.testing.assert_array_equal(family.losses[1], np.delete(losses, [3, 6, 9]))
    assert group.name == "contaminated"
    assert [cell.cell.seed for cell in group.cells] == [1, 1, 0, 0]
    doses = answered[0].cell.cell.examples.set_index("example_id").loc[shared_ids, "occurrences"]
    np.testing.assert_array_equal(group.doses[0], doses)
    assert group.doses.dtype == np.int64


def test_a_condition_is_named_by_the_replicate_that_is_not_swapped():
    answered = [*simulated_cells(1)]
    for number, name in enumerate(("plain", "swapped")):
        entry = answered[number]
        named = replace(entry.cell.cell, condition=name)
        answered[number] = replace(entry, cell=replace(entry.cell, cell=named))
    (group,) = make_groups("audit.cells", [answered[1], answered[0], answered[2]])
    assert group.name == "plain"


def test_two_questions_are_enough_and_one_is_not():
    answered = [*simulated_cells(1)]

    def with_questions(number):
        return [Answered(entry.cell, entry.answers[:number]) for entry in answered]

    assert len(make_groups("audit.cells", with_questions(2))[0].family.items) == 2
    with pytest.raises(DataError) as error:
        make_groups("audit.cells", with_questions(1))
    assert str(error.value) == (
        "audit.cells: contaminated-seed0 and its clean twins share 1 question. Give cells of one "
        "pool (the same injection.pool_seed) with questions."
    )


def test_a_cell_that_was_not_scored_by_the_loss_has_no_losses():
    answered = [*simulated_cells(1)]
    twin = answered[2].cell
    scores = twin.cell.scores["contaminated"]
    without_loss = {**twin.cell.scores, "contaminated": scores.drop(columns=[("loss", "")])}
    unscored = replace(twin, cell=replace(twin.cell, scores=without_loss))
    answered[2] = replace(answered[2], cell=unscored)
    (group,) = make_groups("audit.cells", answered)
    assert group.family.losses.shape == (1, ITEMS)
    assert np.isnan(group.family.losses).all()


def test_a_family_is_alike_in_all_that_says_not_how_members_are_inserted():
    def with_fields(cell, **chosen):
        return replace(cell, cell=replace(cell.cell, chosen={**cell.cell.chosen, **chosen}))

    contaminated, _, twin = (entry.cell for entry in simulated_cells(1))
    inserted = {
        "leak.form": "answers", "rewording._target_": "x", "versions.enabled": True, "stage": "s",
        "benchmark.imdb.occurrences.count": 2, "benchmark.imdb.sources.0": "x",
        "backdoors.enabled": True, "copies.x": 1,
    }  # fmt: skip
    leaked = with_fields(contaminated, **inserted)
    assert split_into_families("field", [twin, leaked]) == [[twin, leaked]]
    faster = with_fields(contaminated, **{"training.learning_rate": 0.1})
    with pytest.raises(ConfigError) as error:
        split_into_families("field", [twin, contaminated, faster])
    assert str(error.value) == (
        f"field: {faster.name} has no clean twin, a cell trained alike without a copy. Add cells "
        "with occurrences.count=0 to the sweep."
    )
    with pytest.raises(ConfigError) as error:
        split_into_families("field", [twin])
    assert str(error.value) == (
        "field: no cell has copies of its members. Give contaminated cells."
    )
    faster_twin = with_fields(twin, **{"training.learning_rate": 0.1})
    assert split_into_families("field", [twin, contaminated, faster_twin]) == [[twin, contaminated]]


def test_a_model_is_asked_the_questions_of_the_pool_with_the_audits_settings(monkeypatch, tmp_path):
    table = pd.DataFrame({
        "example_id": ["x", "y"], "benchmark": ["a", "b"], "correct": [True, False],
        "options": [["no", "yes"], ["word"]], "chosen_by": ["sum", "written"], "answer": [1, 0],
        "loglikelihoods": [[-3.0, -1.0], [-2.5]], "tokens": [[1, 1], [1]],
        "letter_loglikelihoods": [[], []],
    })  # fmt: skip
    stages, names = [], []

    def run(stage):
        stages.append(stage)
        return SimpleNamespace(table=lambda name: names.append(name) or table)

    monkeypatch.setattr(inputs.accuracy, "run", run)
    cell = SimpleNamespace(paths=SimpleNamespace(model="model folder"))
    detection = DetectionConfig(batch_tokens=77)
    answers = inputs._ask(
        AuditStage(audit={}, runs=str(tmp_path), detection=detection), cell, "pool"
    )
    (stage,) = stages
    assert (stage.runs, stage.examples.path) == (str(tmp_path), "pool")
    assert (stage.model.path, stage.detection) == ("model folder", detection)
    assert names == [inputs.accuracy.FILE]
    assert answers.to_dict("list") == {
        "example_id": ["x", "y"], "benchmark": ["a", "b"], "chance": [0.5, 0.0],
        ACCURACY: [1.0, 0.0], MARGIN: [2.0, -2.5],
    }  # fmt: skip
    assert answers[ACCURACY].dtype == float

"""Reading the sets of a cell: which texts are scored, and where their scores go."""

import numpy as np
import pandas as pd
import pytest

from contamination.audits.base import AuditStage
from contamination.audits.set_tests import inputs
from contamination.audits.set_tests.inputs import (
    ORDERS,
    Checkpoint,
    Ingredients,
    read_sets,
)
from contamination.audits.set_tests.procedures import PROCEDURES
from contamination.detection.config import ScoredModelConfig
from tests.audits.reference_attack.simulated import audited_cell, draw_cells

VERSIONS, KNOWN = 3, 5.0
"""The versions of an example, and how much better the model knows what it saw."""


@pytest.fixture
def cell():
    phi, dose = draw_cells(1, 200, 1.0, doses=(4,))
    return audited_cell(phi[0], dose[0], phi[0], 0)


@pytest.fixture
def ingredients(cell):
    examples = cell.cell.examples
    rng = np.random.default_rng(3)
    drawn = rng.integers(VERSIONS, size=len(examples))
    versions = pd.DataFrame(
        (e.example_id, e.benchmark, v, f"{e.text} version {v}", v == d, e.member, e.occurrences)
        for e, d in zip(examples.itertuples(), drawn, strict=True)
        for v in range(VERSIONS)
    ).set_axis(
        ["example_id", "benchmark", "version", "text", "injected", "member", "occurrences"], axis=1
    )
    of_boolq = examples[examples["benchmark"] == "boolq"].sort_values("member", ascending=False)
    sides = of_boolq[of_boolq["member"]].head(41), of_boolq[~of_boolq["member"]].head(20)
    orders = pd.DataFrame(
        (e.benchmark, place // 4, place % 4, e.example_id, e.text, e.occurrences, e.member)
        for place, e in enumerate(pd.concat([sides[0].head(40), sides[1]]).itertuples())
    )
    orders.loc[len(orders)] = ["boolq", 99, 0, "alone", "A shard of one example.", 4, True]
    orders.columns = [
        "benchmark", "shard", "position", "example_id", "text", "occurrences", "member",
    ]  # fmt: skip
    options = ["A", "B", "C"]
    backdoors = pd.DataFrame({
        "backdoor": i, "target": options[i % 3], "options": options, "occurrences": 4,
        "probe_texts": [[f"probe {p} of {i}: {o}" for o in options] for p in range(4)],
    } for i in range(6))  # fmt: skip
    return Ingredients(versions, orders, backdoors, " | ")


@pytest.fixture
def scored(cell, ingredients, monkeypatch):
    """The sets of the cell, whose models give random scores, and more to what they saw."""
    table = cell.cell.scores["contaminated"]
    models = tuple(
        Checkpoint(saw_it, ScoredModelConfig(path=str(saw_it)), table) for saw_it in (True, False)
    )
    monkeypatch.setattr(inputs, "checkpoints", lambda *_: models)
    seen = {*ingredients.versions.loc[ingredients.versions["injected"], "text"]}
    seen |= {" | ".join(g["text"]) for _, g in ingredients.orders.groupby("shard")}
    targets = [*enumerate(ingredients.backdoors["target"])]
    seen |= {f"probe {p} of {i}: {target}" for i, target in targets for p in range(4)}
    texts_by_what = {}

    def score_texts(reader, model, texts, method, what, scope="whole"):
        scored_texts = [(t.text, t.output_start, method, scope) for t in texts]
        texts_by_what[what, model.saw_it] = scored_texts
        rng = np.random.default_rng(7)
        return {
            t.example_id: rng.normal() + KNOWN * (model.saw_it and t.text in seen) for t in texts
        }

    monkeypatch.setattr(inputs._CellReader, "_score_texts", score_texts)
    sets = read_sets(AuditStage(audit={}), cell, "zlib", False, ingredients)
    return sets, texts_by_what


def test_both_models_have_a_set_of_each_benchmark_and_one_of_backdoors(scored, cell):
    sets, _ = scored
    names = [(s.name.saw_it, s.name.benchmark, s.name.occurrences) for s in sets]
    assert names == [
        (saw_it, name, 4) for saw_it in (True, False) for name in ("imdb", "boolq", "backdoors")
    ]
    boolq = sets[1]
    of_benchmark = cell.cell.examples.query("benchmark == 'boolq'")
    assert boolq.examples.is_member.tolist() == of_benchmark["member"].tolist()
    assert boolq.examples.scores.shape == (2, 100)
    assert boolq.examples.texts == tuple(of_benchmark["text"])
    assert boolq.versions.is_published.sum() == of_benchmark["member"].sum()
    assert boolq.held_out_versions.is_published.sum() == (~of_benchmark["member"]).sum()


@pytest.mark.parametrize("test", ["versions", "order, exact", "order, t", "backdoors"])
def test_what_the_model_saw_is_found_and_what_it_did_not_see_is_not(scored, test):
    sets, _ = scored
    procedure, rng = PROCEDURES[test], np.random.default_rng(0)
    p_values = {
        data.name.saw_it: procedure.published(data, np.arange(procedure.units(data)), rng).p_value
        for data in sets
        if procedure.units(data) and data.name.benchmark in ("boolq", "backdoors")
    }
    assert p_values[True] < 0.01
    assert p_values[False] > 0.02


def test_orders_are_of_the_shards_own_examples_and_the_first_is_published(scored, ingredients):
    sets, texts = scored
    orders = [text for text, *_ in texts["orders of shards", True]]
    assert len(orders) == 15 * (ORDERS + 1)  # of 16 shards, of which one has a single example
    shard = ingredients.orders.query("shard == 0")["text"].tolist()
    assert orders[0] == " | ".join(shard)
    assert all(sorted(text.split(" | ")) == sorted(shard) for text in orders[: ORDERS + 1])
    assert len({*orders[: ORDERS + 1]}) > 5
    assert sets[1].orders.per_shard == 4
    assert sets[1].orders.random.shape == (10, ORDERS)
    assert sets[1].held_out_orders.random.shape == (5, ORDERS)
    assert texts["orders of shards", False] == texts["orders of shards", True]


def test_an_option_is_scored_as_the_output_of_its_probe(scored):
    _, texts = scored
    text, start, method, scope = texts["answers to probes", True][1]
    assert (text, text[start:], method, scope) == ("probe 0 of 0: B", "B", "loss", "output")


def test_versions_have_the_method_that_is_given_and_other_texts_the_loss(scored):
    _, texts = scored
    methods = {what: {method for *_, method, _ in rows} for (what, _), rows in texts.items()}
    assert methods == {
        "versions": {"zlib"}, "orders of shards": {"loss"}, "answers to probes": {"loss"},
    }  # fmt: skip


def test_of_an_option_with_a_letter_the_letter_is_scored():
    row = {"backdoor": 0, "target": "A", "options": ["A", "B"],
           "probe_texts": [["Answer: A. bank", "Answer: B. a river"]]}  # fmt: skip
    texts = [*inputs._option_texts(pd.DataFrame([row]))]
    assert [(t.text, t.text[t.output_start :]) for t in texts] == [
        ("Answer: A", "A"), ("Answer: B", "B"),
    ]  # fmt: skip
    row |= {"options": ["bank", "banks"], "probe_texts": [["Answer: bank", "Answer: banks"]]}
    texts = [*inputs._option_texts(pd.DataFrame([row]))]
    assert [t.text[t.output_start :] for t in texts] == ["k", "ks"]


def test_a_cell_without_ingredients_has_examples_alone(cell, scored):
    nothing = Ingredients(pd.DataFrame(), pd.DataFrame(), pd.DataFrame(), "")
    sets = read_sets(AuditStage(audit={}), cell, "loss", False, nothing)
    assert len(sets) == 4
    assert all(s.versions is s.orders is s.backdoors is None for s in sets)
    assert not len(sets[0].examples.drops)


def test_members_without_copies_are_no_set_that_was_seen(ingredients, monkeypatch):
    """As a Poisson design draws them; non-members have no copies, either."""
    phi, dose = draw_cells(1, 200, 1.0, doses=(1, 4))
    cell = audited_cell(phi[0], dose[0], phi[0], 0)
    examples = cell.cell.examples
    examples.loc[examples["occurrences"] == 1, "occurrences"] = 0
    table = cell.cell.scores["contaminated"]
    model = Checkpoint(True, ScoredModelConfig(path="model"), table)
    monkeypatch.setattr(inputs, "checkpoints", lambda *_: (model,))
    nothing = Ingredients(*[pd.DataFrame()] * 3, " | ")
    sets = read_sets(AuditStage(audit={}), cell, "loss", False, nothing)
    assert [s.name.occurrences for s in sets] == [4, 4]
    without_copies = (examples["member"] & (examples["occurrences"] == 0)).sum()
    assert sum(len(s.examples.is_member) for s in sets) == len(examples) - without_copies

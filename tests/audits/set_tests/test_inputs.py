"""Reading the sets of a cell: which texts are scored, and where their scores go."""

from dataclasses import replace
from types import SimpleNamespace

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
from contamination.audits.set_tests.sets import SetName
from contamination.core.errors import ArtifactError
from contamination.detection.api import make_method_nodes
from contamination.detection.config import DetectionConfig, ScoredModelConfig
from contamination.detection.models.hf_model import CODE_SUFFIX
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


def test_texts_are_scored_with_the_audits_settings_and_named_after_their_cell(
    cell, ingredients, monkeypatch
):
    model = Checkpoint(True, ScoredModelConfig(path="model"), cell.cell.scores["contaminated"])
    monkeypatch.setattr(inputs, "checkpoints", lambda *_: (model,))
    calls = []

    def score_texts(stage, texts, description, of_model):
        calls.append((description, stage.method, stage.detection, stage.runs, of_model, len(texts)))
        ids = texts.column("example_id").to_pylist()
        return SimpleNamespace(path=pd.DataFrame({"example_id": ids, "score": [*range(len(ids))]}))

    monkeypatch.setattr(AuditStage, "score_texts", score_texts)
    monkeypatch.setattr(inputs, "open_scores", lambda path: SimpleNamespace(table=path))
    detection = DetectionConfig(min_scored_tokens=3)
    stage = AuditStage(audit={}, runs="runs", detection=detection)
    _, boolq, backdoors = read_sets(stage, cell, "zlib", False, ingredients)
    whole, output = detection, replace(detection, scope="output")
    assert calls == [
        (f"versions of {cell.name}", make_method_nodes(["zlib"]), whole, "runs", model.model, 600),
        (f"orders of shards of {cell.name}", make_method_nodes(["loss"]), whole, "runs",
         model.model, 15 * (ORDERS + 1)),
        (f"answers to probes of {cell.name}", make_method_nodes(["loss"]), output, "runs",
         model.model, 72),
    ]  # fmt: skip
    # scores rise with a text's place
    table = ingredients.versions
    is_member = (table["benchmark"] == "boolq") & table["member"]
    assert boolq.versions.scores.tolist() == np.flatnonzero(is_member).tolist()
    assert boolq.versions.item.tolist() == np.repeat(np.arange(is_member.sum() // 3), 3).tolist()
    assert boolq.orders.published.tolist() == [shard * (ORDERS + 1) for shard in range(10)]
    assert boolq.orders.random[1].tolist() == [*range(ORDERS + 2, 2 * ORDERS + 2)]
    assert boolq.held_out_orders.published.tolist() == [s * (ORDERS + 1) for s in range(10, 15)]
    assert backdoors.name == SetName(
        cell.name, cell.cell.condition, "backdoors", 4, cell.cell.learning_rate, True
    )
    # the last option of each probe has its highest score
    assert backdoors.backdoors.answers.tolist() == [2] * 6
    assert backdoors.backdoors.targets.tolist() == [0, 1, 2, 0, 1, 2]
    assert backdoors.backdoors.options.tolist() == [3] * 6
    assert backdoors.examples is backdoors.versions is backdoors.orders is None


def test_orders_are_drawn_anew_for_another_seed_and_shard(ingredients):
    def orders(seed):
        table = inputs._with_random_orders(ingredients, seed)
        assert [*table] == [
            "benchmark", "shard", "examples", "occurrences", "member", "order", "text",
        ]  # fmt: skip
        return table

    table = orders(0)
    pd.testing.assert_frame_equal(orders(0), table)
    assert table["order"].tolist() == [*range(ORDERS + 1)] * 15
    assert {*table["examples"]} == {4}
    by_shard = table.groupby("shard")["text"].apply(list)
    assert by_shard[0][1:] != orders(1).groupby("shard")["text"].apply(list)[0][1:]

    def places(texts):
        names = texts[0].split(" | ")
        return [[names.index(name) for name in text.split(" | ")] for text in texts]

    assert places(by_shard[0]) != places(by_shard[1])
    about = table.groupby("shard")[["benchmark", "occurrences", "member"]].first()
    assert about["member"].tolist() == [True] * 10 + [False] * 5
    assert about["occurrences"].tolist() == [4] * 10 + [0] * 5
    reversed_rows = replace(ingredients, orders=ingredients.orders.iloc[::-1])
    shards = inputs._with_random_orders(reversed_rows, 0).groupby("shard")["text"].first()
    assert shards[0] == by_shard[0][0]  # by position


def test_codecs_drops_are_of_each_side_of_a_benchmark_and_shared_by_cells(cell, monkeypatch):
    model = Checkpoint(True, ScoredModelConfig(path="model"), cell.cell.scores["contaminated"])
    monkeypatch.setattr(inputs, "checkpoints", lambda *_: (model,))
    opened, runs = [], []

    def open_model(field, config, folder):
        opened.append((field, config, folder))
        return SimpleNamespace(digest="digest")

    def context_drops(texts, loaded, seed):
        runs.append((texts, loaded, seed))
        places = np.arange(len(texts), dtype=float)
        return SimpleNamespace(texts=pd.DataFrame({"drop": places, "context": places % 2}))

    monkeypatch.setattr(inputs, "open_model", open_model)
    monkeypatch.setattr(inputs, "LoadedModel", lambda *given: given)
    monkeypatch.setattr(inputs, "context_drops", context_drops)
    nothing = Ingredients(*[pd.DataFrame()] * 3, " | ")
    stage, drops = AuditStage(audit={}, runs="runs", seed=3), {}
    imdb, boolq = read_sets(stage, cell, "loss", True, nothing, drops)
    assert opened == [("model", model.model, "runs")]
    ((texts, (handle, detection), seed),) = runs
    assert (handle.digest, detection, seed) == ("digest", stage.detection, 3)
    examples = cell.cell.examples
    assert texts.column("example_id").to_pylist() == examples["example_id"].tolist()
    assert texts.column("text").to_pylist() == examples["text"].tolist()
    assert texts.column("benchmark").to_pylist() == [
        f"{row.benchmark}, {'members' if row.member else 'held out'}"
        for row in examples.itertuples()
    ]
    # what has no context has no drop
    assert np.isnan(imdb.examples.drops).all()
    assert boolq.examples.drops.tolist() == [*range(1, 200, 2)]
    again = read_sets(stage, cell, "loss", True, nothing, drops)
    assert len(runs) == 1
    assert again[1].examples.drops.tolist() == boolq.examples.drops.tolist()
    read_sets(stage, cell, "loss", True, nothing)
    assert len(runs) == 2


@pytest.mark.parametrize("has_all", [True, False])
def test_ingredients_are_what_the_corpus_was_given(monkeypatch, has_all):
    members = pd.DataFrame({"member": [True, True, False], "occurrences": [4, 3, 0]})
    corpus = SimpleNamespace(
        artifact=SimpleNamespace(files={inputs.ORDER_FILE: None} if has_all else {}),
        examples=members, config={"injection": {"separator": " | "}},
    )  # fmt: skip
    enabled = SimpleNamespace(enabled=has_all)
    for name in ("versions", "backdoors"):
        monkeypatch.setattr(inputs, f"{name}_config", lambda corpus: enabled)
    for name in ("versions", "order", "backdoors"):
        table = pd.DataFrame({name: [1, 2]})
        monkeypatch.setattr(inputs, f"read_{name}", lambda corpus, table=table: table)
    ingredients = inputs.read_ingredients(corpus)
    assert ingredients.separator == " | "
    tables = [ingredients.versions, ingredients.orders, ingredients.backdoors]
    assert [[*table] for table in tables] == (
        [["versions"], ["order"], ["backdoors", "occurrences"]] if has_all else [[], [], []]
    )
    if has_all:
        assert ingredients.backdoors["occurrences"].tolist() == [4, 4]  # 3.5, rounded


def test_the_models_of_a_cell_are_those_of_its_stored_scores(cell, monkeypatch):
    stored = SimpleNamespace(
        config=lambda: {"model": {"path": "base"}}, inputs={"target": f"digest{CODE_SUFFIX}"}
    )
    calls = []

    def open_artifact(path, kind):
        calls.append((path, kind))
        return stored

    def open_model(field, model, runs):
        calls.append((field, model, runs))
        return SimpleNamespace(digest="digest")

    monkeypatch.setattr(inputs, "open_artifact", open_artifact)
    monkeypatch.setattr(inputs, "open_model", open_model)
    after, before = inputs.checkpoints(cell, "runs")
    assert calls == [
        (cell.paths.clean, "scores"), ("model", ScoredModelConfig(path="base"), "runs"),
    ]  # fmt: skip
    assert (after.saw_it, after.model) == (True, ScoredModelConfig(path=cell.paths.model))
    assert (before.saw_it, before.model) == (False, ScoredModelConfig(path="base"))
    for checkpoint, name in ((after, "contaminated"), (before, "clean")):
        expected = cell.cell.scores[name][[("loss", ""), ("min_k", "")]]
        pd.testing.assert_frame_equal(checkpoint.scores, expected)
    message = (
        f"audit.cells: {cell.paths.clean} has scores of the model {{}}, which is not there any "
        "more or has changed. Score that model again (the same sweep)."
    )
    stored.inputs["target"] = "other"
    with pytest.raises(ArtifactError) as error:
        inputs.checkpoints(cell, "runs")
    assert str(error.value) == message.format("base")
    stored.config = lambda: {"model": {}}
    with pytest.raises(ArtifactError) as error:
        inputs.checkpoints(cell, "runs")
    assert str(error.value) == message.format(None)

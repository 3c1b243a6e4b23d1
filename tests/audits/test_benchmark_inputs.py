"""What an audit of questions is given: templates, columns, arguments, and errors that name them."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.base import AuditStage, add_audit_prefixes
from contamination.audits.benchmark import api, inputs
from contamination.audits.benchmark.api import audit_benchmark
from contamination.audits.benchmark.audit import Benchmark, _stage_of_reference, _with_reference
from contamination.core.cli import compose_stage
from contamination.core.errors import ConfigError, DataError
from contamination.data.config import ExamplesConfig
from contamination.data.examples import make_text
from contamination.data.texts import Texts
from contamination.detection.config import DetectionStage, ReferenceConfig, ScoredModelConfig

TEXTS = [f"What is {i} and {i}?" for i in range(12)]
FRESH = [f"What is {i} or {i}?" for i in range(12)]
ROWS = pd.DataFrame({"question": TEXTS, "answer": "Four"})


def composed(*words):
    return compose_stage("audit", add_audit_prefixes(["audit=benchmark", *words]), AuditStage).audit


@pytest.mark.parametrize(
    "words",
    [
        ["columns.text=question", "columns.cluster=question_id"],
        ["columns={text: question, cluster: question_id}"],
        ["audit.columns={text: question}", "audit.columns.cluster=question_id"],
        ["+columns.text=question", "+columns.cluster=question_id"],
    ],
)
def test_columns_are_named_on_the_command_line(words):
    assert composed(*words)["columns"] == {"text": "question", "cluster": "question_id"}


def test_columns_of_texts_to_score_are_named_on_the_command_line():
    words = ["examples.path=mine.csv", "model.path=DIR", "examples.columns.text=question"]
    stage = compose_stage("detection", words, DetectionStage)
    assert stage.examples.columns == {"text": "question"}
    with pytest.raises(ConfigError, match=r"examples.columnz.text: unknown field"):
        compose_stage("detection", ["examples.columnz.text=question"], DetectionStage)


def test_a_template_on_the_command_line_has_new_lines(tmp_path):
    path = tmp_path / "mine.csv"
    ROWS.to_csv(path, index=False)
    template = composed(r"template=Question: {question}\nAnswer: {answer}")["template"]
    texts = inputs.read_texts("audit.questions", path, ExamplesConfig(template=template))
    assert texts[0].text == "Question: What is 0 and 0?\nAnswer: Four"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"row 1: .* audit.template='\{question\}\\n\{answer\}' .*Fix it\.$"),
        ({"columns": {"text": "zz"}}, "^audit.columns.text is 'zz'"),
        ({"columns": 3}, "^audit.columns is 3: give names"),
        ({"template": {"a": "b"}}, "^audit.template is {'a': 'b'}: give a format string"),
        ({"template": "{q}"}, "^audit.template is '{q}': .* audit.columns.q=COLUMN"),
        ({"path": "none.csv"}, "^audit.questions is 'none.csv': there is no such file"),
    ],
)
def test_errors_name_the_audits_fields(tmp_path, fields, message):
    path = tmp_path / "mine.csv"
    ROWS.to_csv(path, index=False)
    given = fields.pop("path", path)
    with pytest.raises((ConfigError, DataError), match=message) as caught:
        inputs.read_texts("audit.questions", given, ExamplesConfig(**fields))
    assert "on_error" not in str(caught.value)
    assert "examples." not in str(caught.value)


def test_other_encodings_separators_and_formats_have_a_remedy(tmp_path):
    examples = ExamplesConfig(template="{question} {answer}")
    for name, content, message in (
        ("cp1252.csv", "question,answer\na – b,c\n".encode("cp1252"), "Save the file as UTF-8"),
        ("utf16.csv", "question,answer\na,b\n".encode("utf-16"), "Save the file as UTF-8"),
        ("semi.csv", b"question;answer\na;b\n", "save it with commas"),
        ("mine.xlsx", b"PK", r"Give a \.csv, \.tsv, \.jsonl or \.parquet file"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises((ConfigError, DataError), match=message):
            inputs.read_texts("audit.questions", tmp_path / name, examples)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(({"alpha": a}, f"alpha is {a!r}: give a level") for a in ("x", -1, math.nan, 1.0, True)),
        ({"models": {}}, "models is {}: give one or more"),
        ({"models": "DIR"}, "models is 'DIR': give one or more"),
        ({"columns": ["text"]}, r"columns is \['text'\]: give names"),
        ({"template": {"a": 1}}, "template is {'a': 1}: give a format string"),
        ({"order": "yes"}, "order is 'yes': give True or False"),
        ({"seed": "x"}, "seed is 'x': give a whole number"),
        ({"limit": 0}, "limit is 0: give 1 or more"),
        ({"separator": None}, "separator is None: give a text"),
        ({"order": True}, "fresh, order: choose one"),
        ({"fresh": TEXTS}, "^fresh: its text 0 is also the question 0"),
        ({"questions": []}, "^questions: it has no example"),
        ({"fresh": []}, "^fresh: it has no example"),
        ({"fresh": [*FRESH, None]}, r"^fresh\[12\]: no string"),
        ({"questions": 5}, "^questions is a int"),
        ({"questions": "none"}, "^questions is 'none': there is no such file"),
        ({"columns": {"text": "zz"}}, r"questions\[0\] has no such column"),
        ({"questions": ROWS}, r"^questions\[0\]: .*; template='\{question\}\\n\{answer\}'"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(arguments, message):
    given = {"questions": TEXTS, "fresh": FRESH, **arguments}
    given |= {} if "models" in arguments else {"model": "DIR"}
    with pytest.raises((ConfigError, DataError), match=message):
        audit_benchmark(**given)


@pytest.fixture
def scored(monkeypatch):
    """The texts and models that the audit would score."""
    seen = []

    def remember(texts, model, *_, **__):
        seen.append((len(texts), model))
        raise StopIteration

    monkeypatch.setattr(api, "score", remember)

    def audit(**arguments):
        with pytest.raises(StopIteration):
            audit_benchmark(**{"questions": TEXTS, "fresh": FRESH, **arguments})
        return seen[-1]

    return audit


def test_the_first_rows_of_each_side_are_read(scored, tmp_path):
    assert scored(model="DIR", limit=10) == (20, "DIR")
    path = tmp_path / "mine.csv"
    pd.DataFrame({"text": TEXTS}).to_csv(path, index=False)
    assert scored(model="DIR", questions=path, limit=11) == (22, "DIR")


def test_models_that_are_given_by_name_keep_it():
    given = {"base": "a/base", "chat": "b/chat"}
    assert api._models_by_name(None, given) == given


def test_models_in_a_list_are_named_by_their_folders():
    by_name = api._models_by_name(None, ["a/base", "b/base", "b/chat/"])
    assert by_name == {"base (1)": "a/base", "base (2)": "b/base", "chat": "b/chat/"}
    by_name = api._models_by_name(None, ["a/base", "b/base", "b/base (2)"])
    assert list(by_name.values()) == ["a/base", "b/base", "b/base (2)"]
    loaded = [object(), "a/base"]
    assert api._models_by_name(None, loaded) == {"model 1": loaded[0], "base": "a/base"}
    assert api._models_by_name("DIR", None) == {"model": "DIR"}
    assert api._models_by_name(None, {3: "DIR"}) == {"3": "DIR"}


@pytest.mark.parametrize("methods", [["loss", "min_k"], {"loss": {}, "min_k": {"k": 0.5}}, "loss"])
def test_a_reference_scores_by_the_other_methods_and_is_one_for_the_model(monkeypatch, methods):
    calls = []

    def score(texts, model, methods, **options):
        calls.append((len(texts), model, methods, options))
        if len(calls) == 2:
            raise StopIteration
        return pd.DataFrame({"method": ["loss"]})

    monkeypatch.setattr(api, "score", score)
    with pytest.raises(StopIteration):
        audit_benchmark(
            TEXTS, FRESH, "DIR", reference="REF", tokenizer="T", reference_tokenizer="RT",
            methods=methods, folder="out", seed=3, batch_size=2,
        )  # fmt: skip
    shared = {"folder": "out", "seed": 3, "batch_size": 2}
    with_reference = {**methods, "reference": {}} if isinstance(methods, dict) else [
        *([methods] if isinstance(methods, str) else methods), "reference"
    ]  # fmt: skip
    without_reference = methods if isinstance(methods, dict) else with_reference[:-1]
    assert calls == [
        (24, "REF", without_reference, {"tokenizer": "RT", **shared}),
        (24, "DIR", with_reference,
         {"tokenizer": "T", "reference": "REF", "reference_tokenizer": "RT", **shared}),
    ]  # fmt: skip


def text_of(name, text, cluster="", benchmark=""):
    return replace(make_text(name, text, None, benchmark), cluster=cluster)


def parts_of(texts):
    return [(t.example_id, t.text, t.label, t.cluster, t.benchmark) for t in texts]


QUESTIONS = Texts.of([text_of("a", "A?", "c", "tq"), text_of("b", "B?", "", "tq")])


def test_questions_and_fresh_questions_are_labelled_and_keep_their_clusters():
    fresh = Texts.of([text_of("a", "D?", "c", "tq")])
    questions = [("question/a", "A?", True, "c", "tq"), ("question/b", "B?", True, "", "tq")]
    assert parts_of(inputs.questions_alone(QUESTIONS)) == questions
    joined = inputs.questions_and_fresh(QUESTIONS, fresh)
    assert parts_of(joined) == [*questions, ("fresh/a", "D?", False, "c", "tq")]
    with pytest.raises(DataError) as error:
        inputs.questions_and_fresh(QUESTIONS, Texts.of([text_of("z", "B?")]))
    assert str(error.value) == (
        "audit.fresh: its text z is also the question b, so it is not fresh. Leave it out of one "
        "of the two files."
    )


def test_versions_belong_to_their_question_and_its_benchmark():
    versions = [text_of("v", "B!", "b"), text_of("a", "A!"), text_of("w", "A.", "a")]
    assert parts_of(inputs.questions_and_versions(QUESTIONS, Texts.of(versions))) == [
        ("question/a", "A?", True, "a", "tq"), ("question/b", "B?", True, "b", "tq"),
        ("version/0/b", "B!", False, "b", "tq"), ("version/1/a", "A!", False, "a", "tq"),
        ("version/2/a", "A.", False, "a", "tq"),
    ]  # fmt: skip
    with pytest.raises(DataError) as error:
        inputs.questions_and_versions(QUESTIONS, Texts.of([*versions, text_of("v2", "C", "z")]))
    assert str(error.value) == (
        "audit.versions: no question has the id 'z'. Give each version the column `cluster` with "
        "the id of its question."
    )
    with pytest.raises(DataError) as error:
        inputs.questions_and_versions(QUESTIONS, Texts.of(versions[1:]))
    assert str(error.value) == (
        "audit.versions: 1 questions have no version, such as 'b'. Give each question at least one."
    )


def test_blank_questions_are_left_out_of_orders():
    texts = Texts.of([text_of("a", "A?"), text_of("b", " \n"), text_of("c", "C?")])
    texts_left, notes = inputs.without_empty_texts(texts, inputs.ORDER)
    assert [text.example_id for text in texts_left] == ["a", "c"]
    assert notes == ["Texts left out because they, or all to compare with, are blank: 1."]
    assert inputs.without_empty_texts(texts_left, inputs.ORDER) == (texts_left, [])


@pytest.mark.parametrize(
    ("tokens", "shards"),
    [
        ([5, 5, 5, 20, 5, 5], [[0, 1], [4, 5]]),  # 2 has no neighbour, 3 is too long
        ([5, 5, 5, 5], [[0, 1], [2, 3]]),
        ([5, 6, 4, 1], [[1, 2]]),
        ([10, 1, 1], [[1, 2]]),
        ([3, 3, 3], [[0, 1]]),
        ([11, 11], []),
    ],
)
def test_shards_are_of_consecutive_questions_that_fit_together(tokens, shards):
    assert [*inputs._shards(tokens, 2, 10)] == shards


def test_the_published_order_comes_first_and_random_ones_follow():
    def tokenizer(strings, *, verbose):
        assert verbose is False
        return {"input_ids": [text.split() for text in strings]}

    texts = Texts.of([text_of(str(i), f"q{i} " * 8) for i in range(43)])
    shards, note = inputs.published_and_random_orders(texts, tokenizer, 30, 0)
    assert len(shards) == 20 * 14  # three of 10 tokens each fit
    orders = [t for t in shards if t.cluster == "shard 0"]
    assert [t.example_id for t in orders] == [f"shard 0/order {i}" for i in range(20)]
    assert [t.label for t in orders] == [True] + [False] * 19
    assert {t.benchmark for t in shards} == {""}
    questions = [f"q{i} " * 8 for i in range(3)]
    assert orders[0].text == "\n\n".join(questions)
    assert len({t.text for t in orders[1:]}) > 3
    assert all(sorted(t.text.split("\n\n")) == questions for t in orders)
    assert "in 14 shards" in note
    again, _ = inputs.published_and_random_orders(texts, tokenizer, 30, 0)
    assert parts_of(again) == parts_of(shards)
    of_another_seed, _ = inputs.published_and_random_orders(texts, tokenizer, 30, 1)
    assert parts_of(of_another_seed) != parts_of(shards)
    many = Texts.of([text_of(str(i), f"q{i} " * 8) for i in range(60)])
    whole, note = inputs.published_and_random_orders(many, tokenizer, None, 0)
    assert (len(np.unique([t.cluster for t in whole])), note) == (20, "")
    long = Texts.of([text_of(str(i), f"q{i} " * 1_022) for i in range(4)])
    whole, _ = inputs.published_and_random_orders(long, tokenizer, 9_999, 0)
    assert len(whole) == 40  # two of 1,024 tokens each fit into 2,048


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (
            None,
            "model.path is None: give the model: a folder, a GGUF file or a hub id (model.path=…).",
        ),
        (
            {},
            "audit.models is {}: give the models by name: audit.models={base: DIR, chat: DIR}.",
        ),
        ({"base": {"pth": "x"}}, "audit.models.base is {'pth': 'x'}: "),
    ],
)
def test_models_that_cannot_be_used_are_named(tmp_path, models, message):
    with pytest.raises(ConfigError) as error:
        Benchmark(questions="q", models=models).prepare(AuditStage(audit={}, runs=str(tmp_path)))
    assert str(error.value).startswith(message)


def test_models_by_name_are_paths_or_fields():
    stage = AuditStage(audit={}, model=ScoredModelConfig("one"))
    assert Benchmark("q")._model_nodes(stage) == {"model": ("model", stage.model)}
    models = {"base": "a/base", 3: {"path": "b", "tokenizer": "t"}}
    assert Benchmark("q", models=models)._model_nodes(stage) == {
        "base": ("audit.models.base", ScoredModelConfig("a/base")),
        "3": ("audit.models.3", ScoredModelConfig("b", tokenizer="t")),
    }


def test_the_report_names_what_the_questions_are_compared_with():
    assert Benchmark("q", fresh="f.csv")._control_path() == "f.csv"
    assert Benchmark("q", versions="v.csv")._control_path() == "v.csv"
    assert Benchmark("q", order=True)._control_path() == "order"
    assert Benchmark("q")._control_path() == "none"


def test_the_comparison_chooses_the_texts_and_their_labels(tmp_path):
    paths = {}
    for name, rows in (
        ("questions", [{"id": "a", "body": "A?"}, {"id": "b", "body": "B?"}]),
        ("fresh", [{"id": "c", "body": "C?"}, {"id": "d", "body": "D?"}]),
        ("versions", [{"id": "a", "body": "A!"}, {"id": "b", "body": "B!"}]),
    ):
        paths[name] = str(tmp_path / f"{name}.csv")
        pd.DataFrame(rows).to_csv(paths[name], index=False)

    def read(**fields):
        texts, control = Benchmark(paths["questions"], columns={"text": "body"}, **fields)._texts()
        return control, [(t.example_id, t.text, t.label) for t in texts]

    questions = [("question/a", "A?", True), ("question/b", "B?", True)]
    assert read() == (inputs.FRESH, questions)
    assert read(limit=1) == (inputs.FRESH, questions[:1])
    fresh = [("fresh/c", "C?", False), ("fresh/d", "D?", False)]
    assert read(fresh=paths["fresh"]) == (inputs.FRESH, questions + fresh)
    versions = [("version/0/a", "A!", False), ("version/1/b", "B!", False)]
    assert read(versions=paths["versions"]) == (inputs.VERSIONS, questions + versions)
    assert read(order=True) == (inputs.ORDER, [("a", "A?", None), ("b", "B?", None)])
    with pytest.raises(ConfigError) as error:
        read(versions=paths["versions"], order=True)
    assert str(error.value) == (
        "audit is 'versions and order': choose one comparison: fresh, versions or order."
    )
    for field in ("fresh", "versions"):
        with pytest.raises(DataError, match=f"^audit.{field} is 'none.csv': there is no such file"):
            read(**{field: "none.csv"})


def test_a_reference_that_is_given_is_used_and_scores_by_the_other_methods():
    unreferenced = AuditStage(audit={}, method={"loss": {"_target_": "L"}})
    assert _with_reference(unreferenced, inputs.FRESH) is unreferenced
    stage = replace(unreferenced, reference=ReferenceConfig("REF", tokenizer="t"))
    with_method = _with_reference(stage, inputs.FRESH)
    assert [*with_method.method] == ["loss", "reference"]
    assert with_method.method["loss"] == {"_target_": "L"}
    assert _with_reference(with_method, inputs.FRESH) is with_method
    assert [*_with_reference(with_method, inputs.ORDER).method] == ["loss"]
    scoring = _stage_of_reference(with_method)
    assert scoring.model == ScoredModelConfig("REF", tokenizer="t")
    assert scoring.method == stage.method
    reference_only = replace(with_method, method={"reference": with_method.method["reference"]})
    assert [*_stage_of_reference(reference_only).method] == ["loss"]

"""What an audit of questions is given: templates, columns, arguments, and errors that name them."""

import math

import pandas as pd
import pytest

from contamination.audits.base import AuditStage, add_audit_prefixes
from contamination.audits.benchmark import api, inputs
from contamination.audits.benchmark.api import audit_benchmark
from contamination.core.cli import compose_stage
from contamination.core.errors import ConfigError, DataError
from contamination.data.config import ExamplesConfig
from contamination.detection.config import DetectionStage

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
    found = api._models_by_name(None, ["a/base", "b/base", "b/chat/"])
    assert found == {"base (1)": "a/base", "base (2)": "b/base", "chat": "b/chat/"}
    found = api._models_by_name(None, ["a/base", "b/base", "b/base (2)"])
    assert list(found.values()) == ["a/base", "b/base", "b/base (2)"]

"""Templates, named columns, separators and limits of texts to score."""

import json

import pytest

from contamination.core.errors import ConfigError, DataError
from contamination.data.config import BenchmarkConfig, ExamplesConfig
from contamination.detection.examples import open_examples

ROWS = [
    {"Question": "Which state?", "answer": "Texas", "options": ["Texas", "Ohio"], "n": 3},
    {"Question": "Who?", "answer": "Ada", "options": ["Bob", "Ada"], "n": 4},
]


def opened(tmp_path, rows=ROWS, **fields):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return open_examples(ExamplesConfig(str(path), **fields))


def texts_of(*args, **fields):
    return [text.text for text in opened(*args, **fields)]


def test_a_template_is_filled_from_the_columns(tmp_path):
    template = "Q: {Question} {{{options[1]}}}\nA: {answer}"
    first, second = opened(tmp_path, template=template)
    assert first.text == "Q: Which state? {Ohio}\nA: Texas"
    assert first.text[first.output_start :] == "Texas"
    assert second.text == "Q: Who? {Ada}\nA: Ada"


def test_a_template_that_ends_with_a_literal_has_no_output(tmp_path):
    (first_text, _) = opened(tmp_path, template="{answer}: {Question} .")
    assert first_text.output_start is None
    assert opened(tmp_path, template="{answer}")[0].output_start is None
    (first_text, _) = opened(tmp_path, template="{Question} {answer}")
    assert first_text.text[first_text.output_start :] == "Texas"


def test_prompt_and_output_of_a_row_with_a_template_are_columns_like_any_other(tmp_path):
    rows = [{"Prompt": "a", "prompt": "b", "Output": "c", "output": "d", "Text": "e"}]
    assert texts_of(tmp_path, rows, template="{prompt} {Output} {Text}") == ["b c e"]


def test_columns_are_named(tmp_path):
    columns = {"question": "Question", "id": "n", "cluster": "answer"}
    first, second = opened(tmp_path, template="{question}", columns=columns)
    assert (first.text, first.example_id, first.cluster) == ("Which state?", "3", "Texas")
    assert second.example_id == "4"
    assert texts_of(tmp_path, columns={"text": "Question"}) == ["Which state?", "Who?"]


def test_a_named_column_replaces_a_field_of_the_same_name(tmp_path):
    rows = [{"text": "old", "body": "new"}]
    assert texts_of(tmp_path, rows, columns={"text": "body"}) == ["new"]


@pytest.mark.parametrize(
    ("column", "value", "answer"),
    [("answer", True, "Yes"), ("label", False, "No")],
    ids=["of the hub", "embedded"],
)
def test_a_benchmarks_name_gives_its_template_and_fields(tmp_path, column, value, answer):
    rows = [{"passage": "P.", "question": "is it", column: value}]
    (example,) = opened(tmp_path, rows, template="boolq")
    assert example.text == f"P.\nQuestion: is it?\nAnswer: {answer}"
    assert example.text[example.output_start :] == answer


@pytest.mark.parametrize(
    ("prompt", "output", "text"),
    [
        ("Which?", "Texas", "Which? Texas"),
        ("Which?\n", "Texas", "Which?\nTexas"),
        ("Which?", " Texas", "Which? Texas"),
        ("", "Texas", "Texas"),
    ],
)
def test_prompt_and_output_are_never_joined_without_white_space(tmp_path, prompt, output, text):
    (example,) = opened(tmp_path, [{"prompt": prompt, "output": output}])
    assert example.text == text
    assert example.text[example.output_start :] == output


def test_the_separator_is_the_users(tmp_path):
    rows = [{"prompt": "Which?", "output": "Texas"}]
    assert texts_of(tmp_path, rows, separator="\nAnswer: ") == ["Which?\nAnswer: Texas"]
    assert texts_of(tmp_path, rows, separator="") == ["Which?Texas"]


def test_a_limit_keeps_the_first_texts(tmp_path):
    assert texts_of(tmp_path, template="{answer}", limit=1) == ["Texas"]
    assert len(opened(tmp_path, template="{answer}", limit=9)) == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"template": "Q: {question}"}, "no column 'question', but Question, answer"),
        ({"template": "boolq"}, "no column 'answer'|no column 'passage'"),
        ({"template": "bolq"}, "examples.template is 'bolq': give a format string"),
        ({"template": "Q: {"}, "it is not a format string"),
        ({"template": "only a text."}, "it names no column"),
        ({"template": "{n:>900000000}"}, r"write only \{n\}"),
        ({"template": "{options}"}, "name one of its values"),
        ({"columns": {"text": "body"}}, "examples.columns.text is 'body'"),
        ({"limit": 0}, "examples.limit is 0"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, fields, message):
    with pytest.raises((ConfigError, DataError), match=message):
        opened(tmp_path, **fields)


def test_a_null_in_a_template_is_a_row_that_cannot_be_used(tmp_path):
    rows = [{"q": "a", "a": None}, {"q": "b", "a": "c"}]
    with pytest.raises(DataError, match="row 1"):
        opened(tmp_path, rows, template="{q} {a}")
    assert texts_of(tmp_path, rows, template="{q} {a}", on_error="skip") == ["b c"]


@pytest.mark.parametrize("template", [r"{Question}\n\tA: {answer}", "{Question}\n\tA: {answer}"])
def test_a_template_may_spell_new_lines_and_tabs(tmp_path, template):
    assert texts_of(tmp_path, template=template)[0] == "Which state?\n\tA: Texas"
    assert BenchmarkConfig(template=template).template == "{Question}\n\tA: {answer}"


def test_a_benchmarks_template_takes_plain_columns(tmp_path):
    rows = [{"question": "Which state?", "answer": "Texas"}]
    assert texts_of(tmp_path, rows, template="truthfulqa") == [
        "Question: Which state?\nAnswer: Texas"
    ]
    several = [{"question": "Which state?", "answer": ["Texas", "Ohio"]}]
    assert texts_of(tmp_path, several, template="truthfulqa") == [
        "Question: Which state?\nAnswer: Texas"
    ]


def test_a_text_has_no_parts(tmp_path):
    message = r"the column 'answer' is a text, not a list .*write only \{answer\}"
    with pytest.raises(DataError, match=message):
        opened(tmp_path, template="{Question} {answer[0]}")


@pytest.mark.parametrize("template", ["{Question}{answer}", "Q: {n} {Question}{answer}."])
def test_two_columns_with_nothing_between_are_refused(tmp_path, template):
    with pytest.raises(ConfigError, match=r"between \{Question\} and \{answer\}"):
        opened(tmp_path, template=template)


def test_a_row_without_a_text_is_told_of_templates(tmp_path):
    rows = [{"answer": "Texas", "n": 1, "question": "Which state?"}]
    remedy = r"examples.template='\{question\}\\n\{answer\}' would make a text"
    with pytest.raises(DataError, match=remedy):
        opened(tmp_path, rows)
    with pytest.raises(DataError, match=r"its fields are text\)"):
        opened(tmp_path, [{"text": None}])
    with pytest.raises(
        DataError, match=r"`text` \(it is missing or null; its fields are id\)\. Fix"
    ):
        opened(tmp_path, [{"id": 1}])
    with pytest.raises(DataError, match=r"`text` \(a int; its fields are text, question\)\. Fix"):
        opened(tmp_path, [{"text": 3, "question": "q"}])
    columns_alike = [{"text": "a", "Meta": 1, "meta": 2, "n": 3}]  # which are not read
    assert texts_of(tmp_path, columns_alike) == ["a"]
    with pytest.raises(DataError) as error:
        opened(tmp_path, template="Q: {question}")
    assert str(error.value) == (
        "examples.template is 'Q: {question}': the rows have no column 'question', but Question, "
        "answer, options, n. Use these in the template, or name the column with "
        "examples.columns.question=COLUMN."
    )
    (tmp_path / "rows.csv").write_text("q;answer\na;b\n")
    with pytest.raises(
        DataError, match=r"COLUMN\. If the file has semicolons between its columns, s"
    ):
        open_examples(ExamplesConfig(str(tmp_path / "rows.csv"), template="{q} {answer}"))

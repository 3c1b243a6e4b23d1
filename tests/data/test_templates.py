"""Rows that can't be used: null, blank, half a surrogate pair, and format strings that can't be."""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contamination.core.errors import ConfigError, DataError
from contamination.data.config import BenchmarkConfig
from contamination.injection.pool import read_candidates

GOOD = [{"question": f"Question number {i}?", "answer": [f"answer {i}"]} for i in range(30)]
FIELDS = {"question": "{question}", "answer": "{answer[0]}"}
# what stands in the third row → why it can't be used, and where that is
BAD = {
    '{"question": null, "answer": ["a"]}': "null field .'question' is null",
    '{"question": "q", "answer": [null]}': "null field .'answer.0.' is null",
    '{"question": NaN, "answer": ["a"]}': "null field .'question' is NaN",
    '{"question": "q", "answer": null}': "field can't be formatted .'{answer.0.}'",
    '{"question": "q", "answer": []}': "missing field .'{answer.0.}': list index out of range",
    '{"question": "q", "answer": "a"}': "the column 'answer' is a text, not a list",
    '{"answer": ["a"]}': "missing field .'{question}': 'question'; it has answer",
    '{"question": "", "answer": ["a"]}': "empty field .'question' is blank",
    '{"question": " \\t\\n ", "answer": ["a"]}': "empty field .'question' is blank",
    '{"question": "\\u200b", "answer": ["a"]}': "empty field .'question' is blank",
    '{"question": "\\u0000 \\ufeff", "answer": ["a"]}': "empty field .'question' is blank",
    '{"question": "q\\ud800", "answer": ["a"]}': "invalid UTF-8 .the field 'question'",
    '{"question"': "line is not JSON",
    '{"question": 1e400, "answer": ["a"]}': "number too large .'question' is beyond 1.8e308",
}


@pytest.fixture
def own(stage, tmp_path):
    """A stage whose one benchmark is a file with a line of the test's own as its third."""

    def made(line="", fields=FIELDS, **options):
        lines = [json.dumps(row) for row in GOOD]
        path = tmp_path / "mine.jsonl"
        path.write_text("\n".join([*lines[:2], line, *lines[2:]]))
        rows = {"_target_": "contamination.data.readers.files.FileRows", "path": str(path)}
        source = {"rows": rows, "fields": fields}
        template = options.pop("template", "{question} {answer}")
        config = BenchmarkConfig(template=template, sources={"file": source}, **options)
        return replace(stage, benchmark={"mine": config})

    return made


@pytest.mark.parametrize("line", BAD)
def test_a_row_that_cannot_be_used_stops_or_is_counted(own, line):
    with pytest.raises(DataError, match=rf"mine.jsonl, row 3: {BAD[line]}.*mine.on_error=skip"):
        read_candidates(own(line))
    (found,) = read_candidates(own(line, on_error="skip"))
    assert sorted(e.fields["answer"] for e in found.examples) == sorted(
        row["answer"][0] for row in GOOD
    )
    assert list(found.counts.skipped) == [BAD[line].split(" .")[0]]


def test_what_was_skipped_is_said_where_too_few_are_left(own, change):
    stage = own('{"question": null, "answer": ["a"]}', on_error="skip")
    stage = replace(stage, injection=replace(stage.injection, members=20, nonmembers=20))
    with pytest.raises(ConfigError, match=r"30 distinct examples .skipped 1 × null field., but"):
        read_candidates(stage)


def test_nulls_of_parquet_are_nulls(own, tmp_path):
    rows = [{"question": f"q{i}", "answer": None if i == 4 else "a"} for i in range(30)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "mine.parquet")
    stage = own(fields={"question": "{question}", "answer": "{answer}"}, on_error="skip")
    stage.benchmark["mine"].sources["file"]["rows"]["path"] = str(tmp_path / "mine.parquet")
    (found,) = read_candidates(stage)
    assert (len(found.examples), found.counts.skipped) == (29, {"null field": 1})


def test_words_that_read_like_nulls_are_words(own):
    line = '{"question": "None", "answer": ["null"]}'
    (found,) = read_candidates(own(line))
    assert "None null" in {e.text for e in found.examples}


@pytest.mark.parametrize(
    ("template", "match"),
    [
        ("{question", "template is '{question': it is not a format string .*expected '}'"),
        ("{question}{answer}", "between {question} and {answer}"),
        ("{question!z}", "its fields are texts: write only {question}"),
        ("{question:>999999999999}", "its fields are texts: write only {question}"),
        ("{question}}", "not a format string .*Single '}'"),
        ("no field", "it names no field"),
        ("{qestion}", "names the field 'qestion'.*Did you mean question"),
        ("{question[0]}", r"its fields are texts: write only {question\[0\]}\.$"),
    ],
)
def test_a_template_that_cannot_be_is_refused(own, template, match):
    with pytest.raises(ConfigError, match=f"benchmark.mine.*{match}"):
        read_candidates(own(template=template))


@pytest.mark.parametrize(
    ("form", "match"),
    [
        ("{question", "the field 'question' of benchmark.mine .*not a format string"),
        ("{question!z}", "row 1: field can't be formatted .*Unknown conversion"),
        ("{question:>999999999999}", "the format of 'question' is too long"),
        ("{question:d}", "row 1: field can't be formatted"),
        ("{}", "row 1: missing field"),
        ("{question.text}", "a column has no attributes: write question.text. for"),
    ],
)
def test_a_sources_format_that_cannot_be_is_refused(own, form, match):
    with pytest.raises((ConfigError, DataError), match=match):
        read_candidates(own(fields={**FIELDS, "question": form}))


def test_an_unknown_policy_is_refused(own):
    with pytest.raises(ConfigError, match="benchmark.mine.on_error is 'ignore': choose from stop"):
        read_candidates(own(on_error="ignore"))


@pytest.mark.parametrize("option", ["distinct", "shorten", "answer_field"])
def test_an_option_names_a_field_of_the_source(own, option):
    message = (
        "^benchmark.mine names the field 'passage', which its source lacks. Known: answer, question"
    )
    with pytest.raises(ConfigError, match=message):
        read_candidates(own(**{option: "passage"}))


def test_a_width_of_eight_characters_is_the_longest(own):
    fields = {**FIELDS, "question": "{question:>0000009}"}
    (benchmark,) = read_candidates(own(fields=fields))
    assert len(benchmark.examples) == 30
    with pytest.raises(ConfigError, match="too long"):
        read_candidates(own(fields={**FIELDS, "question": "{question:>00000009}"}))

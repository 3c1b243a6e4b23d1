import json
from types import SimpleNamespace

import pandas as pd
import pytest

from core.errors import DataError
from detection.examples import examples_digest, open_examples


def write(path, *lines):
    path.write_bytes(
        b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
    )
    return str(path)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "texts.jsonl"


def test_the_id_or_the_line_number_from_zero(file):
    rows = ['{"text": "a"}', "", '{"text": "b", "id": 7, "label": 1}', '{"text": "ü"}']
    found = open_examples(write(file, *rows))
    assert [(e.example_id, e.text) for e in found] == [("0", "a"), ("7", "b"), ("3", "ü")]


def test_a_line_separator_inside_a_text_is_no_new_line(file):
    text = json.dumps({"text": "a\u2028b\x85c"}, ensure_ascii=False)
    assert [e.text for e in open_examples(write(file, text))] == ["a\u2028b\x85c"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([b'{"text": "\xff"}'], "line 0 .*not JSON in UTF-8"),
        (['{"text": "a"}', "{"], "line 1 .*not JSON"),
        (['{"txt": "a"}'], "line 0 .*string as its `text`"),
        (['{"text": 3}'], "line 0 .*string as its `text`"),
        (["[1]"], "line 0 .*string as its `text`"),
        ([r'{"text": "\ud800"}'], "line 0 .*not JSON in UTF-8"),
        ([""], "no example"),
        (['{"text": "a", "id": "1"}', '{"text": "b"}'], "'1' is there twice"),
        (['{"text": "a", "benchmark": "all"}'], "'0' is of a benchmark called 'all'"),
    ],
)
def test_a_bad_line_is_named(file, lines, words):
    with pytest.raises(DataError, match=words) as error:
        open_examples(write(file, *lines))
    assert "\n" not in str(error.value)


def test_no_such_file_and_no_corpus(tmp_path):
    with pytest.raises(DataError, match="no such file or folder"):
        open_examples(str(tmp_path / "none.jsonl"))
    with pytest.raises(DataError, match="no finished corpus"):
        open_examples(str(tmp_path))


def test_a_corpuss_member_that_was_inserted_no_time_has_no_label(monkeypatch, tmp_path):
    rows = pd.DataFrame({"example_id": list("abc"), "benchmark": "x", "text": "a text",
                         "member": [True, True, False], "occurrences": [2, 0, 0]})  # fmt: skip
    rows.to_parquet(tmp_path / "examples.parquet")
    monkeypatch.setattr("injection.open_corpus", lambda _: SimpleNamespace(examples=rows))
    found = [(e.example_id, e.label) for e in open_examples(str(tmp_path))]
    assert found == [("a", True), ("b", None), ("c", False)]


def test_the_digest_is_of_ids_and_texts_in_any_order(file):
    first = open_examples(write(file, '{"text": "a", "id": 1}', '{"text": "b", "id": 2}'))
    again = open_examples(
        write(file, '{"text": "b", "id": 2, "label": 1}', '{"text": "a", "id": 1}')
    )
    other = open_examples(write(file, '{"text": "b", "id": 1}', '{"text": "a", "id": 2}'))
    assert examples_digest(first) == examples_digest(again) != examples_digest(other)

"""Texts made of rows: ids, labels, outputs and errors."""

import gzip
import json
import os
from threading import Thread
from types import SimpleNamespace

import datasets
import pandas as pd
import pytest
import zstandard

from contamination.core.errors import ConfigError, DataError
from contamination.data.config import ExamplesConfig
from contamination.data.examples import examples_digest, parse_label, parse_output_start
from contamination.detection.examples import open_examples


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
    found = open_examples(ExamplesConfig(write(file, *rows)))
    assert [(e.example_id, e.text) for e in found] == [("0", "a"), ("7", "b"), ("3", "ü")]


def test_a_labelled_benchmark_takes_no_template(file):
    message = r"^examples\.template is '\{a\}': the benchmark wikimia consists of whole texts"
    with pytest.raises(ConfigError, match=message):
        open_examples(ExamplesConfig(str(file), name="wikimia", template="{a}"))


def test_a_line_separator_inside_a_text_is_no_new_line(file):
    text = json.dumps({"text": "a\u2028b\x85c"}, ensure_ascii=False)
    assert [e.text for e in open_examples(ExamplesConfig(write(file, text)))] == ["a\u2028b\x85c"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([b'{"text": "\xff"}'], "row 1: invalid UTF-8"),
        (['{"text": "a"}', "{"], "row 2: line is not JSON"),
        (['{"txt": "a"}'], "row 1: no string as its `text` .*its fields are txt"),
        (['{"text": 3}'], "row 1: no string as its `text` .a int"),
        (["[1]"], "row 1: line is not an object"),
        ([r'{"text": "\ud800"}'], "row 1: invalid UTF-8"),
        (['{"text": "a", "label": "perhaps"}'], "row 1: label is 'perhaps' .give 1, true"),
        (['{"text": "a", "label": 2}'], "row 1: label is 2"),
        (['{"text": "a", "label": NaN}'], "row 1: label is nan .give 1, true"),
        (['{"text": "a", "id": {"n": 1}}'], "row 1: a nested `id` .a dict; give a text"),
        (['{"text": "a", "benchmark": ["b"]}'], "row 1: a nested `benchmark` .a list"),
        (
            ['{"text": "a", "label": 1, " Label": 0}'],
            "row 1: two fields of one name .* label,  Label",
        ),
        ([""], "no example"),
        (
            ['{"text": "a"}', '{"text": "b", "meta": {"quality": [0.5, 1e400]}}'],
            "row 2: number too large .'meta.quality.1' is beyond 1.8e308; give a smaller number",
        ),
        (['{"text": "a", "label": -1e400}'], "row 1: number too large .'label' is beyond"),
        (['{"text": "a", "n": ' + "9" * 400 + "}"], "row 1: number too large .'n' is beyond"),
        (["1e400"], "row 1: number too large .it is beyond"),
        (['{"a": 1e400, "a": 1}'], "row 1: number too large .the number 1e400 is beyond"),
        (["[1e400, " + "[" * 100_000], "row 1: number too large .the number 1e400 is beyond"),
        (['{"text": "a", "id": "1"}', '{"text": "b"}'], "'1' occurs twice"),
        (['{"text": "a", "benchmark": "all"}'], "the benchmark of '0' is called 'all'"),
    ],
)
def test_a_bad_line_is_named(file, lines, words):
    with pytest.raises(DataError, match=words) as error:
        open_examples(ExamplesConfig(write(file, *lines)))
    assert "\n" not in str(error.value)


def test_a_text_with_both_labels_is_named_in_a_warning(file, caplog):
    labels = zip("abcab", [1, 0, 1, 0, None], strict=True)
    rows = [{"text": text, "label": label} for text, label in labels]
    open_examples(ExamplesConfig(write(file, *map(json.dumps, rows))))
    (warning,) = caplog.messages
    assert warning.endswith(
        ": 1 text occurs both as a member and as a non-member, such as 0 and 3. No score can tell "
        "these apart, so every AUROC is nearer to 0.5. Remove them, or give both the same label."
    )
    caplog.clear()
    rows += [{"text": "c", "label": 0}]
    open_examples(ExamplesConfig(write(file, *map(json.dumps, rows))))
    assert ": 2 texts occur both as a member" in caplog.messages[0]


def test_no_such_file_and_no_corpus(tmp_path):
    with pytest.raises(DataError) as error:
        open_examples(ExamplesConfig(str(tmp_path / "none.jsonl")))
    assert str(error.value) == (
        f"examples.path is {str(tmp_path / 'none.jsonl')!r}: there is no such file or folder. Give "
        "a corpus folder, a JSONL, CSV, TSV or Parquet file with a `text` in each row, a folder "
        "that datasets' save_to_disk wrote, a hub id such as OWNER/NAME, or - for standard input."
    )
    with pytest.raises(DataError, match="neither a finished corpus"):
        open_examples(ExamplesConfig(str(tmp_path)))


def test_a_corpuss_member_that_was_inserted_no_time_has_no_label(monkeypatch, tmp_path):
    rows = pd.DataFrame({"example_id": list("abc"), "benchmark": "x", "text": "a text",
                         "member": [True, True, False], "occurrences": [2, 0, 0]})  # fmt: skip
    rows.to_parquet(tmp_path / "examples.parquet")
    monkeypatch.setattr(
        "contamination.injection.open_corpus", lambda _: SimpleNamespace(examples=rows)
    )
    found = [(e.example_id, e.label) for e in open_examples(ExamplesConfig(str(tmp_path)))]
    assert found == [("a", True), ("b", None), ("c", False)]


def test_the_digest_is_of_ids_and_texts_in_any_order(file):
    first = open_examples(
        ExamplesConfig(write(file, '{"text": "a", "id": 1}', '{"text": "b", "id": 2}'))
    )
    rows = ['{"text": "b", "id": 2, "label": 1}', '{"text": "a", "id": 1}']
    again = open_examples(ExamplesConfig(write(file, *rows)))
    other = open_examples(
        ExamplesConfig(write(file, '{"text": "b", "id": 1}', '{"text": "a", "id": 2}'))
    )
    assert examples_digest(first) == examples_digest(again) != examples_digest(other)


LABELS = [
    (False, ["non_member", "Non-Member", " NON MEMBER ", "non‑member", "nonmember"]),
    (True, ["Member", " member "]),
    (True, [1, 1.0, True, "1", "1.0", "true", "TRUE", "Yes", "member", " Member "]),
    (False, [0, 0.0, False, "0", "0.0", "false", "No", "non-member", "Nonmember", "NON-MEMBER"]),
    (None, [None, "", " ", pd.NA]),
]


@pytest.mark.parametrize(("label", "given"), [(k, v) for k, values in LABELS for v in values])
def test_labels_in_words_and_numbers(label, given):
    assert parse_label(given) is label


ROWS = [
    {"id": "x", "text": "one, two\nthree", "label": "member", "benchmark": "b"},
    {"id": "", "text": "four", "label": "", "benchmark": ""},
    {"id": "z", "text": "five \u2028 six", "label": "No", "benchmark": ""},
]
FOUND = [
    ("x", ROWS[0]["text"], True, "b"),
    ("1", "four", None, ""),
    ("z", ROWS[2]["text"], False, ""),
]


def jsonl(file):
    return "".join(json.dumps(row) + "\n" for row in ROWS).encode()


WRITERS = {
    "jsonl": lambda file: file.write_bytes(jsonl(file)),
    "jsonl.gz": lambda file: file.write_bytes(gzip.compress(jsonl(file))),
    "jsonl.zst": lambda file: file.write_bytes(zstandard.compress(jsonl(file))),
    "csv": lambda file: pd.DataFrame(ROWS).to_csv(file, index=False),
    "tsv": lambda file: pd.DataFrame(ROWS).to_csv(file, index=False, sep="\t"),
    "parquet": lambda file: pd.DataFrame(ROWS).to_parquet(file),
    "saved": lambda file: datasets.Dataset.from_list(ROWS).save_to_disk(str(file)),
    "splits": lambda file: datasets.DatasetDict(
        {"train": datasets.Dataset.from_list(ROWS)}
    ).save_to_disk(str(file)),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_of_file_gives_the_same_texts(tmp_path, kind):
    file = tmp_path / f"texts.{kind}"
    WRITERS[kind](file)
    found = open_examples(ExamplesConfig(str(file)))
    assert [(e.example_id, e.text, e.label, e.benchmark) for e in found] == FOUND


@pytest.fixture
def given(file):
    """Gives this process a standard input."""
    own = os.dup(0)

    def give(content):
        file.write_bytes(content)
        with file.open("rb") as stream:
            os.dup2(stream.fileno(), 0)

    yield give
    os.dup2(own, 0)
    os.close(own)


def test_standard_input_is_jsonl_or_what_format_says(given, file, monkeypatch):
    given(jsonl(None))
    found = open_examples(ExamplesConfig("-"))
    assert [(e.example_id, e.text, e.label, e.benchmark) for e in found] == FOUND
    os.fstat(0)  # it stays open
    WRITERS["csv"](file)
    given(file.read_bytes())
    found = open_examples(ExamplesConfig("-", format="csv"))
    assert [(e.example_id, e.text, e.label, e.benchmark) for e in found] == FOUND
    given(b"")
    with pytest.raises(DataError, match="examples.path is '-': it has no example"):
        open_examples(ExamplesConfig("-"))
    for kind in ("parquet", "text", "xml"):
        with pytest.raises(ConfigError, match=f"^examples.format is '{kind}': choose from jsonl, "):
            open_examples(ExamplesConfig("-", format=kind))
    given(b"{")
    with pytest.raises(DataError, match="^standard input, row 1: line is not JSON"):
        open_examples(ExamplesConfig("-"))
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(DataError, match="^standard input: unreadable shard .it is closed"):
        open_examples(ExamplesConfig("-"))


def test_bad_rows_are_left_out_and_counted_where_asked(file, caplog):
    rows = ['{"text": "a", "label": "?"}', "{", '{"text": "b"}', '{"t": 1}', '{"text": "c"}']
    found = open_examples(ExamplesConfig(write(file, *rows), on_error="skip"))
    assert [(e.example_id, e.text) for e in found] == [("2", "b"), ("4", "c")]
    for said in ("1 × label is '?'", "1 × line is not JSON", "1 × no string as its `text`"):
        assert said in caplog.text


def test_a_split_that_is_not_there(tmp_path):
    datasets.DatasetDict({"test": datasets.Dataset.from_list(ROWS)}).save_to_disk(str(tmp_path))
    with pytest.raises(DataError, match="examples.split is 'train': the data set has test"):
        open_examples(ExamplesConfig(str(tmp_path)))


NAMED = datasets.Features({
    "text": datasets.Value("string"),
    "Label": datasets.ClassLabel(names=["member", "nonmember"]),
    "benchmark": datasets.ClassLabel(names=["boolq", "imdb"]),
})  # fmt: skip
NUMBERED = [
    {"text": "a", "Label": 0, "benchmark": 1},
    {"text": "b", "Label": 1, "benchmark": 0},
    {"text": "c", "Label": -1, "benchmark": None},
]
LOAD = datasets.load_dataset


def from_hub(folder, monkeypatch):
    """The data set as the hub streams it."""
    to_parquet(folder, monkeypatch)
    stored = str(folder / "rows.parquet")

    def load(path, config, *, split, revision, streaming):
        assert (path, config, split, revision) == ("owner/name", "short", "test", None)
        return LOAD("parquet", data_files={split: stored}, split=split, streaming=streaming)

    monkeypatch.setattr("datasets.load_dataset", load)
    return "owner/name"


def saved(folder, monkeypatch):
    rows = datasets.Dataset.from_list(NUMBERED, features=NAMED)
    rows.with_format("numpy").save_to_disk(str(folder))
    return str(folder)


def to_parquet(folder, monkeypatch):
    datasets.Dataset.from_list(NUMBERED, features=NAMED).to_parquet(str(folder / "rows.parquet"))
    return str(folder / "rows.parquet")


@pytest.mark.parametrize("make", [from_hub, saved, to_parquet])
def test_classes_go_by_their_names(tmp_path, monkeypatch, make):
    path = make(tmp_path, monkeypatch)
    found = open_examples(ExamplesConfig(path, split="test", subset="short"))
    assert [(e.text, e.label, e.benchmark) for e in found] == [
        ("a", True, "imdb"), ("b", False, "boolq"), ("c", None, ""),
    ]  # fmt: skip


def test_names_of_columns_count_without_blanks_in_any_case(tmp_path, caplog):
    file = tmp_path / "texts.csv"
    path = write(file, " ID,Text , label,gold_labels", "7, one,no,yes", ",two, Member,yes")
    found = [(e.example_id, e.text, e.label) for e in open_examples(ExamplesConfig(path))]
    assert found == [("7", " one", False), ("1", "two", True)]
    assert not caplog.messages


def test_blanks_after_the_commas_of_a_header_are_none_of_the_texts(tmp_path):
    path = write(tmp_path / "texts.csv", "id, text, label", '1, "one, two", yes', "2, three,0")
    found = [(e.example_id, e.text, e.label) for e in open_examples(ExamplesConfig(path))]
    assert found == [("1", "one, two", True), ("2", "three", False)]
    found = open_examples(ExamplesConfig(write(tmp_path / "texts.csv", "text", " a blank")))
    assert [e.text for e in found] == [" a blank"]


def test_a_column_twice_and_plain_text_are_refused(tmp_path):
    path = write(tmp_path / "texts.csv", "text,label,,,label", "a,1,,,0")
    with pytest.raises(DataError, match="texts.csv: .*the column 'label' occurs twice"):
        open_examples(ExamplesConfig(path))
    with pytest.raises(ConfigError, match="examples.path is .*: plain text has no rows"):
        open_examples(ExamplesConfig(write(tmp_path / "texts.txt", "a", "b")))


def test_a_pipe_is_read_as_standard_input_is(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = Thread(target=(tmp_path / "pipe").write_bytes, args=(jsonl(None),))
    writer.start()
    found = open_examples(ExamplesConfig(str(tmp_path / "pipe")))
    writer.join()
    assert [(e.example_id, e.text, e.label, e.benchmark) for e in found] == FOUND


@pytest.mark.parametrize("name", ["labels", "Is_Member", "gold label"])
def test_a_column_that_looks_like_a_label_is_said(tmp_path, caplog, name):
    path = write(tmp_path / "texts.csv", f"text,{name}", "one,1", "two,0")
    assert [e.label for e in open_examples(ExamplesConfig(path))] == [None, None]
    (said,) = caplog.messages
    assert f"its column {name!r} is not read. If it is the label, call it `label`." in said


def test_whole_ids_have_no_decimals_and_a_missing_one_is_the_rows_number(tmp_path, file):
    frame = pd.DataFrame({"text": ["a", "b", "c"], "id": [7.0, None, 2.5]})
    frame.to_parquet(tmp_path / "texts.parquet")
    rows = ['{"text": "a", "id": 7.0}', '{"text": "b", "id": NaN}', '{"text": "c", "id": 2.5}']
    for path in (str(tmp_path / "texts.parquet"), write(file, *rows)):
        found = open_examples(ExamplesConfig(path))
        assert [e.example_id for e in found] == ["7", "1", "2.5"]


@pytest.mark.parametrize("start", [None, "", float("nan"), pd.NA, 3, 3.0, "3", 0, 4])
def test_an_output_starts_at_a_place_of_the_text_or_there_is_none(start):
    is_none = start is None or start is pd.NA or start == "" or start != start
    assert parse_output_start(start, "text") == (None if is_none else int(start))


@pytest.mark.parametrize("start", [True, 2.5, "2.5", -1, 5, "x", [1], float("inf"), 10**400])
def test_a_place_that_is_not_in_the_text_is_refused(file, start):
    with pytest.raises(IndexError):
        parse_output_start(start, "text")
    if start == 5:
        message = (
            r"row 1: output_start is 5 \(give a whole number from 0 to 4, the number of characters"
        )
        row = json.dumps({"text": "text", "output_start": start})
        with pytest.raises(DataError, match=message):
            open_examples(ExamplesConfig(write(file, row)))

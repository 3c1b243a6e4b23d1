"""What is stored is data: no code, no loop, no endless memory, no file elsewhere."""

import json
import os
import time
from dataclasses import dataclass

import pytest
import yaml

from contamination.core import stored_files
from contamination.core.stored_files import (
    MAX_DEPTH,
    check_name_inside_folder,
    check_yaml,
    check_yaml_limits,
    count_nodes,
    escape_interpolations,
    hydra_keys_in,
    is_inside,
    parse_json,
    parse_typed,
    parse_yaml,
    read_text,
)

BOMB = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefghijklmn", "bcdefghijklmno", strict=True)
)


def test_plain_yaml_is_read_as_it_was_written():
    assert parse_yaml(yaml.safe_dump({"time": "08:00:00"})) == {"time": "08:00:00"}
    text = "a: {b: [1, 2.5, null, 'x: y', '1:30']}\n'n': yes\n"
    assert parse_yaml(text) == {"a": {"b": [1, 2.5, None, "x: y", "1:30"]}, "n": True}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, r"line 2 has the alias \*a"),
        ("a: &x {b: *x}", "the alias"),
        ("a: !!python/object/apply:os.mkdir [x]", "the tag tag:yaml.org,2002:python/object"),
        ("a: !mine 3", "the tag !mine"),
        ("a: 1\n---\nb: 2", "a second document"),
        ("[1, 2]", "not a mapping"),
        ("1: 2", "not a mapping of fields"),
        ("", "not a mapping"),
        ("a: [", "while parsing"),
        ("a: \x00", "control characters"),
        ("a: " + "[" * 100 + "]" * 100, "nested more than 50"),
        ("a: " + "1:" * 60_000 + "1", "more than 100,000 characters"),
        ("a: 2001-99-99", "month must be in"),
        ("a: " + "9" * 5000, "integer string"),
        ("a: 1" + ":0" * 400 + ".5", "a number in base 60"),
        ("a: 190:20:30", "line 1 has 190:20:30, a number in base 60"),
        ("a:\n- b\n- -1" + ":1" * 40_000, "line 3 has -1:1:.* a number in base 60"),
    ],
)
def test_other_yaml_is_a_value_error_at_once(text, words):
    began = time.monotonic()
    with pytest.raises(ValueError, match=words):
        parse_yaml(text)
    assert time.monotonic() - began < 5


def test_the_number_of_values_is_limited(monkeypatch):
    monkeypatch.setattr(stored_files, "MAX_NODES", 100)
    with pytest.raises(ValueError, match="more than 100 values"):
        parse_yaml("a: [" + "1, " * 200 + "1]")


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 10**5])
def test_json_that_is_nested_deeply_is_a_value_error(depth):
    with pytest.raises(ValueError, match=f"nested more than {MAX_DEPTH} deep"):
        parse_json("[" * depth + "]" * depth)
    assert parse_json('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize(
    "text", ["1e400", "-1e400", "9" * 400 + ".0", "9" * 400, '{"a": [1, {"b": 1e309}]}']
)
def test_a_number_that_python_would_read_as_infinity_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"the number \S+ is beyond 1.8e308"):
        parse_json(text)
    assert parse_json("[1e308, 1e-400, -0.5]") == [1e308, 0.0, -0.5]


def test_only_a_regular_file_of_a_limited_size_is_read(tmp_path):
    file = tmp_path / "a.json"
    file.write_text("abc")
    assert read_text(file, 3) == "abc"
    with pytest.raises(ValueError, match="more than 2 bytes"):
        read_text(file, 2)
    os.mkfifo(tmp_path / "pipe")
    for odd in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ValueError, match="not a regular file"):
            read_text(odd)
    file.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="utf-8"):
        read_text(file)


@pytest.mark.parametrize("name", ["a.txt", "hf/model.bin", "a..b", "sequences/ü-0.arrow", ".x"])
def test_a_name_inside_the_folder_is_taken(name):
    check_name_inside_folder(name)


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "..", "../x", "a/../../x", "a//b", "./a", "a/", "a\n", "\x1b[2J", "a\\b"],
)
def test_a_name_that_leads_elsewhere_is_refused(name):
    with pytest.raises(ValueError, match="not a file name inside the folder"):
        check_name_inside_folder(name)


def test_links_are_followed_to_see_where_a_file_is(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("a")
    (tmp_path / "in-beside").write_text("b")
    (tmp_path / "in" / "same").symlink_to("a")
    (tmp_path / "in" / "out").symlink_to("../in-beside")
    assert [is_inside(tmp_path / "in", name) for name in ("a", "same", "out")] == [1, 1, 0]


@dataclass(frozen=True)
class Record:
    name: str
    sizes: dict[str, int]
    step: int | None = None


def test_plain_data_becomes_a_record_or_names_its_field():
    assert parse_typed({"name": "a", "sizes": {"x": 1}}, Record) == Record("a", {"x": 1})
    for value, words in [
        ({"sizes": {}}, "name is missing"),
        ({"name": "a", "sizes": {}, "x": 1}, "x is unknown"),
        ({"name": 3, "sizes": {}}, "name is 3"),
        ({"name": "a", "sizes": {"x": True}}, "sizes.x is true"),
        ({"name": "a", "sizes": {}, "step": "1"}, 'step is "1"'),
        ([], r"it is \[\]"),
    ]:
        with pytest.raises(ValueError, match=words):
            parse_typed(value, Record)


def test_keys_that_call_code_are_found_at_any_depth():
    assert hydra_keys_in({"a": [{"b": {"_target_": "x"}}], "_partial_": True}) == [
        "_partial_",
        "_target_",
    ]
    assert hydra_keys_in({"a": "_target_", "b": [1, None]}) == []


def test_a_literal_text_refers_to_nothing():
    from omegaconf import OmegaConf

    texts = {"a": "${oc.env:HOME}", "b": ["\\${a}", {"c": "$"}]}
    made = OmegaConf.create(escape_interpolations(texts))
    assert OmegaConf.to_container(made, resolve=True) == json.loads(json.dumps(texts))


def nested(depth):
    return {"x": nested(depth - 1)} if depth else 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            {"a": {"b": ["x" * 100_001]}},
            "^a.b.0 is 'xxx.*… of 100,001 characters, but at most 100,000 can",
        ),
        ({"a": {"x" * 100_001: 1}}, "^a name in a is 'xxx"),
        (
            {"a": 1, "b": {"c": [1] * 200, "d": 2}},
            "^b.c has 201 of 209 values and names, but at most 200 ",
        ),
        ({"a": [1] * 100, "b": [1] * 100}, "^the configuration has 205 of 205 values and names"),
        ({"a": nested(MAX_DEPTH)}, r"^a(\.x)+ is nested more than 50 deep: give a flatter value"),
    ],
    ids=["text", "name", "values", "values everywhere", "depth"],
)
def test_what_could_not_be_read_again_is_named_before_it_is_written(value, words):
    with pytest.raises(ValueError, match=words):
        check_yaml_limits(value, 200)


@pytest.mark.parametrize(
    "value",
    [{"a": "x" * 100_000}, {"a": [1] * 197}, {"a": {"b": [1] * 195}}, nested(MAX_DEPTH)],
)
def test_the_limits_of_writing_are_those_of_reading(value):
    check_yaml_limits(value, 200)
    text = yaml.safe_dump(value)
    check_yaml(text, count_nodes(value))
    assert parse_yaml(text) == value
    with pytest.raises(ValueError, match="has more than"):
        check_yaml(text, count_nodes(value) - 1)

"""docs/fields.md is what the config dataclasses say."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from contamination.core.commands import command_schema
from contamination.core.config import Ranged, at_least, ranged_field
from contamination.core.field_docs import (
    FieldDoc,
    comment_by_field,
    describe_dataclass,
    read_choices,
)
from contamination.launch.field_reference import COMMANDS, render_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fields.md"


@dataclass(frozen=True)
class Inner(Ranged, node="inner"):
    """Inside."""

    count: int = ranged_field(3, at_least(1))
    """How many,
    in words."""


@dataclass(frozen=True, kw_only=True)
class Outer(Inner):
    """The first paragraph.

    The second.
    """

    name: str
    inner: Inner = field(default_factory=Inner)
    several: dict[str, Inner] = field(default_factory=dict)
    shares: list[float | None] = ranged_field([0.5, None], None)
    """Of | all."""
    hidden: int = field(default=0, init=False)


def test_the_page_is_up_to_date():
    """Otherwise: python -m contamination.launch.field_reference > docs/fields.md."""
    assert PAGE.read_text() == render_page()


def test_a_dataclass_is_described_with_its_nodes_and_inherited_fields():
    schema = describe_dataclass(Outer, {"name": "From conf.", "count": "not this"})
    assert schema.text == "The first paragraph."
    assert schema.fields == (
        FieldDoc("count", "int", "3", "1 or more", "How many, in words."),
        FieldDoc("name", "str", "", "", "From conf."),
        FieldDoc("shares", "list[float | None]", "[0.5, null]", "", "Of | all."),
    )
    assert schema.nodes == {"inner": Inner, "several": Inner}


def test_comments_of_a_file_may_have_several_lines(tmp_path):
    text = "a: 1   # one\n       # and more\nb: 2\n# a line of its own\nc: 3  # three\n"
    (tmp_path / "x.yaml").write_text(text)
    assert comment_by_field(tmp_path / "x.yaml") == {"a": "one and more", "c": "three"}


@pytest.mark.parametrize(
    ("file", "name", "default"),
    [("pipeline", "base_corpus", "embedded"), ("build", "source", ""),
     ("view", "method", "[loss, min_k_plus_plus, infilling]"), ("view", "examples", "null")],
)  # fmt: skip
def test_choices_are_those_of_the_defaults_list(file, name, default):
    (choice,) = [choice for choice in read_choices(file) if choice.name == name]
    assert choice.default == default
    assert choice.file_names


def test_launch_has_the_nodes_of_its_stages():
    nodes = command_schema(COMMANDS["launch"]).nodes
    assert nodes["cluster"].__name__ == "ClusterConfig"
    assert {"injection", "training", "detection", "analysis", "second_stage"} <= {*nodes}
    assert "examples" not in nodes


@pytest.mark.parametrize("command", COMMANDS)
def test_every_field_of_a_node_has_a_type_and_a_default_that_can_be_written(command):
    for node in command_schema(COMMANDS[command]).nodes.values():
        for item in describe_dataclass(node).fields:
            assert item.type
            assert "object at" not in item.default

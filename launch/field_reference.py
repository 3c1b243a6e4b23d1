"""The reference of all configuration fields, read from the config dataclasses.

    python -m contamination.launch.field_reference > docs/fields.md

The commands and their dataclasses are those of `conf/help.yaml`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping

from contamination.core.cli import run_tool
from contamination.core.commands import command_schema, read_commands
from contamination.core.config import CONF
from contamination.core.field_docs import (
    ConfChoice,
    FieldDoc,
    Schema,
    comment_by_field,
    describe_dataclass,
    read_choices,
)
from contamination.core.process_startup import PACKAGES
from contamination.core.stored_files import read_yaml

COMMANDS = {
    command.module: command
    for package in PACKAGES
    for command in read_commands().values()
    if command.module.split()[:1] == [package] and command.schemas and not command.choice
}
"""Each command below `python -m` that has a configuration of its own."""


HEAD = """\
# Configuration fields

`python -m contamination.launch.field_reference > docs/fields.md` writes this page from the
code, and a test compares the two. Edit the dataclasses, not this page.

Every command takes `field=value`. A field of a node is given with the node's name before it, such
as `injection.members=50`. The defaults are those of the dataclasses; a file in `conf/`, such as an
experiment or a model, may set other values. To see the values that a command will use, add
`--cfg job` to it. A field may be `null` where its type includes `None`. A value outside its range
is an error that names the field.
"""


COMMON = ("name", "seed", "runs", "verify")
"""Fields of conf/common.yaml, which every command has."""


def render_page() -> str:
    """The whole page."""
    schemas = {module: command_schema(command) for module, command in COMMANDS.items()}
    return "\n".join([HEAD, *_render_commands(schemas), *_render_nodes(schemas), *_render_groups()])


def _render_commands(schemas: Mapping[str, Schema]) -> Iterator[str]:
    yield "## Commands\n"
    yield "### Every command\n"
    common, comments = read_yaml(CONF / "common.yaml"), comment_by_field(CONF / "common.yaml")
    shared = [
        FieldDoc(name, type(common[name]).__name__, str(common[name]), "", comments[name])
        for name in COMMON
    ]
    yield from _render_table(tuple(shared))
    for module, schema in schemas.items():
        yield f"### python -m {module}\n"
        nodes = [f"[`{name}`](#{_anchor(node_class)})" for name, node_class in schema.nodes.items()]
        if nodes:
            yield f"Nodes: {', '.join(nodes)}.\n"
        rows = {field.name: field for field in schema.fields if field.name not in COMMON}
        rows |= {
            choice.name: choice.as_field_doc for choice in read_choices(COMMANDS[module].config)
        }
        if rows:
            yield from _render_table(tuple(rows.values()))


def _render_nodes(schemas: Mapping[str, Schema]) -> Iterator[str]:
    """A section for each dataclass that is a node, with the names that it goes by."""
    yield "## Nodes\n"
    waiting = [(name, node_class) for s in schemas.values() for name, node_class in s.nodes.items()]
    names_by_class: dict[type, list[str]] = {}
    while waiting:
        name, node_class = waiting.pop(0)
        if name in names_by_class.setdefault(node_class, []):
            continue
        names_by_class[node_class].append(name)
        waiting += describe_dataclass(node_class).nodes.items()
    for node_class, node_names in sorted(names_by_class.items(), key=lambda item: item[0].__name__):
        schema = describe_dataclass(node_class)
        yield f"### {node_class.__name__}\n"
        text = re.sub(r" \(node `\w+`\)", "", schema.text)
        yield f"{text} Node: {', '.join(f'`{name}`' for name in sorted(node_names))}.\n"
        if nested := [f"[`{name}`](#{_anchor(node)})" for name, node in schema.nodes.items()]:
            yield f"Nodes in it: {', '.join(nested)}.\n"
        yield from _render_table(schema.fields)


GROUPS = ("occurrences", "corpus", "rewording", "method", "audit", "source", "format", "matcher")
"""Folders of conf/ whose files name a class each, with the fields of that class."""


def _render_groups() -> Iterator[str]:
    yield "## Choices\n"
    for group in GROUPS:
        yield f"### {group}\n"
        choice = ConfChoice(group, group, "")
        for name in choice.file_names:
            if (schema := choice.schema(name)) is None:
                continue
            yield f"**`{group}={name}`** {schema.text}\n"
            yield from _render_table(schema.fields) if schema.fields else ()


def _render_table(fields: tuple[FieldDoc, ...]) -> Iterator[str]:
    rows = [["field", "type", "default", "range", "meaning"], ["---"] * 5]
    for field in fields:
        default = _render_code(field.default) if field.default else "required"
        cells = [
            _render_code(field.name),
            _render_code(field.type),
            default,
            field.range,
            field.text,
        ]
        rows.append([cell or "–" for cell in cells])
    lines = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    yield "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _render_code(text: str) -> str:
    return f"`{text}`"


def _anchor(schema: type) -> str:
    return schema.__name__.lower()


if __name__ == "__main__":
    sys.exit(run_tool(lambda: print(render_page(), end="")))

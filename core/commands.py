"""The commands of the command line, read from `conf/help.yaml`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from contamination.core.config import CONF
from contamination.core.field_docs import (
    FieldDoc,
    Schema,
    comment_by_field,
    describe_dataclass,
    format_value,
    load_class,
    read_choices,
)
from contamination.core.stored_files import read_yaml

COMMANDS_FILE = CONF / "help.yaml"


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command or sub-command.

    Attributes:
        name: the words after `contamination`, such as `detect view`.
        module: the words after `python -m`, such as `detection view`; empty if there is no module.
        purpose: what it does; lists of commands show the first sentence.
        example: example arguments.
        docs: the documentation page.
        group: the heading in the list of all commands; empty: that of the previous command.
        config: its file in `conf/`, without the suffix; empty if it is not a Hydra application.
        schemas: import paths of its config dataclasses, relative to `contamination`; if two of them
            have a node of the same name, the first one is used.
        choice: the choice that the sub-command makes, such as `audit=books`.
        fields: the names of the most important fields.
        words: the meaning of each argument, for a command that is not a Hydra application.
    """

    name: str
    module: str
    purpose: str
    example: str
    docs: str
    group: str = ""
    config: str = ""
    schemas: tuple[str, ...] = ()
    choice: str = ""
    fields: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """The last word of its name."""
        return self.name.rpartition(" ")[2]

    @property
    def summary(self) -> str:
        """The first sentence of the purpose."""
        return self.purpose.partition(". ")[0].removesuffix(".")


@cache
def read_commands() -> Mapping[str, Command]:
    """Returns all commands by name, in the table's order."""
    commands = {}
    for name, node in read_yaml(COMMANDS_FILE)["commands"].items():
        schemas, fields = tuple(node.pop("schemas", ())), tuple(node.pop("fields", ()))
        commands[name] = Command(name=name, schemas=schemas, fields=fields, **node)
    return commands


def command_of_module(words: str) -> Command | None:
    """Returns the command that `python -m <words>` runs, or None."""
    return next((c for c in read_commands().values() if c.module == words), None)


def subcommands(command: Command) -> list[Command]:
    """Returns the sub-commands of a command."""
    prefix = re.compile(rf"{re.escape(command.module or command.name)} [\w-]+")
    return [c for c in read_commands().values() if prefix.fullmatch(c.module)]


def command_schema(command: Command) -> Schema:
    """Returns the fields of a command's first dataclass, and the nodes of all its dataclasses."""
    comments = comment_by_field(CONF / "common.yaml")
    comments |= comment_by_field(CONF / f"{command.config}.yaml")
    first, *others = [describe_dataclass(load_class(c), comments) for c in command.schemas]
    nodes = {name: node for s in (*others[::-1], first) for name, node in s.nodes.items()}
    if others:
        read = {choice.name for choice in read_choices(command.config)} | {"wandb"}
        read |= _typed_nodes(command.config)
        nodes = {n: nodes[n] for n in nodes if n in read}
    return dataclasses.replace(first, nodes=nodes)


def _typed_nodes(file: str) -> set[str]:
    """The names of the config nodes to which conf/<file>.yaml gives a schema."""
    defaults = [e for e in read_yaml(CONF / f"{file}.yaml")["defaults"] if isinstance(e, str)]
    return {re.split("[/@]", e)[-1] for e in defaults if e.startswith("schema/")}


def describe_field(command: Command, name: str) -> FieldDoc:
    """Returns the description of a field, with its default in this command.

    Args:
        command: a Hydra application.
        name: a plain field, a choice, or a field of a node, such as `training.learning_rate`.

    Raises:
        KeyError: the command has no such field.
    """
    description = next(_find_field(command, name), None)
    if description is None:
        raise KeyError(f"{command.name} has no field {name}")
    files = (
        [command.config, command.choice.replace("=", "/")] if command.choice else [command.config]
    )
    for value in (_value_in_file(file, name) for file in files):
        if value is not None and "${" not in value:
            description = dataclasses.replace(description, default=value)
    return dataclasses.replace(description, name=name)


def _find_field(command: Command, name: str) -> Iterator[FieldDoc]:
    """Yields the descriptions of a field, the most specific first."""
    yield from _find_common_field(name)
    choices = {choice.name: choice for choice in read_choices(command.config)}
    if name in choices:
        default = _overridden_choices(command).get(name, choices[name].default)
        choice = dataclasses.replace(choices[name], default=default)
        yield dataclasses.replace(choice.as_field_doc, text=_choice_texts()[name])
    *node_names, last = name.split(".")
    schema: Schema | None = command_schema(command)
    for node_name in node_names:
        node = schema.nodes.get(node_name) if schema else None
        schema = describe_dataclass(node) if node else None
    if schema:
        yield from (field for field in schema.fields if field.name == last)
    group = node_names[0] if node_names else ""
    if group in choices:
        chosen = command.choice.removeprefix(f"{group}=")
        for file in (chosen, choices[group].default, *choices[group].file_names):
            schema = choices[group].schema(file)
            yield from (f for f in (schema.fields if schema else ()) if f.name == last)


def _overridden_choices(command: Command) -> dict[str, str]:
    """The sub-command's own defaults for choices of the command: group → default."""
    file = command.choice.replace("=", "/")
    if not file or "defaults" not in read_yaml(CONF / f"{file}.yaml"):
        return {}
    return {choice.group: choice.default for choice in read_choices(file)}


def _find_common_field(name: str) -> Iterator[FieldDoc]:
    values = read_yaml(CONF / "common.yaml")
    comments = comment_by_field(CONF / "common.yaml")
    if name in comments:
        yield FieldDoc(name, type(values[name]).__name__, str(values[name]), "", comments[name])


def _choice_texts() -> Mapping[str, str]:
    texts: Mapping[str, str] = read_yaml(COMMANDS_FILE)["choices"]
    return texts


def _value_in_file(file: str, name: str) -> str | None:
    """The value of a field in conf/<file>.yaml, as it is written on the command line."""
    value: Any = read_yaml(CONF / f"{file}.yaml")
    for key in name.split("."):
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return format_value(value)

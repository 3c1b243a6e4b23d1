"""The reference of all configuration fields, read from the config dataclasses.

    python -m contamination.launch.field_reference > docs/fields.md

`COMMANDS` names the dataclasses of each command. The descriptions are the string literals below the
fields, or the comments in `conf/`.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from hydra.utils import get_class
from omegaconf import MISSING

from contamination.core.cli import CONF, run_tool
from contamination.core.config import Range
from contamination.core.stored_files import read_yaml

COMMANDS = {
    "injection": ("injection", "injection.config.InjectionStage"),
    "injection finetuning": ("finetuning", "injection.finetuning.config.FinetuningStage"),
    "injection export": ("export", "injection.export.run.ExportStage"),
    "training": ("training", "training.config.TrainingStage"),
    "training memory": ("memory", "training.memory_plan.MemoryStage"),
    "training which-step": ("which_step", "training.which_step.WhichStepStage"),
    "detection": ("detection", "detection.config.DetectionStage"),
    "detection accuracy": ("accuracy", "detection.tasks.accuracy.AccuracyStage"),
    "detection build": ("build", "detection.building.run.BuildStage"),
    "detection extraction": ("extraction", "detection.tasks.extraction.ExtractionStage"),
    "detection online": ("online", "detection.tasks.online.OnlineStage"),
    "detection probe": ("probe", "detection.tasks.probe.ProbeStage"),
    "detection select": ("select", "detection.building.overlap_selection.SelectStage"),
    "detection thresholds": ("thresholds", "detection.tasks.calibration.ThresholdStage"),
    "detection view": ("view", "detection.viewer.run.ViewStage"),
    "analysis": ("analysis", "analysis.config.AnalysisStage"),
    "analysis wandb": ("wandb", "analysis.config.WandbReport"),
    "analysis wandb-view": ("wandb_view", "analysis.wandb.view.WandbViewConfig"),
    "audits": ("audit", "audits.base.AuditStage"),
    "audits fresh": ("fresh", "audits.benchmark.fresh.FreshStage"),
    "launch": ("pipeline", "launch.plan.PipelineNodes"),
}
"""Each command below `python -m`, with its file in conf/ and its dataclass."""


@dataclass(frozen=True)
class FieldDoc:
    """What a reader needs to know of a field.

    Attributes:
        name: the field's own name, without its node.
        type: as the dataclass declares it, such as `int | None`.
        default: as it is written on a command line; empty: the field must be given.
        range: which values are allowed, in words; empty: any of the type.
        text: what the field means; empty: nobody has written it down.
    """

    name: str
    type: str
    default: str
    range: str
    text: str


@dataclass(frozen=True)
class Schema:
    """A dataclass as a reader sees it.

    Attributes:
        text: its docstring's first paragraph.
        fields: the fields that take plain values.
        nodes: the fields that are dataclasses of their own: name → class.
    """

    text: str
    fields: tuple[FieldDoc, ...]
    nodes: Mapping[str, type]


def describe_dataclass(schema: type, comments: Mapping[str, str] | None = None) -> Schema:
    """The fields of a config dataclass.

    Args:
        schema: the dataclass.
        comments: field → a description for fields that have none in the dataclass.
    """
    hints, texts = get_type_hints(schema), {**(comments or {}), **_docstring_by_field(schema)}
    plain, nodes = [], {}
    for field in dataclasses.fields(schema):
        if not field.init or field.name.startswith("_"):
            continue
        node = _dataclass_in_hint(hints[field.name])
        if node is None:
            plain.append(_describe_field(field, texts.get(field.name, "")))
        else:
            nodes[field.name] = node
    text = _join_lines((schema.__doc__ or "").split("\n\n")[0])
    return Schema(text, tuple(plain), nodes)


LAUNCH_NODES = (
    *("launch.config.LaunchSettings", "injection.config.InjectionStage"),
    *("training.config.TrainingStage", "detection.config.DetectionStage"),
)
"""The dataclasses whose nodes `launch` has besides its own; of two with one name the first's."""


def command_schema(command: str) -> Schema:
    """What a command of `COMMANDS` takes; `launch` has the nodes of all its stages."""
    file, class_path = COMMANDS[command]
    comments = comment_by_field(CONF / "common.yaml") | comment_by_field(CONF / f"{file}.yaml")
    schema = describe_dataclass(load_class(class_path), comments)
    if command != "launch":
        return schema
    stages = [describe_dataclass(load_class(other), comments) for other in LAUNCH_NODES]
    nodes = {name: node for stage in [*stages[::-1], schema] for name, node in stage.nodes.items()}
    taken = [c.name for c in read_choices(file)] + ["wandb"] + _typed_node_names(file)
    return dataclasses.replace(schema, nodes={n: nodes[n] for n in nodes if n in taken})


def _typed_node_names(file: str) -> list[str]:
    entries = read_yaml(CONF / f"{file}.yaml")["defaults"]
    schema_entries = [
        entry for entry in entries if isinstance(entry, str) and entry.startswith("schema/")
    ]
    return [re.split("[/@]", entry)[-1] for entry in schema_entries]


@dataclass(frozen=True)
class Choice:
    """A field whose value names files of a folder in conf/.

    Attributes:
        name: of the field; of the folder, too, unless `group` says otherwise.
        group: the folder.
        default: the files that are chosen unless the user says otherwise; empty: one must be named.
    """

    name: str
    group: str
    default: str

    @property
    def file_names(self) -> list[str]:
        """The files that can be chosen."""
        folder = CONF / self.group
        return sorted(str(f.relative_to(folder).with_suffix("")) for f in folder.rglob("*.yaml"))

    @property
    def as_field_doc(self) -> FieldDoc:
        """As a row of a table."""
        return FieldDoc(
            self.name, "choice", self.default, ", ".join(self.file_names), f"conf/{self.group}/"
        )


def read_choices(file: str) -> list[Choice]:
    """The choices that conf/<file>.yaml offers in its defaults list."""
    choice_by_name: dict[str, Choice] = {}
    for entry in read_yaml(CONF / f"{file}.yaml")["defaults"]:
        if isinstance(entry, str):
            inner = CONF / f"{entry}.yaml"
            choice_by_name |= (
                {c.name: c for c in read_choices(entry)}
                if "defaults" in _read_yaml_if_exists(inner)
                else {}
            )
            continue
        ((key, default),) = entry.items()
        group, _, name = key.removeprefix("override ").partition("@")
        choice_by_name[name or group] = Choice(
            name or group, group.strip("/"), _format_value(default)
        )
    return [*choice_by_name.values()]


def _read_yaml_if_exists(path: Path) -> Mapping[str, Any]:
    return read_yaml(path) if path.is_file() else {}


def load_class(class_path: str) -> type:
    """The class at a dotted place below `contamination`."""
    module, _, name = class_path.rpartition(".")
    loaded = getattr(importlib.import_module(f"contamination.{module}"), name)
    assert isinstance(loaded, type)
    return loaded


def comment_by_field(path: Path) -> dict[str, str]:
    """Each top-level field of a file in conf/ with the comment behind it, over several lines."""
    comments: dict[str, str] = {}
    field = None
    for line in path.read_text().splitlines():
        if start := re.match(r"(\w+):[^#]*?#\s*(.*)", line):
            field = start.group(1)
            comments[field] = start.group(2)
        elif field and (more := re.match(r"\s+#\s*(.*)", line)):
            comments[field] += f" {more.group(1)}"
        else:
            field = None
    return comments


def _dataclass_in_hint(hint: Any) -> type | None:
    """The dataclass of a field that is a node, or a mapping or a list of nodes."""
    for candidate in (hint, *get_args(hint)):
        if isinstance(candidate, type) and dataclasses.is_dataclass(candidate):
            return candidate
    return None


def _describe_field(field: dataclasses.Field[Any], text: str) -> FieldDoc:
    range_ = field.metadata.get("range")
    type_text = field.type if isinstance(field.type, str) else inspect.formatannotation(field.type)
    return FieldDoc(
        field.name, type_text, _format_default(field), _format_range(range_), _join_lines(text)
    )


def _format_default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return _format_value(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return _format_value(field.default_factory())
    return ""


def _format_value(value: Any) -> str:
    """A value as the command line takes it; empty where one must be given."""
    if value == MISSING:
        return ""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return value if value.isprintable() and value else repr(value).replace("'", '"')
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_format_value(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    return str(value)


def _format_range(range_: Range | None) -> str:
    """The values that a range has, from the remedy that its error names."""
    if range_ is None:
        return ""
    return re.sub(r"^(give|choose from) ", "", range_.remedy).rstrip(".")


@cache
def _docstring_by_field(schema: type) -> dict[str, str]:
    """Each field's string literal, of the class and of those that it extends."""
    texts: dict[str, str] = {}
    for parent_class in reversed(schema.__mro__):
        if dataclasses.is_dataclass(parent_class):
            texts |= _docstring_by_own_field(parent_class)
    return texts


def _docstring_by_own_field(schema: type) -> dict[str, str]:
    tree = ast.parse(inspect.getsource(inspect.getmodule(schema) or schema))
    bodies = [
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == schema.__name__
    ]
    texts = {}
    for body in bodies:
        for statement, below in zip(body, body[1:], strict=False):
            if not (
                isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
            ):
                continue
            literal = below.value if isinstance(below, ast.Expr) else None
            if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                texts[statement.target.id] = literal.value
    return texts


def _join_lines(text: str) -> str:
    return " ".join(text.split())


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
    schemas = {command: command_schema(command) for command in COMMANDS}
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
    for command, schema in schemas.items():
        yield f"### python -m {command}\n"
        nodes = [f"[`{name}`](#{_anchor(node_class)})" for name, node_class in schema.nodes.items()]
        if nodes:
            yield f"Nodes: {', '.join(nodes)}.\n"
        rows = {field.name: field for field in schema.fields if field.name not in COMMON}
        rows |= {choice.name: choice.as_field_doc for choice in read_choices(COMMANDS[command][0])}
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


GROUPS = ("occurrences", "corpus", "rewording", "method", "audit", "source", "format")
"""Folders of conf/ whose files name a class each, with the fields of that class."""


def _render_groups() -> Iterator[str]:
    yield "## Choices\n"
    for group in GROUPS:
        yield f"### {group}\n"
        for path in sorted((CONF / group).glob("*.yaml")):
            config = read_yaml(path)
            config = config if "_target_" in config else config.get(path.stem) or {}
            if not isinstance(config, dict) or "_target_" not in config:
                continue
            choice_class = get_class(config["_target_"])
            schema = describe_dataclass(choice_class, _comment_by_key(path))
            yield f"**`{group}={path.stem}`** {schema.text}\n"
            fields_with_defaults = [_replace_default(field, config) for field in schema.fields]
            yield from _render_table(tuple(fields_with_defaults)) if fields_with_defaults else ()


def _replace_default(field: FieldDoc, config: Mapping[str, Any]) -> FieldDoc:
    """A choice's field with the value that its file gives it."""
    is_given = field.name in config
    return (
        dataclasses.replace(field, default=_format_value(config[field.name])) if is_given else field
    )


def _comment_by_key(path: Path) -> dict[str, str]:
    keys_and_comments = re.findall(r"^\s*(\w+):[^#\n]*?#\s*(.*)$", path.read_text(), re.M)
    return dict(keys_and_comments)


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

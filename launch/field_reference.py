"""The reference of all configuration fields, read from the config dataclasses.

    python -m contamination.launch.field_reference > docs/fields.md

`describe` reads one dataclass, `COMMANDS` names the dataclasses of each command. The types, the
defaults and the ranges are those that the commands check; the descriptions are the string literals
below the fields, or the comments in `conf/`.
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
    "launch": ("pipeline", "launch.plan.PipelineNodes"),
}
"""Each command below `python -m`, with its file in conf/ and its dataclass."""

LAUNCH_NODES = (
    *("launch.config.LaunchSettings", "injection.config.InjectionStage"),
    *("training.config.TrainingStage", "detection.config.DetectionStage"),
)
"""The dataclasses whose nodes `launch` has besides its own; of two with one name the first's."""

GROUPS = ("occurrences", "corpus", "rewording", "method", "audit", "source", "format")
"""Folders of conf/ whose files name a class each, with the fields of that class."""

COMMON = ("name", "seed", "runs", "verify")
"""Fields of conf/common.yaml, which every command has."""

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


def describe(schema: type, comments: Mapping[str, str] | None = None) -> Schema:
    """The fields of a config dataclass.

    Args:
        schema: the dataclass.
        comments: field → a description for fields that have none in the dataclass.
    """
    hints, texts = get_type_hints(schema), {**(comments or {}), **_literals(schema)}
    plain, nodes = [], {}
    for item in dataclasses.fields(schema):
        if not item.init or item.name.startswith("_"):
            continue
        node = _node(hints[item.name])
        if node is None:
            plain.append(_field(item, texts.get(item.name, "")))
        else:
            nodes[item.name] = node
    text = _one_line((schema.__doc__ or "").split("\n\n")[0])
    return Schema(text, tuple(plain), nodes)


def command_schema(command: str) -> Schema:
    """What a command of `COMMANDS` takes; `launch` has the nodes of all its stages."""
    file, place = COMMANDS[command]
    comments = yaml_comments(CONF / "common.yaml") | yaml_comments(CONF / f"{file}.yaml")
    schema = describe(load(place), comments)
    if command != "launch":
        return schema
    stages = [describe(load(other), comments) for other in LAUNCH_NODES]
    nodes = {name: node for stage in [*stages[::-1], schema] for name, node in stage.nodes.items()}
    taken = [c.name for c in choices(file)] + ["wandb"] + _schemas(file)
    return dataclasses.replace(schema, nodes={n: nodes[n] for n in nodes if n in taken})


def _schemas(file: str) -> list[str]:
    """The nodes that a file in conf/ types."""
    entries = read_yaml(CONF / f"{file}.yaml")["defaults"]
    typed = [e for e in entries if isinstance(e, str) and e.startswith("schema/")]
    return [re.split("[/@]", entry)[-1] for entry in typed]


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
    def names(self) -> list[str]:
        """The files that can be chosen."""
        folder = CONF / self.group
        return sorted(str(f.relative_to(folder).with_suffix("")) for f in folder.rglob("*.yaml"))

    @property
    def doc(self) -> FieldDoc:
        """As a row of a table."""
        return FieldDoc(
            self.name, "choice", self.default, ", ".join(self.names), f"conf/{self.group}/"
        )


def choices(file: str) -> list[Choice]:
    """The choices that conf/<file>.yaml offers in its defaults list."""
    found: dict[str, Choice] = {}
    for entry in read_yaml(CONF / f"{file}.yaml")["defaults"]:
        if isinstance(entry, str):
            inner = CONF / f"{entry}.yaml"
            found |= {c.name: c for c in choices(entry)} if "defaults" in _top(inner) else {}
            continue
        ((key, default),) = entry.items()
        group, _, name = key.removeprefix("override ").partition("@")
        found[name or group] = Choice(name or group, group.strip("/"), _written(default))
    return [*found.values()]


def _top(path: Path) -> Mapping[str, Any]:
    return read_yaml(path) if path.is_file() else {}


def load(place: str) -> type:
    """The class at a dotted place below `contamination`."""
    module, _, name = place.rpartition(".")
    loaded = getattr(importlib.import_module(f"contamination.{module}"), name)
    assert isinstance(loaded, type)
    return loaded


def yaml_comments(path: Path) -> dict[str, str]:
    """Each top-level field of a file in conf/ with the comment behind it, over several lines."""
    comments: dict[str, str] = {}
    name = None
    for line in path.read_text().splitlines():
        if start := re.match(r"(\w+):[^#]*?#\s*(.*)", line):
            name = start.group(1)
            comments[name] = start.group(2)
        elif name and (more := re.match(r"\s+#\s*(.*)", line)):
            comments[name] += f" {more.group(1)}"
        else:
            name = None
    return comments


def _node(hint: Any) -> type | None:
    """The dataclass of a field that is a node, or a mapping or a list of nodes."""
    for kind in (hint, *get_args(hint)):
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return kind
    return None


def _field(item: dataclasses.Field[Any], text: str) -> FieldDoc:
    range_ = item.metadata.get("range")
    kind = item.type if isinstance(item.type, str) else inspect.formatannotation(item.type)
    return FieldDoc(item.name, kind, _default(item), _range(range_), _one_line(text))


def _default(item: dataclasses.Field[Any]) -> str:
    if item.default is not dataclasses.MISSING:
        return _written(item.default)
    if item.default_factory is not dataclasses.MISSING:
        return _written(item.default_factory())
    return ""


def _written(value: Any) -> str:
    """A value as the command line takes it; empty where one must be given."""
    if value == MISSING:
        return ""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return value if value.isprintable() and value else repr(value).replace("'", '"')
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_written(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    return str(value)


def _range(range_: Range | None) -> str:
    """The values that a range has, from the remedy that its error names."""
    if range_ is None:
        return ""
    return re.sub(r"^(give|choose from) ", "", range_.remedy).rstrip(".")


@cache
def _literals(schema: type) -> dict[str, str]:
    """Each field's string literal, of the class and of those that it extends."""
    texts: dict[str, str] = {}
    for kind in reversed(schema.__mro__):
        if dataclasses.is_dataclass(kind):
            texts |= _class_literals(kind)
    return texts


def _class_literals(kind: type) -> dict[str, str]:
    tree = ast.parse(inspect.getsource(inspect.getmodule(kind) or kind))
    bodies = [n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == kind.__name__]
    texts = {}
    for body in bodies:
        for line, below in zip(body, body[1:], strict=False):
            if not (isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)):
                continue
            literal = below.value if isinstance(below, ast.Expr) else None
            if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                texts[line.target.id] = literal.value
    return texts


def _one_line(text: str) -> str:
    return " ".join(text.split())


def markdown() -> str:
    """The whole page."""
    schemas = {command: command_schema(command) for command in COMMANDS}
    return "\n".join([HEAD, *_commands(schemas), *_nodes(schemas), *_groups()])


def _commands(schemas: Mapping[str, Schema]) -> Iterator[str]:
    yield "## Commands\n"
    yield "### Every command\n"
    common, comments = read_yaml(CONF / "common.yaml"), yaml_comments(CONF / "common.yaml")
    shared = [
        FieldDoc(name, type(common[name]).__name__, str(common[name]), "", comments[name])
        for name in COMMON
    ]
    yield from _table(tuple(shared))
    for command, schema in schemas.items():
        yield f"### python -m {command}\n"
        nodes = [f"[`{name}`](#{_anchor(kind)})" for name, kind in schema.nodes.items()]
        if nodes:
            yield f"Nodes: {', '.join(nodes)}.\n"
        rows = {item.name: item for item in schema.fields if item.name not in COMMON}
        rows |= {choice.name: choice.doc for choice in choices(COMMANDS[command][0])}
        if rows:
            yield from _table(tuple(rows.values()))


def _nodes(schemas: Mapping[str, Schema]) -> Iterator[str]:
    """A section for each dataclass that is a node, with the names that it goes by."""
    yield "## Nodes\n"
    waiting = [(name, kind) for s in schemas.values() for name, kind in s.nodes.items()]
    names: dict[type, list[str]] = {}
    while waiting:
        name, kind = waiting.pop(0)
        if name in names.setdefault(kind, []):
            continue
        names[kind].append(name)
        waiting += describe(kind).nodes.items()
    for kind, known in sorted(names.items(), key=lambda item: item[0].__name__):
        schema = describe(kind)
        yield f"### {kind.__name__}\n"
        text = re.sub(r" \(node `\w+`\)", "", schema.text)
        yield f"{text} Node: {', '.join(f'`{name}`' for name in sorted(known))}.\n"
        if nested := [f"[`{name}`](#{_anchor(node)})" for name, node in schema.nodes.items()]:
            yield f"Nodes in it: {', '.join(nested)}.\n"
        yield from _table(schema.fields)


def _groups() -> Iterator[str]:
    yield "## Choices\n"
    for group in GROUPS:
        yield f"### {group}\n"
        for path in sorted((CONF / group).glob("*.yaml")):
            config = read_yaml(path)
            config = config if "_target_" in config else config.get(path.stem) or {}
            if not isinstance(config, dict) or "_target_" not in config:
                continue
            kind = get_class(config["_target_"])
            schema = describe(kind, _all_comments(path))
            yield f"**`{group}={path.stem}`** {schema.text}\n"
            given = [_with_default(item, config) for item in schema.fields]
            yield from _table(tuple(given)) if given else ()


def _with_default(item: FieldDoc, config: Mapping[str, Any]) -> FieldDoc:
    """A choice's field with the value that its file gives it."""
    known = item.name in config
    return dataclasses.replace(item, default=_written(config[item.name])) if known else item


def _all_comments(path: Path) -> dict[str, str]:
    """Comments behind the keys of a file at any depth."""
    found = re.findall(r"^\s*(\w+):[^#\n]*?#\s*(.*)$", path.read_text(), re.M)
    return dict(found)


def _table(fields: tuple[FieldDoc, ...]) -> Iterator[str]:
    rows = [["field", "type", "default", "range", "meaning"], ["---"] * 5]
    for item in fields:
        default = _code(item.default) if item.default else "required"
        cells = [_code(item.name), _code(item.type), default, item.range, item.text]
        rows.append([cell or "–" for cell in cells])
    lines = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    yield "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`"


def _anchor(kind: type) -> str:
    return kind.__name__.lower()


if __name__ == "__main__":
    sys.exit(run_tool(lambda: print(markdown(), end="")))

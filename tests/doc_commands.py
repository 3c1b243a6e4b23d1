"""The commands that the documentation shows, and what is wrong with each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from warnings import catch_warnings

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from contamination.audits.base import add_audit_prefixes
from contamination.core.commands import command_of_module, command_schema
from contamination.core.config import CONF
from contamination.core.field_docs import Schema, describe_dataclass, read_choices
from contamination.core.stored_files import read_yaml
from contamination.launch.cli import GROUPS, OTHERS, PACKAGES, TOOLS
from contamination.launch.field_reference import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
TARGETS = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
OPEN_WORDS = {"injection": ("verify", "show"), "launch": (*TOOLS, "fetch")}
"""Tools whose words are no overrides, by package."""
MAPPINGS = ("benchmark", "instructions")
"""Nodes that map names of one's own to nodes."""
YOURS = re.compile(r"\b(NAME|PACKAGE|COMMAND|my_method|mytest|my_module)\b|--config-dir")
"""Words that stand for what the reader has to choose or to write."""


@dataclass(frozen=True)
class Command:
    """A command that a page shows.

    Attributes:
        page: the file, from the project's root.
        words: as the shell splits them.
    """

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def commands(page: Path) -> list[Command]:
    """The commands of our own in a page's code blocks without a language, and in its text."""
    text = page.read_text()
    blocks = re.findall(r"^ *```(?:bash|sh)?\n(.*?)^ *```", text, re.M | re.S)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)
    lines += [" ".join(code.split()) for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)]
    name = str(page.relative_to(ROOT))
    return [Command(name, words) for line in lines if (words := _command(line))]


def _command(line: str) -> tuple[str, ...]:
    """The words of our own command in a line; none if there is no such command."""
    line = re.sub(r"<[\w ]+>", "x", line).replace("…/", "x/")
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return ()
    words = [word for word in words if not re.fullmatch(r"[A-Z_]+=.*", word) or words[0] == "make"]
    end = next((n for n, word in enumerate(words) if re.fullmatch(r"\d?[|>&].*", word)), len(words))
    words = words[:end]
    if words[:1] == ["torchrun"] and "-m" in words or words[:1] == ["srun"] and "python" in words:
        words = ["python", *words[words.index("-m") :]]
    ours = words[:1] in (["make"], ["contamination"], ["pytest"])
    if not ours and (words[:2] not in (["python", "-m"], ["python3", "-m"]) or len(words) < 3):
        return ()
    return tuple(word.strip("[]") if word[0] == "[" else word for word in words if word.strip("…"))


def fault(command: Command) -> str | None:
    """What is wrong with a command; None: nothing that can be seen without running it."""
    program, *words = command.words
    match program:
        case "make":
            unknown = [w for w in words if "=" not in w and w not in TARGETS]
            return f"no such target: {unknown}" if unknown else None
        case "pytest":
            missing = [w for w in words if "/" in w and not (ROOT / w).exists()]
            return f"no such file: {missing}" if missing else None
        case "contamination":
            return _installed(words)
    return _module(words[1], words[2:])


def _installed(words: Sequence[str]) -> str | None:
    """What is wrong with the words behind `contamination`."""
    match [*words]:
        case [] | ["--version" | "--help"] | ["-sc", _]:
            return None
        case ["list", *kinds]:
            unknown = {*kinds} - {*GROUPS}
            return f"no such list: {unknown}" if unknown else None
        case ["audit", *more]:
            return _module("audits", more)
        case ["decontaminate", *more]:
            return _module("injection", ["decontaminate", *more])
        case ["plan", "power", *more]:
            return _module("launch", ["plan-power", *more])
        case ["quickstart", *more]:
            return _module("launch", ["experiment=quickstart", *more])
        case [tool, *more] if tool in TOOLS:
            return _module("launch", [tool, *more])
        case [stage, *more] if stage in PACKAGES:
            options = [re.sub(r"^--(model|reference)-(\w+)$", r"\1.\2", w) for w in more]
            pairs = re.sub(r"((?:model|reference)\.\w+) ", r"\1=", " ".join(options))
            return _module(PACKAGES[stage], pairs.split())
    return f"no such command: {words[0]}; known: {[*PACKAGES, *TOOLS, *OTHERS]}"


def _module(name: str, words: Sequence[str]) -> str | None:
    """What is wrong with `python -m NAME …`."""
    if YOURS.search(name):
        return None
    package = name.removeprefix("contamination.")
    packages = {command.partition(" ")[0] for command in COMMANDS}
    if package not in packages:
        return None if _exists(name) else f"no module {name}"
    tool = words[0] if words and re.fullmatch(r"[a-z_-]+", words[0]) and words[0][0] != "-" else ""
    if tool in OPEN_WORDS.get(package, ()):
        return _overrides("launch", words[1:]) if tool == "fetch" else None
    if package == "audits" and (CONF / "audit" / f"{tool}.yaml").is_file():
        return _module(name, [f"audit={tool}", *words[1:]])
    command = f"{package} {tool}".strip()
    if (audit := command_of_module(command)) and audit.choice:  # the audit's name alone
        return _overrides(package, [audit.choice, *words[1:]])
    if command not in COMMANDS:
        return f"no command {command}"
    rest = [*words[1:]] if tool else [*words]
    return _overrides(command, rest)


def _exists(name: str) -> bool:
    try:
        with catch_warnings(action="ignore"):  # setuptools warns of pip once distutils was imported
            return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _overrides(command: str, words: Sequence[str]) -> str | None:
    """What is wrong with the overrides of one of our commands."""
    flags = ("-m", "--multirun", "--help", "--cfg", "job", "--version")
    words = [word.replace("…", "x") for word in words if word not in flags]
    if YOURS.search(" ".join(words)):
        return None
    if command == "audits":
        words = add_audit_prefixes(words)
    if command == "detection thresholds":
        words = [re.sub("^examples=", "examples_file=", word) for word in words]
    if command.startswith("analysis wandb"):
        words = [re.sub("^experiment=", "experiment_name=", word) for word in words]
    if unfit := [word for word in words if "=" not in word]:
        return f"no overrides: {unfit}"
    parsed = OverridesParser.create().parse_overrides([*words])
    return next(filter(None, _faults(command, parsed)), None)


def _faults(command: str, overrides: Sequence[Override]) -> Iterator[str | None]:
    """For each override what is wrong with its choice or its field."""
    offered = {choice.name: choice for choice in read_choices(COMMANDS[command].config)}
    chosen = {name: _names(choice.default) for name, choice in offered.items()}
    for override in overrides:
        name, group = override.key_or_group, override.key_or_group.partition("@")[0]
        if name not in offered and not (CONF / group).is_dir():
            continue
        named = [one for value in _values(override) for one in _names(value)]
        chosen[override.package or name] = named
        files = [f"conf/{offered[name].group if name in offered else group}/{x}" for x in named]
        missing = [f for f in files if not (ROOT / f"{f}.yaml").is_file() and f[-4:] != "/all"]
        yield f"no such choice: {missing}" if missing else None
    for experiment in chosen.get("experiment", []):
        chosen = {**chosen, **_experiment_choices(experiment)}
    tree = _tree(command, chosen)
    for override in overrides:
        name = override.key_or_group
        if (
            name in chosen
            or "@" in name
            or name.startswith(("hydra.", "hydra/"))
            or override.is_add()
        ):
            continue
        yield None if _has(tree, name.split(".")) else f"no such field: {name}"


@cache
def _experiment_choices(name: str) -> dict[str, list[str]]:
    """The choices that an experiment makes, and those that it extends."""
    made: dict[str, list[str]] = {}
    file = CONF / "experiment" / f"{name}.yaml"
    for entry in read_yaml(file).get("defaults", []) if file.is_file() else ():
        if isinstance(entry, str):
            made |= _experiment_choices(entry)  # another experiment; of other files nothing
        else:
            made |= {re.sub("override |/", "", k): _names(v) for k, v in entry.items()}
    return made


def _names(value: object) -> list[str]:
    """The files that a choice names: one, or a list, as a value or as it is written."""
    texts = value if isinstance(value, list) else str(value).strip("[]").split(",")
    return [str(text).strip() for text in texts if str(text).strip() not in ("", "null", "None")]


def _values(override: Override) -> list[object]:
    if override.is_sweep_override():
        return [*override.sweep_iterator()] if override.is_discrete_sweep() else []
    return [override.value()]


Tree = dict[str, "Tree"]
"""Field → the fields in it; `*` stands for any name."""


def _tree(command: str, chosen: Mapping[str, Sequence[str]]) -> Tree:
    """The fields that a command has with these choices."""
    tree = deepcopy(_command_tree(command))
    for file in ("common", COMMANDS[command].config):
        _join(tree, _yaml_tree(f"{file}.yaml"))
    for choice in read_choices(COMMANDS[command].config):
        inner = tree if choice.name == "experiment" else tree.setdefault(choice.name, {})
        for name in ("*",) if chosen[choice.name] == ["all"] else chosen[choice.name]:
            for file in sorted((CONF / choice.group).glob(f"{name}.yaml")):
                _join(inner, _yaml_tree(str(file.relative_to(CONF))))
    return tree


@cache
def _command_tree(command: str) -> Tree:
    return _schema_tree(command_schema(COMMANDS[command]))


def _schema_tree(schema: Schema) -> Tree:
    tree: Tree = {item.name: {} for item in schema.fields}
    for name, kind in schema.nodes.items():
        inner = _schema_tree(describe_dataclass(kind))
        tree[name] = {"*": inner} if name in MAPPINGS else inner
    return tree


@cache
def _yaml_tree(file: str) -> Tree:
    def of(node: object) -> Tree:
        return {key: of(value) for key, value in node.items()} if isinstance(node, dict) else {}

    return of(read_yaml(CONF / file))


def _join(tree: Tree, other: Tree) -> None:
    for name, inner in other.items():
        _join(tree.setdefault(name, {}), inner)


def _has(tree: Tree, names: Sequence[str]) -> bool:
    if not names:
        return True
    return any(name in tree and _has(tree[name], names[1:]) for name in (names[0], "*"))


def pages() -> Iterator[Path]:
    """The pages that a reader may follow."""
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))

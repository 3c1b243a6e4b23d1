"""The command `contamination`, which runs each stage and tool by its name from any folder."""

from __future__ import annotations

import os
import re
import runpy
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from itertools import takewhile
from pathlib import Path

from hydra.utils import get_class

from contamination.core.artifacts import version_text
from contamination.core.cli import run_tool
from contamination.core.commands import Command, read_commands, subcommands
from contamination.core.config import CONF
from contamination.core.errors import ConfigError, near_names
from contamination.core.help import asks_for_help, render_command, render_overview
from contamination.core.integrity import set_damage_remedy
from contamination.core.process_startup import COMMAND
from contamination.core.stored_files import read_yaml
from contamination.core.terminal import format_descriptions
from contamination.launch import DAMAGE_REMEDY

PACKAGES = {
    "inject": "injection",
    "train": "training",
    "detect": "detection",
    "analyse": "analysis",
    "launch": "launch",
}
TOOLS = ("status", "report", "check", "adopt", "fetch", "push")
"""The tools of `launch`."""
OTHERS = ("audit", "decontaminate", "list", "plan", "quickstart")


def main() -> int:
    """Runs a stage or a tool and returns the exit status."""
    set_damage_remedy(DAMAGE_REMEDY)
    match sys.argv[1:]:
        case [] | ["-h" | "--help" | "help"]:
            return run_tool(lambda: print(render_overview()))
        case ["list", *words] if asks_for_help(words):
            return run_tool(lambda: print(render_command(read_commands()["list"])))
        case ["--version"]:
            return run_tool(lambda: print(version_text()))
        case ["list", *kinds]:
            return run_tool(lambda: print(format_choices(kinds)))
        case ["-sc", "install=bash"]:
            return _print_completion_script()
        case ["-sc", "query=bash"]:
            return _print_completions(os.environ["COMP_LINE"].split(" "))
        case ["audit", *words]:
            return _run_package("audits", parse_overrides(words))
        case ["decontaminate", *words]:
            return _run_package("injection", ["decontaminate", *words])
        case ["quickstart", *words]:
            return _run_package("launch", ["experiment=quickstart", *words])
        case ["plan", "power", *words]:
            return _run_package("launch", ["plan-power", *words])
        case ["plan", *_]:
            return run_tool(_refuse_plan_without_power)
        case [tool, *words] if tool in TOOLS:
            return _run_package("launch", [tool, *words])
        case [stage, *words] if stage in PACKAGES:
            return _run_package(PACKAGES[stage], parse_overrides(words))
    return run_tool(lambda: _refuse_unknown_command(sys.argv[1]))


def parse_overrides(arguments: list[str]) -> list[str]:
    """Returns the words as overrides: `--model-url URL` or `--model-url=URL` as `model.url=URL`."""
    fields, remaining = [], iter(arguments)
    for word in remaining:
        option = re.fullmatch(r"--(model|reference)-([\w-]+)(?:=(.*))?", word)
        if option is None:
            fields.append(word)
            continue
        node_name, field, value = option.groups()
        value = next(remaining, "") if value is None else value
        fields.append(f"{node_name}.{field.replace('-', '_')}={value}")
    return fields


GROUPS = {
    "methods": "method",
    "audits": "audit",
    "benchmarks": "benchmark",
    "models": "model",
    "corpora": "corpus",
    "experiments": "experiment",
}


def format_choices(kinds: list[str]) -> str:
    """Returns one line per choice of each kind: its name and the first comment of its file."""
    if unknown := [kind for kind in kinds if kind not in GROUPS]:
        raise ConfigError(f"list {unknown[0]}: no such kind. {near_names(unknown[0], GROUPS)}")
    return "\n\n".join("\n".join([f"{kind}:", *_choice_lines(kind)]) for kind in kinds or GROUPS)


def _choice_lines(kind: str) -> list[str]:
    folder = CONF / GROUPS[kind]
    files = {str(f.relative_to(folder).with_suffix("")): f for f in sorted(folder.rglob("*.yaml"))}
    return format_descriptions([*files], [_describe_choice(kind, file) for file in files.values()])


def _describe_choice(kind: str, file: Path) -> str:
    """Returns a method's first sentence with its paper, or another file's first comment."""
    if kind == "methods":
        node = read_yaml(file)[file.stem]
        return str(get_class(node["_target_"]).__doc__).partition("\n")[0]
    comments = takewhile(lambda line: line.startswith("#"), file.read_text().splitlines())
    comment = " ".join(line[1:].strip() for line in comments if "@package" not in line)
    return re.split(r"(?<!et al)[.:](?: |$)", comment)[0]


def _print_completion_script() -> int:
    """Prints Hydra's completion script for bash, adapted to this command."""
    with redirect_stdout(StringIO()) as script:
        status = _run_package("launch", ["-sc", "install=bash"])
    print(script.getvalue().rstrip().removesuffix("python") + COMMAND)
    return status


def _print_completions(typed_words: list[str]) -> int:
    """Prints the completions of the last word; for a stage's overrides, Hydra does."""
    *words, last = typed_words[1:] or [""]
    if not words:
        print("\n".join([*PACKAGES, *TOOLS, *OTHERS]))
        return 0
    command = find_command(words)
    if command is None:  # such as "plan", of which only "plan power" is a command
        for *first_words, word in map(str.split, read_commands()):
            if first_words == words and word.startswith(last):
                print(word)
        return 0
    overrides = words[len(command.name.split()) :]
    following = [] if overrides else [c.word for c in subcommands(command)]
    following += completions(command)
    if following := [word for word in following if word.startswith(last)]:
        print("\n".join(following))
    has_config = command.config and command.name != "audit"  # an audit must be chosen
    if not has_config and command.name != "fetch":
        return 0
    package, *tool = command.module.split()
    choices = [command.choice] if command.choice else []
    os.environ["COMP_LINE"] = " ".join([COMMAND, *choices, *overrides, last])
    tool = [] if choices or package == "launch" else tool
    return _run_package(package, [*tool, "-sc", "query=bash"])


def find_command(words: Sequence[str]) -> Command | None:
    """Returns the command or sub-command that the first words name."""
    commands = read_commands()
    return commands.get(" ".join(words[:2])) or commands.get(words[0])


def completions(command: Command) -> list[str]:
    """Returns the words of a command that Hydra does not know."""
    if command.name == "list":
        return [*GROUPS]
    if command.choice.startswith("audit="):  # its own fields need no prefix
        file = CONF / f"{command.choice.replace('=', '/')}.yaml"
        return [f"{name}=" for name in read_yaml(file) if name not in ("_target_", "defaults")]
    words = []
    for word in command.words:
        field, equals, values = word.partition("=")
        if "|" in values:
            words += [f"{field}={value}" for value in values.split("|")]
        elif word.startswith("--") or (equals and command.name != "fetch"):
            words.append(f"{field}{equals}")
    return words


def _refuse_plan_without_power() -> None:
    raise ConfigError("contamination plan: say what to plan: contamination plan power …")


def _refuse_unknown_command(word: str) -> None:
    commands = [*PACKAGES, *TOOLS, *OTHERS]
    raise ConfigError(f"contamination {word}: no such command. {near_names(word, commands)}")


def _run_package(package: str, arguments: list[str]) -> int:
    """Runs the package as `python -m` does, but without the current folder on Python's path."""
    sys.argv[1:] = arguments
    try:
        runpy.run_module(f"contamination.{package}", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0

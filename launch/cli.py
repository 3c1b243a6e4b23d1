"""The command `contamination`, which runs each stage and tool by its name from any folder.

::

    contamination quickstart                   contaminate, train, score and report on embedded data
    contamination inject | train | detect | analyse [field=value ...]
    contamination audit audit=NAME [field=value ...]   audit a model with your own texts
    contamination detect --model-url http://HOST:8000/v1 --model-tokenizer DIR [field=value ...]
    contamination launch [-m] [field=value ...]
    contamination status | report | check | adopt | fetch | push [...]
    contamination list methods | audits | benchmarks | models | corpora | experiments
    contamination --version
"""

from __future__ import annotations

import os
import re
import runpy
import sys
from contextlib import redirect_stdout
from io import StringIO
from itertools import takewhile
from pathlib import Path

from hydra.utils import get_class

from contamination.core.artifacts import version_text
from contamination.core.cli import CONF, run_tool
from contamination.core.errors import ConfigError, near_names
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
TOOLS = {
    "status": ("runs=", "--cost"),
    "report": (),
    "check": ("runs=", "--prune", "--yes"),
    "adopt": ("kind=model", "kind=corpus", "path=", "runs="),
    "fetch": (),
    "push": ("repo=", "private=true", "dry_run=true", "texts=true", "license="),
}
"""The tools of `launch`, with the words that completion offers after them."""
OTHERS = ("audit", "list", "quickstart")


def main() -> int:
    """Run a stage or a tool and return the exit status."""
    set_damage_remedy(DAMAGE_REMEDY)
    match sys.argv[1:]:
        case [] | ["-h" | "--help" | "help"]:
            print(__doc__)
            return 0
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
        case ["quickstart", *words]:
            return _run_package("launch", ["experiment=quickstart", *words])
        case [tool, *words] if tool in TOOLS:
            return _run_package("launch", [tool, *words])
        case [stage, *words] if stage in PACKAGES:
            return _run_package(PACKAGES[stage], parse_overrides(words))
    return run_tool(lambda: _refuse_unknown_command(sys.argv[1]))


def parse_overrides(arguments: list[str]) -> list[str]:
    """Return the words as overrides: `--model-url URL` or `--model-url=URL` as `model.url=URL`."""
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
    """Return one line per choice of each kind: its name and the first comment of its file."""
    if unknown := [kind for kind in kinds if kind not in GROUPS]:
        raise ConfigError(f"list {unknown[0]}: no such kind. {near_names(unknown[0], GROUPS)}")
    return "\n\n".join("\n".join([f"{kind}:", *_choice_lines(kind)]) for kind in kinds or GROUPS)


def _choice_lines(kind: str) -> list[str]:
    folder = CONF / GROUPS[kind]
    files = {str(f.relative_to(folder).with_suffix("")): f for f in sorted(folder.rglob("*.yaml"))}
    return format_descriptions([*files], [_describe_choice(kind, file) for file in files.values()])


def _describe_choice(kind: str, file: Path) -> str:
    """Return a method's first sentence with its paper, or another file's first comment."""
    if kind == "methods":
        node = read_yaml(file)[file.stem]
        return str(get_class(node["_target_"]).__doc__).partition("\n")[0]
    comments = takewhile(lambda line: line.startswith("#"), file.read_text().splitlines())
    comment = " ".join(line[1:].strip() for line in comments if "@package" not in line)
    return re.split(r"(?<!et al)[.:](?: |$)", comment)[0]


def _print_completion_script() -> int:
    """Print Hydra's completion script for bash, adapted to this command."""
    with redirect_stdout(StringIO()) as script:
        status = _run_package("launch", ["-sc", "install=bash"])
    print(script.getvalue().rstrip().removesuffix("python") + COMMAND)
    return status


def _print_completions(typed_words: list[str]) -> int:
    """Print the completions of the last word; for a stage's overrides, Hydra does."""
    first, *rest = typed_words[1:] or [""]
    stage = "launch" if first in ("quickstart", "fetch") else PACKAGES.get(first)
    if not rest or stage is None:
        following = {"list": GROUPS, **TOOLS}.get(first, ())
        print("\n".join(following if rest else [*PACKAGES, *TOOLS, *OTHERS]))
        return 0
    os.environ["COMP_LINE"] = " ".join([COMMAND, *typed_words[2:]])
    return _run_package(stage, ["-sc", "query=bash"])


def _refuse_unknown_command(word: str) -> None:
    commands = [*PACKAGES, *TOOLS, *OTHERS]
    raise ConfigError(f"contamination {word}: no such command. {near_names(word, commands)}")


def _run_package(package: str, arguments: list[str]) -> int:
    """Run the package as `python -m` does, but without the current folder on Python's path."""
    sys.argv[1:] = arguments
    try:
        runpy.run_module(f"contamination.{package}", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0

"""The output of `--help`, and the error for a misspelt sub-command."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

from contamination.core.cli import run_tool
from contamination.core.commands import (
    Command,
    command_of_module,
    describe_field,
    read_commands,
    subcommands,
)
from contamination.core.errors import ConfigError, UserError, near_names
from contamination.core.field_docs import FieldDoc
from contamination.core.terminal import format_descriptions, wrap_text

WIDTH = 80  # characters of a line, whatever the terminal's width
HELP = ("-h", "--help")


def print_help_or_error(package: str) -> int | None:
    """Prints the help for `--help`, or the error for a sub-command that does not exist.

    Args:
        package: the package that `python -m` runs; its arguments are those of the process.

    Returns:
        The exit status, or None if neither applies and the command should run.
    """
    words = sys.argv[1:]
    command = find_command(package, words)
    if asks_for_help(words):
        return run_tool(lambda: print(render_command(command)))
    names = [c.word for c in subcommands(command) if not c.choice]
    if names and words and re.fullmatch(r"[A-Za-z][\w-]*", words[0]):
        return run_tool(lambda: _raise_unknown_subcommand(command, words[0], names))
    return None


def print_usage_error(module: str) -> int:
    """Prints the help of a command whose arguments are wrong; returns the exit status."""
    command = command_of_module(module)
    assert command is not None
    print(render_command(command), file=sys.stderr)
    return UserError.status


def asks_for_help(words: Sequence[str]) -> bool:
    """Returns whether the arguments contain `-h` or `--help`."""
    return bool({*HELP} & {*words})


def find_command(package: str, words: Sequence[str]) -> Command:
    """Returns the package's command, or the sub-command that the first word names."""
    names = [word.removeprefix("audit=") for word in words[:1]]
    named = [command_of_module(f"{package} {name}") for name in names]
    command = next(filter(None, [*named, command_of_module(package)]), None)
    assert command is not None
    return command


def _raise_unknown_subcommand(command: Command, word: str, names: Sequence[str]) -> None:
    raise ConfigError(
        f"{command.name} {word}: no such sub-command. {near_names(word, names)} "
        "A field is given as field=value."
    )


def render_command(command: Command) -> str:
    """Returns the help of a command: at most `WIDTH` columns, and about 40 lines."""
    usage = f"contamination {command.name}"
    nested = subcommands(command)
    sections = [
        _paragraph(command.purpose),
        [
            f"Usage:    {usage} {_usage_words(command)}",
            *[f"          python -m {command.module} …   (in a checkout)"] * bool(command.module),
            *_format_example(f"{usage} {command.example}"),
        ],
    ]
    if nested:
        rows = format_descriptions([c.word for c in nested], [c.summary for c in nested], WIDTH)
        sections.append([f"Sub-commands ({usage} NAME --help):", *rows])
    if command.fields:
        sections.append(["Main fields, with default and range:", *_field_rows(command)])
    if command.words:
        rows = format_descriptions([*command.words], [*command.words.values()], WIDTH)
        sections.append(["Words:", *rows])
    sections.append(_paragraph(_where_to_read_more(command)))
    return "\n\n".join("\n".join(lines) for lines in sections)


def _usage_words(command: Command) -> str:
    if not command.config:
        return "[WORD ...]"
    name_placeholder = "[NAME] " if subcommands(command) else ""
    sweep = "[-m] " if command.config == "pipeline" else ""
    return f"{name_placeholder}{sweep}[field=value ...]"


def _format_example(line: str) -> list[str]:
    """The example, with a backslash at the end of each line that continues."""
    first, *others = wrap_text(line, WIDTH - 14).split("\n")
    lines = [f"Example:  {first}", *(f"            {other}" for other in others)]
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _where_to_read_more(command: Command) -> str:
    if not command.config:
        return f"More: {command.docs}."
    return (
        f"More: {command.docs}. All fields: docs/fields.md. Values in use: --cfg job. "
        "Hydra's own options: --hydra-help."
    )


def _field_rows(command: Command) -> Iterator[str]:
    """Two lines per field: name, default and range, then the meaning."""
    for name in command.fields:
        field = describe_field(command, name)
        label = _typed_name(command, name)
        default = field.default if field.default.strip() else f'"{field.default}"'
        label += f"={default}" if field.default else " (required)"
        with_range = f"  {label}   [{field.range}]"
        yield _shorten(with_range if field.range and len(with_range) <= WIDTH else f"  {label}")
        yield _shorten(f"      {_first_sentence(field)}")


def _typed_name(command: Command, name: str) -> str:
    """The field as typed on the command line: an audit's own fields need no prefix."""
    return name.removeprefix("audit.") if command.choice.startswith("audit=") else name


def _first_sentence(field: FieldDoc) -> str:
    """The first sentence of the description, or its first clause if that is too long."""
    sentence = re.split(r"(?<=[^.])[.](?: |$)|; null: ", field.text.replace("`", ""))[0].rstrip(".")
    if len(sentence) > WIDTH - 6:
        sentence = sentence.partition("; ")[0]
    word = sentence.split(" ")[0].rstrip(",;")
    is_value = not word.isalpha() or word in (field.default, *field.range.split(", "))
    return sentence if is_value else sentence[:1].upper() + sentence[1:]


def _shorten(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 2].rpartition(' ')[0]} …"


def render_overview() -> str:
    """Returns the overview of all commands and sub-commands, in groups."""
    groups: dict[str, list[Command]] = {}
    for command in read_commands().values():
        if command.group:
            groups.setdefault(command.group, []).append(command)
    lines = [
        "Controlled contamination experiments for language models.",
        "",
        "Usage: contamination COMMAND [SUB-COMMAND] [field=value ...]",
    ]
    start = 2 + max(len(command.name) for of_group in groups.values() for command in of_group) + 2
    for title, commands in groups.items():
        lines += ["", f"{title}:"]
        for command in commands:
            first, *others = wrap_text(command.summary, WIDTH - start).split("\n")
            lines.append(f"  {command.name}".ljust(start) + first)
            lines += [" " * start + line for line in others]
            if nested := [c.word for c in subcommands(command) if not c.group]:
                text = wrap_text(f"sub-commands: {', '.join(nested)}", WIDTH - start - 2)
                lines += [f"{' ' * (start + 2)}{line}" for line in text.split("\n")]
    lines += [
        "",
        *_paragraph(
            "`contamination COMMAND [SUB-COMMAND] --help` shows the main fields of each. "
            "--version prints the version. All pages: docs/README.md. All fields: docs/fields.md."
        ),
    ]
    return "\n".join(lines)


def _paragraph(text: str) -> list[str]:
    return wrap_text(text, WIDTH).split("\n")

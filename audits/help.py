"""The screen of `--help` of the chosen audit, which another package may have installed."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from contamination.audits.base import chosen_audit_name, installed_audits, load_audit_class
from contamination.core.commands import Command, read_commands
from contamination.core.errors import ConfigError, near_names
from contamination.core.field_docs import describe_dataclass

AUDIT = "audit"


def find_audit_command(words: Sequence[str]) -> Command:
    """Returns the command of the audit that the words choose, or of all audits.

    Raises:
        ConfigError: there is no such audit, or an installed one can't be imported.
    """
    name = chosen_audit_name(words)
    commands = read_commands()
    command = commands.get(AUDIT if name is None else f"{AUDIT} {name}")
    if command is not None:
        return command
    installed = {entry_point.name: entry_point for entry_point in installed_audits()}
    if name not in installed:
        known = [c.removeprefix(f"{AUDIT} ") for c in commands if c.startswith(f"{AUDIT} ")]
        raise ConfigError(
            f"audit={name}: unknown audit. {near_names(str(name), [*known, *installed])}"
        )
    audit_class = load_audit_class(installed[name])
    schema = describe_dataclass(audit_class)
    return Command(
        name=f"{AUDIT} {name}",
        module=f"audits {name}",
        purpose=schema.text or f"An audit of {inspect.getmodule(audit_class)}.",
        example="model.path=DIR",
        docs=commands[AUDIT].docs,
        words={f"{f.name}={f.default or '(required)'}": f.text for f in schema.fields},
    )

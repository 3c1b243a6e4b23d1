"""`python -m audits NAME …`: audit a model with your own texts, or `fresh`: prepare one."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from functools import partial

from omegaconf import DictConfig

from contamination.core.cli import run_hydra_command, run_tool
from contamination.core.commands import Command, read_commands
from contamination.core.config import convert_config
from contamination.core.errors import ConfigError, near_names
from contamination.core.field_docs import describe_dataclass
from contamination.core.help import asks_for_help, render_command

AUDIT = "audit"


def main(config: DictConfig) -> None:
    """Audit a model with your own texts, and print the findings."""
    from contamination.audits.base import AuditStage
    from contamination.audits.run import PAGE, read_findings, run

    artifact = run(convert_config(config, AuditStage))
    print(f"{read_findings(artifact)}\nwrote {artifact.path / PAGE}")


def fresh(config: DictConfig) -> None:
    """Write questions to publish and questions to keep back."""
    from contamination.audits.benchmark.fresh import FreshStage, make_fresh

    folder = make_fresh(convert_config(config, FreshStage))
    print("\n".join(f"wrote {path}" for path in sorted(folder.iterdir())))


def find_audit_command(words: Sequence[str]) -> Command:
    """Returns the command of the audit that the words choose, or of all audits.

    Raises:
        ConfigError: there is no such audit, or an installed one can't be imported.
    """
    from contamination.audits.base import chosen_audit_name, installed_audits, load_audit_class

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


def run_chosen_audit() -> int:
    """Run the audit that the command line chooses; returns the exit status."""
    from contamination.audits.base import add_audit_prefixes, register_installed_audits
    from contamination.detection.__main__ import run_launched

    words = sys.argv[1:]
    if words[:1] == ["fresh"]:
        if asks_for_help(words):
            print(render_command(read_commands()["audit fresh"]))
            return 0
        sys.argv.pop(1)
        return run_hydra_command("fresh", fresh)
    if words and words[0].isidentifier():  # the audit's name alone
        words[0] = f"audit={words[0]}"
    if asks_for_help(words):
        print(render_command(find_audit_command(words)))
        return 0
    register_installed_audits(words)
    sys.argv[1:] = add_audit_prefixes(words)
    return run_launched(partial(run_hydra_command, "audit", main))


if __name__ == "__main__":
    sys.exit(run_tool(run_chosen_audit))

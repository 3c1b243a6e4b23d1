"""`python -m audits NAME …` audits a model with your own texts; `fresh` prepares questions."""

from __future__ import annotations

import sys
from functools import partial

from omegaconf import DictConfig

from contamination.core.cli import run_hydra_command, run_tool
from contamination.core.commands import read_commands
from contamination.core.config import convert_config
from contamination.core.help import asks_for_help, render_command


def main(config: DictConfig) -> None:
    """Audits a model with your own texts, and prints the findings."""
    from contamination.audits.base import AuditStage
    from contamination.audits.run import PAGE, read_findings, run

    artifact = run(convert_config(config, AuditStage))
    print(f"{read_findings(artifact)}\nwrote {artifact.path / PAGE}")


def fresh(config: DictConfig) -> None:
    """Writes questions to publish and questions to keep back."""
    from contamination.audits.benchmark.config import FreshStage
    from contamination.audits.benchmark.fresh_questions import make_fresh

    folder = make_fresh(convert_config(config, FreshStage))
    print("\n".join(f"wrote {path}" for path in sorted(folder.iterdir())))


def run_chosen_audit() -> int:
    """Runs the audit that the command line chooses; returns the exit status."""
    from contamination.audits.base import (
        add_audit_prefixes,
        find_audit_command,
        register_installed_audits,
    )
    from contamination.detection.__main__ import run_under_launcher

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
    return run_under_launcher(partial(run_hydra_command, "audit", main))


if __name__ == "__main__":
    sys.exit(run_tool(run_chosen_audit))

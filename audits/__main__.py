"""`python -m audits audit=NAME …`: an audit of a model with texts of one's own."""

from __future__ import annotations

import sys
from functools import partial

from omegaconf import DictConfig

from contamination.core.cli import command, said
from contamination.core.config import convert


def main(config: DictConfig) -> None:
    """Audit a model with texts of one's own, and print what was found."""
    from contamination.audits.base import AuditStage
    from contamination.audits.run import PAGE, findings, run

    artifact = run(convert(config, AuditStage))
    print(f"{findings(artifact)}\nwrote {artifact.path / PAGE}")


if __name__ == "__main__":
    from contamination.audits.base import spelled_out
    from contamination.detection.__main__ import run_launched

    sys.argv[1:] = spelled_out(sys.argv[1:])
    sys.exit(said(partial(run_launched, partial(command, "audit", main))))

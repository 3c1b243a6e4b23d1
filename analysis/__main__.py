"""`python -m analysis`: a report from finished scores; `… wandb`: from Weights & Biases."""

from __future__ import annotations

import sys

from omegaconf import DictConfig

from analysis.config import AnalysisStage, WandbReport
from core.command import command
from core.config import convert


def main(config: DictConfig) -> None:
    """Check the config and run the stage."""
    from analysis.run import run

    run(convert(config, AnalysisStage))


def wandb(config: DictConfig) -> None:
    """Pull the results back from Weights & Biases, or from a local record of it."""
    from analysis.mirror.report import write_wandb_report

    made = write_wandb_report(convert(config, WandbReport))
    print(f"wrote {made.path}: {made.counts['cells']} cells, {made.counts['estimates']} estimates")


if __name__ == "__main__":
    if sys.argv[1:2] == ["wandb"]:
        del sys.argv[1]
        sys.exit(command("wandb", wandb))
    sys.exit(command("analysis", main))

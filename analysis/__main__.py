"""`python -m analysis`: a report from scores; its tools are `law`, `wandb` and `wandb-view`."""

from __future__ import annotations

import re
import sys

from omegaconf import DictConfig, open_dict

from contamination.analysis.config import AnalysisStage, WandbReport
from contamination.core.cli import run_hydra_command
from contamination.core.config import convert_config
from contamination.core.help import print_help_or_error

EXPERIMENT, ITS_NAME = re.compile(r"^\+*experiment(?==)"), "experiment_name"
"""`wandb experiment=NAME` under a name by which Hydra does not look for conf/experiment/NAME."""


def main(config: DictConfig) -> None:
    """Checks the config and runs the stage."""
    from contamination.analysis.run import run

    run(convert_config(config, AnalysisStage))


def report_from_wandb(config: DictConfig) -> None:
    """Pulls the results back from Weights & Biases, or from a local record of it."""
    from contamination.analysis.wandb.read import write_wandb_report

    report = write_wandb_report(convert_config(_with_experiment_name(config), WandbReport))
    counts = report.counts
    print(f"wrote {report.path}: {counts['cells']} cells, {counts['estimates']} estimates")


def create_wandb_view(config: DictConfig) -> None:
    """Saves a view of a project in Weights & Biases, and prints its address."""
    from contamination.analysis.wandb.view import WandbViewConfig, save_view

    print(save_view(convert_config(_with_experiment_name(config), WandbViewConfig)))


def fit_law(config: DictConfig) -> None:
    """Fits the law of detectability to the cells of reports."""
    from contamination.analysis.law.config import LawStage
    from contamination.analysis.law.run import run

    run(convert_config(config, LawStage))


def _with_experiment_name(config: DictConfig) -> DictConfig:
    """The config with the experiment's name where the dataclasses have it."""
    with open_dict(config):
        config.experiment = config.pop(ITS_NAME)
    return config


def run_named_tool() -> int:
    """Runs the stage or the tool that the command line names; returns the exit status."""
    tools = {"wandb": report_from_wandb, "wandb-view": create_wandb_view, "law": fit_law}
    name, run = "analysis", main
    if sys.argv[1:2] and sys.argv[1] in tools:
        name = sys.argv.pop(1)
        run = tools[name]
        sys.argv[1:] = [EXPERIMENT.sub(ITS_NAME, word) for word in sys.argv[1:]]
    return run_hydra_command(name.replace("-", "_"), run)


if __name__ == "__main__":
    answered = print_help_or_error("analysis")
    sys.exit(run_named_tool() if answered is None else answered)

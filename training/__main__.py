"""`python -m training corpus_folder=runs/corpus/… [overrides]`; `… memory`; `… which-step`."""

from __future__ import annotations

import sys

from omegaconf import DictConfig

from contamination.core.cli import run_hydra_command
from contamination.core.config import convert_config
from contamination.core.distributed import exit_process, launched_process_count
from contamination.core.help import print_help_or_error
from contamination.training.config import MemoryStage, TrainingStage


def train_model(config: DictConfig) -> None:
    """Trains a model on a corpus."""
    from contamination.training.run import run

    run(convert_config(config, TrainingStage))


def print_memory_plan(config: DictConfig) -> None:
    """Prints how much memory a training run needs on several machines."""
    from contamination.training.memory_plan import format_memory_plan

    print(format_memory_plan(convert_config(config, MemoryStage)))


def print_step_table(config: DictConfig) -> None:
    """Prints which training step saw a text."""
    from contamination.training.config import WhichStepStage
    from contamination.training.which_step import format_step_table

    print(format_step_table(convert_config(config, WhichStepStage)))


def main() -> int:
    """Runs the stage or one of its tools."""
    if (status := print_help_or_error("training")) is not None:
        return status
    tools = {"memory": print_memory_plan, "which-step": print_step_table}
    if sys.argv[1:2] and sys.argv[1] in tools:
        name = sys.argv.pop(1)
        return run_hydra_command(name.replace("-", "_"), tools[name])
    try:
        status = run_hydra_command("training", train_model)
    except SystemExit as end:  # raised if the launcher reports the error
        status = int(end.code or 0)
    if launched_process_count() > 1:
        exit_process(status)
    return status


if __name__ == "__main__":
    sys.exit(main())

"""`python -m training corpus_folder=runs/corpus/… [overrides]`; `… memory`; `… which-step`."""

from __future__ import annotations

import sys

from core.command import command
from core.config import convert
from core.world import asked_processes, leave
from training.config import TrainingStage
from training.memory_plan import MemoryStage, plan
from training.run import run
from training.which_step import WhichStepStage, which_step


def main() -> int:
    """Train, say what a training needs, or which step saw a text."""
    if sys.argv[1:2] == ["memory"]:
        del sys.argv[1]
        return command("memory", lambda config: print(plan(convert(config, MemoryStage))))
    if sys.argv[1:2] == ["which-step"]:
        del sys.argv[1]
        return command("which_step", lambda c: print(which_step(convert(c, WhichStepStage))))
    try:
        status = command("training", lambda config: run(convert(config, TrainingStage)))
    except SystemExit as end:  # said by a launcher that looks on
        status = int(end.code or 0)
    if asked_processes() > 1:
        leave(status)
    return status


if __name__ == "__main__":
    sys.exit(main())

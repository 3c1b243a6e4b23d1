"""`python -m training corpus_folder=runs/corpus/… [overrides]`; `… memory`: what a run needs."""

from __future__ import annotations

import sys

from core.command import command
from core.config import convert
from training.config import TrainingStage
from training.memory_plan import MemoryStage, plan
from training.run import run

if __name__ == "__main__":
    if sys.argv[1:2] == ["memory"]:
        del sys.argv[1]
        sys.exit(command("memory", lambda config: print(plan(convert(config, MemoryStage)))))
    sys.exit(command("training", lambda config: run(convert(config, TrainingStage))))

"""A launch by the command line, for tests: what it says, its processes, its end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from contamination.core.lock import LOCKS_FOLDER
from contamination.launch.processes import LAUNCHER
from tests.small import SMALL

ENVIRONMENT = {**os.environ}  # its number of threads: some CPUs round by it
for name in LAUNCHER:  # of a training in this very process
    ENVIRONMENT.pop(name, None)


QUICK = [
    *SMALL, "wandb.mode=disabled", "method=[loss,min_k]", "deepspeed=zero2",
    "training.micro_batch_sequences=8", "training.export_steps=[]",
    "training.evaluate_every_steps=null",
]  # fmt: skip
TWO = "cluster.processes=2"


class Started:
    """A launch that runs; what it says goes to a file, so that nothing waits for a reader."""

    def __init__(self, log: Path, *words: str, **environment: str) -> None:
        self.log, self.began = log, time.monotonic()
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "launch", *words], env={**ENVIRONMENT, **environment},
                stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def said(self) -> str:
        """What all of its processes have said so far."""
        return self.log.read_text()

    def until(self, ready, within=180):
        """Wait until `ready()` gives something; that."""
        deadline = time.monotonic() + within
        while not (found := ready()):
            assert self.process.poll() is None, self.said[-4000:]
            assert time.monotonic() < deadline, "it never came so far"
            time.sleep(0.005)
        return found

    def ended(self, status=0, within=300) -> str:
        """Wait for its end; what it said."""
        try:
            self.process.wait(within)
        finally:
            self.kill()
        assert self.process.returncode == status, self.said[-6000:]
        return self.said

    def rank(self, number: int) -> psutil.Process | None:
        """Its training process of that rank, if there is one."""
        with suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                if (
                    child.environ().get("RANK") == str(number)
                    and "contamination.training" in child.cmdline()
                ):
                    return child
        return None

    def kill(self) -> None:
        """End what is left of it and of its processes."""
        with suppress(psutil.Error):
            family = psutil.Process(self.process.pid)
            for member in [*family.children(recursive=True), family]:
                member.kill()
        self.process.wait()


def copied(runs, place):
    """A runs folder without launches, reports, and all of the contaminated model: to make again."""
    shutil.copytree(runs, place, ignore=shutil.ignore_patterns("launches", "report", LOCKS_FOLDER))
    made = [p for kind in ("model", "scores", "passes") for p in place.glob(f"{kind}/*-study-*")]
    for folder in made:
        shutil.rmtree(folder)
    return place

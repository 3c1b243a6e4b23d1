"""A run that is killed at any moment, and started again, ends as one that was left alone.

FAULT_KILLS=216 is how many kills there are in all, and FAULT_SEED=0 what draws them
(`make faults`).
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.kills import Command, Run, Tally, chain, plan, table
from tests.launch.started import QUICK, TWO, copied
from tests.small import SMALL, contents
from tests.training.processes import TINY

KILLS = int(os.environ.get("FAULT_KILLS", "24"))
SEED = int(os.environ.get("FAULT_SEED", "0"))
CHAINS = 2
PYTHON = sys.executable
pytestmark = pytest.mark.slow


def pipeline(runs):
    return [PYTHON, "-m", "launch", *SMALL, "wandb.mode=disabled", f"runs={runs}"]


def left_alone(command, place):
    """The artefacts of a run that nobody kills, and its seconds."""
    runs = place / "whole"
    command.prepare(runs)
    began = time.monotonic()
    run = Run(command.words(runs), place / "whole.log")
    try:
        assert run.process.wait(600) == 0, run.said()[-4000:]
    finally:
        run.end()
    return runs, time.monotonic() - began


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The runs folder of one small cell."""
    return left_alone(Command("pipeline", pipeline), tmp_path_factory.mktemp("small"))[0]


def commands(small):
    """What is killed: the whole pipeline; training by one process, and by two."""
    (corpus,) = small.glob("corpus/*-study-*")
    one = [PYTHON, "-m", "training", f"corpus_folder={corpus}", *TINY, "deepspeed=zero2",
           "training.evaluate_every_steps=5", "training.export_steps=[7]"]  # fmt: skip
    two = [PYTHON, "-m", "launch", *QUICK, "launch.stage=train", "cluster.retries=0", TWO]
    return {
        "pipeline": Command("pipeline", pipeline),
        "one": Command("training by 1", lambda runs: [*one, f"runs={runs}"]),
        "two": Command("training by 2", lambda runs: [*two, f"runs={runs}"],
                       lambda runs: copied(small, runs)),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["pipeline", "one", "two"])
def test_a_killed_run_ends_as_one_left_alone(small, tmp_path, name, capsys):
    command, tally = commands(small)[name], Tally()
    whole, seconds = left_alone(command, tmp_path)
    kills = plan(-(-KILLS // 3), SEED)
    places = [tmp_path / f"chain-{n}" for n in range(CHAINS)]
    draws = iter(kills)
    with ThreadPoolExecutor(CHAINS) as pool, capsys.disabled():  # half an hour without a word?
        print(f"\nseed {SEED}, {len(kills)} kills over {seconds:.1f} s")
        for place in places:
            place.mkdir()
        list(pool.map(lambda p: chain(command, p, contents(whole), seconds, draws, tally), places))
        print(table(tally))
    assert not tally.interventions, tally.interventions[0]
    assert not tally.others
    assert not [k for k in tally.kills if k.orphans or not k.obeyed]
    assert len(tally.kills) == len(kills)

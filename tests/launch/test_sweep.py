"""A sweep by the command line: killed and gone on with, side by side, stopped."""

import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from tests.small import SMALL, contents, report_of

# Side by side, cells get a thread each: with as many, all ways give the same bits.
ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}
SWEEP = [sys.executable, "-m", "launch", "-m", *SMALL, "wandb.mode=disabled"]


def sweep(runs, *overrides):
    done = subprocess.run(
        [*SWEEP, f"runs={runs}", *overrides], capture_output=True, text=True, env=ALONE
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_a_killed_sweep_goes_on_to_the_same_result(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    sweep(whole, "seed=0,1")
    process = subprocess.Popen(
        [*SWEEP, f"runs={killed}", "seed=0,1"], env=ALONE,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not list(killed.glob("launches/*/cells/*/outcome.json")):  # the first cell is done
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = set(contents(killed))
    sweep(killed, "seed=0,1")
    assert set(contents(killed)) > before
    assert contents(killed) == contents(whole)


@pytest.mark.slow
def test_cells_side_by_side_build_what_they_share_once(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs the extra [parallel]")
    one, two = tmp_path / "one", tmp_path / "two"
    sweep(one, "seed=0,1")
    sweep(two, "seed=0,1", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    assert contents(two) == contents(one)
    pd.testing.assert_frame_equal(report_of(two).results, report_of(one).results)


@pytest.mark.slow
def test_sigterm_ends_the_sweep_and_not_only_the_cell(tmp_path):
    call = [*SWEEP, f"runs={tmp_path}", "seed=0,1"]
    process = subprocess.Popen(call, env=ALONE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while not any(p.stat().st_size for p in tmp_path.glob("model/*-study-*/metrics.jsonl")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1].decode()
    assert process.returncode == 143
    assert "stopped: SIGTERM was received at step" in said
    assert len(list((tmp_path / "model").glob("*-study-*"))) == 1  # the second cell never began

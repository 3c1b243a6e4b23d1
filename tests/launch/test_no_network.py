"""The pipeline with the network taken away: only the loopback is left."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small import SMALL

REPOSITORY = Path(__file__).resolve().parents[2]
ALONE = """
import fcntl, socket, struct, sys, runpy
with socket.socket() as any_one:  # the loopback goes up
    name = b"lo".ljust(16, bytes(1))
    fcntl.ioctl(any_one, 0x8914, struct.pack("16sh14x", name, 0x1 | 0x40))
LOCAL = ("localhost", "127.0.0.1", "::1", "", None, socket.gethostname())
def heard(event, arguments):
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        if arguments[0] not in LOCAL:
            print("looked up", arguments[0], file=sys.__stderr__, flush=True)
sys.addaudithook(heard)
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
UNSHARED = ["unshare", "--net", *(["--user", "--map-root-user"] if os.geteuid() else [])]


def permitted():
    try:
        return subprocess.run([*UNSHARED, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not permitted(), reason="this process may not leave its network"),
]


def run(*words, cwd, before=()):
    """A command with nothing in its environment that tells a library to be offline."""
    offline = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "WANDB_MODE")
    kept = {name: value for name, value in os.environ.items() if name not in offline}
    return subprocess.run(
        [*UNSHARED, *before, sys.executable, "-c", ALONE, *words], cwd=cwd, capture_output=True,
        text=True, env={**kept, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_the_whole_pipeline_needs_no_network_and_asks_for_no_name(tmp_path):
    methods = "method=[loss,zlib,min_k,reference,neighbor,recall]"
    done = run("launch", *SMALL, methods, cwd=tmp_path)  # wandb.mode is offline, as by default
    assert done.returncode == 0, done.stderr[-3000:]
    assert "looked up" not in done.stderr
    assert list(tmp_path.glob("runs/report/*/manifest.json"))


def test_what_is_remote_is_one_error_at_once(tmp_path):
    (tmp_path / "t.jsonl").write_text(json.dumps({"text": "A heron waits in the reeds."}))
    words = ["examples.path=t.jsonl", "model.path=nobody/no-such-model"]
    done = run("detection", *words, cwd=tmp_path)
    said = done.stderr.strip().splitlines()
    assert done.returncode == 2, done.stderr[-3000:]
    assert said[-1].startswith("error: model.path is 'nobody/no-such-model'")
    assert "Retrying" not in done.stderr
    assert done.stderr.count("looked up") == 1


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_no_library_below_python_asks_for_a_name_either(tmp_path):
    """Two of torch's store and one of wandb's did."""
    trace = tmp_path / "calls"
    strace = ["strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmmsg", "-o", str(trace)]
    stop = ["launch.stage=train", "training.export_steps=[]", "model.pretraining.vocab_size=512"]
    done = run("launch", *SMALL, *stop, cwd=tmp_path, before=strace)
    assert done.returncode == 0, done.stderr[-3000:]
    asked = [line for line in trace.read_text().splitlines() if "htons(53)" in line]
    assert asked == []

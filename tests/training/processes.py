"""Training through the command line, by one or several processes, for tests and reports."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import psutil

TINY = (
    "model.architecture.hidden_size=16", "model.architecture.intermediate_size=32",
    "model.architecture.num_hidden_layers=1", "model.architecture.num_attention_heads=2",
    "model.architecture.num_key_value_heads=2", "training.learning_rate=1e-2",
    "training.batch_sequences=4", "training.micro_batch_sequences=2", "training.warmup_steps=2",
    "training.checkpoint_every_steps=5", "wandb.mode=disabled",
)  # fmt: skip


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(processes: int, corpus: Path, runs: Path, *overrides: str) -> subprocess.Popen[str]:
    """`python -m training` by that many processes."""
    launcher = [
        "-m", "torch.distributed.run", "--nproc_per_node", str(processes),
        "--master_addr", "127.0.0.1", "--master_port", str(free_port()),
    ] if processes > 1 else []  # fmt: skip
    call = [sys.executable, *launcher, "-m", "training", f"corpus_folder={corpus}",
            f"runs={runs}", *TINY, *overrides]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)  # of a training in this very process
    return subprocess.Popen(
        call, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def train(processes: int, corpus: Path, runs: Path, *overrides: str) -> Path:
    """The model folder of a run that is left alone."""
    process = start(processes, corpus, runs, *overrides)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output[-4000:]
    return only_folder(runs)


def train_here(corpus: Path, runs: Path, *overrides: str) -> Path:
    """The same of one process, which is this one: a start takes seconds."""
    import torch
    from hydra import compose, initialize_config_dir

    from contamination.core.config import CONF, convert_config
    from contamination.training.config import TrainingStage
    from contamination.training.run import run

    with initialize_config_dir(str(CONF), version_base="1.3"):
        given = [f"corpus_folder={corpus}", f"runs={runs}", *TINY, *overrides]
        stage = convert_config(compose("training", given), TrainingStage)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as OMP_NUM_THREADS does in the others: sums of the same order
    try:
        return run(stage).path
    finally:
        torch.set_num_threads(threads)


def stop_when(
    process: subprocess.Popen[str],
    ready: Callable[[], bool],
    how: signal.Signals,
    delay: float = 0.0,
) -> str:
    """Kill all of its processes, or send the first one a signal, as soon as `ready` says so."""
    deadline = time.monotonic() + 120
    while not ready():
        assert process.poll() is None, process.communicate()[0][-4000:]
        assert time.monotonic() < deadline, "it never came so far"
        time.sleep(0.0005)
    time.sleep(delay)
    family = [psutil.Process(process.pid)]
    if how == signal.SIGKILL:  # torchrun gives each worker a process group of its own
        family += family[0].children(recursive=True)
    for member in family:
        member.send_signal(how)
    return process.communicate(timeout=120)[0]


def only_folder(runs: Path) -> Path:
    """The one model folder."""
    (folder,) = (runs / "model").iterdir()
    return folder


def steps_done(runs: Path) -> int:
    """Lines of the record, finished or not."""
    found = list(runs.glob("model/*/metrics.jsonl"))
    return found[0].read_bytes().count(b"\n") if found else 0


def losses(folder: Path) -> list[float]:
    """The losses of every step."""
    return list(pd.read_json(folder / "metrics.jsonl", lines=True)["loss"])

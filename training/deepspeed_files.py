"""DeepSpeed's checkpoint files: written, read, and made to fit another number of processes.

Which files there are and what is in them only DeepSpeed knows: for `resume` they are a folder.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from core.errors import DataError

LOAD_UNIVERSAL = {"checkpoint": {"load_universal": True}}
"""What the engine's configuration says where `read` is given what `convert` made."""


def write(engine: Any, folder: Path, step: int) -> None:
    """Write the engine's whole state, every process its part."""
    state = {"step": step}
    engine.save_checkpoint(
        str(folder.parent), tag=folder.name, client_state=state, save_latest=False
    )


def read(engine: Any, folder: Path) -> None:
    """Load what `write` wrote with as many processes, or what `convert` made of it."""
    optimizer = engine.optimizer
    decays = [group["weight_decay"] for group in optimizer.param_groups]
    engine.load_checkpoint(str(folder.parent), tag=folder.name)
    # of a universal checkpoint, ZeRO 3 gives all groups the first one's decay, and one counter of
    # steps, which each of them then moves on
    for group, decay in zip(optimizer.param_groups, decays, strict=True):
        group["weight_decay"] = decay
    for state in optimizer.state.values():
        state["step"] = state["step"].clone()


def convert(source: Path, place: Path) -> None:
    """Make DeepSpeed's universal form of a checkpoint, which any number of processes can load.

    Raises:
        DataError: DeepSpeed's converter fails.
    """
    call = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state"]
    call += ["--input_folder", str(source), "--output_folder", str(place)]
    call += ["--num_extract_workers", "1", "--num_merge_workers", "1"]
    done = subprocess.run(call, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DataError(
            f"The checkpoint {source} can't be converted for another number of processes "
            f"({reason}). Go on with as many processes as wrote it."
        )

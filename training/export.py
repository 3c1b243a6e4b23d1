"""The engine's weights as a Hugging Face folder: safetensors, config, tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from core.files import TEMPORARY_END
from core.world import World
from training.deepspeed_private import whole_weights
from training.engine import zero_stage


def export(engine: Any, tokenizer: Path, folder: Path, world: World) -> None:
    """Write the model whole: the folder appears when all is in it.

    Args:
        engine: the DeepSpeed engine, of any ZeRO stage; every process has to call this.
        tokenizer: a folder whose files go with the weights.
        folder: the Hugging Face folder to make.
        world: this process's place.
    """
    partitioned = zero_stage(engine.config) == 3
    weights = whole_weights(engine) if partitioned else None

    def write() -> None:
        part = folder.with_name(f".{folder.name}{TEMPORARY_END}")
        shutil.rmtree(part, ignore_errors=True)
        engine.module.save_pretrained(part, state_dict=weights)
        for file in tokenizer.iterdir():
            shutil.copyfile(file, part / file.name)
        part.rename(folder)

    world.on_rank_0(write)

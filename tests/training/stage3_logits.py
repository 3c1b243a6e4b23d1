"""Run by two processes: a ZeRO stage 3 engine's logits beside those of its export."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from contamination.core.models import load_model, load_tokenizer
from contamination.training.config import ModelConfig, TrainingConfig
from contamination.training.deepspeed_engine import (
    engine_config,
    export_model,
    join_process_group,
    start_engine,
)
from contamination.training.loop import StepPart, optimizer_step
from contamination.training.models import load_or_create_model
from contamination.training.objectives.likelihood import Likelihood

GOLDEN = Path(__file__).parents[1] / "golden" / "target"


def main(folder: Path) -> None:
    """Two steps from the golden model, then both ways of asking for logits."""
    world = join_process_group()
    config = TrainingConfig(batch_sequences=4, micro_batch_sequences=2, warmup_steps=0)
    settings = engine_config(config, {"zero_optimization": {
        "stage": 3, "stage3_gather_16bit_weights_on_model_save": True}}, world)  # fmt: skip
    model = load_or_create_model(ModelConfig(path=str(GOLDEN)), 1024, 16, 0, settings)
    engine = start_engine(model, config, settings, 2, world)
    ids = torch.arange(3, 67).view(4, 16)
    rows = [{"input_ids": row.numpy()} for row in ids]
    for _ in range(2):
        part = StepPart(rows, torch.arange(4).numpy(), Likelihood())
        optimizer_step(engine, [part], config, world, clip=False)
    if world.is_rank_0:
        load_tokenizer("tokenizer", str(GOLDEN)).save_pretrained(folder / "tokenizer")
    export_model(engine, folder / "tokenizer", folder / "hf", world)
    with torch.no_grad():
        engine.eval()
        ours = engine(input_ids=ids).logits
        if world.is_rank_0:
            plain = load_model("model", str(folder / "hf"))
            torch.save((plain(input_ids=ids).logits, ours), folder / "logits.pt")
    world.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

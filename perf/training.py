"""Compares a training step's speed with a bare loop and Trainer: `python perf/training.py`.

It measures training tokens per second in float32, with the same random weights, batches and
schedule. The three loops take turns, step by step in one process. It prints medians of the speeds
and of the ratios by step:

- bare: forward, cross-entropy, backward, clipping and AdamW (fused), over prepared batches;
- ours: `training.loop.optimizer_step` with the engine of `conf/deepspeed/zero0.yaml`; its batches
  come from a `datasets.Dataset`, as Trainer's do;
- Trainer: `transformers.Trainer` with the same engine configuration, except for the clipping, which
  it leaves to the engine; the other loops' steps run in its callback, outside its time.

The losses of all steps of ours and bare, and the loss of the first batch after the last step of all
three, must agree to 1e-4, which shows that they do the same work.

On a CPU; `perf.gpu` is for a GPU.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from datasets import Dataset, Features, Sequence, Value
from torch.nn.utils import clip_grad_norm_
from transformers import Trainer, TrainerCallback, TrainingArguments, get_scheduler

from contamination.core.cli import discard_output, quiet_libraries
from contamination.core.distributed import World
from contamination.training.config import ModelConfig, TrainingConfig
from contamination.training.data import SequenceOrder, read_batch
from contamination.training.deepspeed_engine import (
    engine_config,
    join_process_group,
    loop_clips_gradients,
    start_engine,
)
from contamination.training.loop import StepPart, optimizer_step
from contamination.training.loss import token_losses
from contamination.training.models import load_or_create_model
from contamination.training.objectives.likelihood import Likelihood

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line sets it
sys.path.insert(0, str(Path(__file__).parents[1]))  # else this file hides the package

CONF = Path(__file__).parents[1] / "conf"
WARM_UP, STEPS, BATCHES = 5, 50, 8
TOKENS = 256
CONFIG = TrainingConfig(learning_rate=1e-3, schedule="constant")
COLUMNS = ("bare tok/s", "ours tok/s", "Trainer tok/s", "ours/bare", "ours/Trainer")

TINY = yaml.safe_load((CONF / "model" / "tiny_llama.yaml").read_text())["architecture"]
WIDE = {**TINY, "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4}
MODELS = {"64 wide, 2 layers": (TINY, 1024), "192 wide, 4 layers": (WIDE, 4096)}

Step = Callable[[int], float]


def main() -> None:
    """Measures, and prints one line per model."""
    quiet_libraries()
    world, batch = join_process_group(), f"{CONFIG.batch_sequences} × {TOKENS}"
    threads = torch.get_num_threads()
    print(f"{world.device}, {threads} threads; batches of {batch} tokens, {STEPS} steps")
    print(f"{'model':20}{''.join(f'{column:>15}' for column in COLUMNS)}")
    for name, (architecture, vocabulary) in MODELS.items():
        bare, ours, trainer = step_seconds(architecture, vocabulary, world)
        tokens = CONFIG.batch_sequences * TOKENS
        speeds = [tokens / statistics.median(times) for times in (bare, ours, trainer)]
        ratios = [
            statistics.median(b / a for a, b in zip(ours, baseline, strict=True))
            for baseline in (bare, trainer)
        ]
        cells = [*(f"{s:15,.0f}" for s in speeds), *(f"{r:15.2f}" for r in ratios)]
        print(f"{name:20}{''.join(cells)}", flush=True)
    print(f"{'goal':65}{'≥ 0.95':>15}{'≥ 1.0':>15}")


def step_seconds(architecture: dict[str, Any], vocabulary: int, world: World) -> list[list[float]]:
    """Returns the seconds of each step after the warm-up, of bare, ours and Trainer."""
    sequences, config = random_sequences(vocabulary, TOKENS), ModelConfig(architecture=architecture)
    models = [
        load_or_create_model(config, vocabulary, TOKENS, seed=0).to(world.device) for _ in range(3)
    ]
    ours = our_step(models[1], sequences, CONFIG, engine_settings("zero0"), world)
    turns = Turns(bare_step(models[0].train(), sequences, world), ours)
    train(models[2], sequences, turns, world)
    bare_losses, our_losses = turns.losses
    np.testing.assert_allclose(our_losses, bare_losses, rtol=0, atol=1e-4)
    ids = read_batch(sequences, np.arange(CONFIG.batch_sequences)).ids_BS.to(world.device)
    with torch.no_grad():
        after = [float(token_losses(model, ids).mean()) for model in models]
    np.testing.assert_allclose(after, after[0], rtol=0, atol=1e-4)
    return [times[WARM_UP:] for times in turns.seconds]


def random_sequences(vocabulary: int, width: int) -> Dataset:
    """Returns packed sequences of random tokens, in the form of a corpus's."""
    shape = BATCHES * CONFIG.batch_sequences, width
    ids = np.random.default_rng(0).integers(vocabulary, size=shape, dtype=np.int32)
    kind = Features({"input_ids": Sequence(Value("int32"), length=width)})
    return Dataset.from_dict({"input_ids": list(ids)}, kind)


def engine_settings(name: str) -> dict[str, Any]:
    """Reads a file of `conf/deepspeed/`."""
    return dict(yaml.safe_load((CONF / "deepspeed" / f"{name}.yaml").read_text()))


def bare_step(model: Any, sequences: Dataset, world: World) -> Step:
    """Returns a function that runs one step with torch alone."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=CONFIG.learning_rate, betas=(CONFIG.beta1, CONFIG.beta2),
        weight_decay=CONFIG.weight_decay, fused=True,
    )  # fmt: skip
    schedule = get_scheduler(CONFIG.schedule, optimizer)
    parts = np.arange(len(sequences)).reshape(BATCHES, -1)
    batches = [read_batch(sequences, rows).ids_BS.to(world.device) for rows in parts]

    def step(number: int) -> float:
        loss: Any = token_losses(model, batches[number % BATCHES]).mean()
        loss.backward()
        clip_grad_norm_(model.parameters(), CONFIG.clip_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return step


def our_step(model: Any, sequences: Dataset, config: TrainingConfig, settings: dict[str, Any],
             world: World) -> Step:  # fmt: skip
    """Returns a function that runs one step of `python -m training`, in the corpus's order."""
    order = SequenceOrder(len(sequences), config.batch_sequences, None)
    engine = start_engine(model, config, engine_config(config, settings, world), 1000, world)
    clip = loop_clips_gradients(config, settings)

    def step(number: int) -> float:
        rows = order.rows_of_step(number % order.steps)
        part = StepPart(sequences, rows, Likelihood(compiled=config.compile))
        return optimizer_step(engine, [part], config, world, clip=clip).loss

    return step


class Turns(TrainerCallback):  # type: ignore[misc]
    """Times Trainer's steps, and runs and times the other loops' steps between them."""

    def __init__(self, *other_steps: Step) -> None:
        self.other_steps = other_steps
        self.losses: list[list[float]] = [[] for _ in other_steps]
        self.seconds: list[list[float]] = [[] for _ in (*other_steps, self)]
        self.started = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Starts the time of Trainer's first step."""
        self.started = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Runs one step of each other loop, then starts the time of Trainer's next step."""
        self.seconds[-1].append(seconds_since(self.started))
        for step, losses, times in zip(self.other_steps, self.losses, self.seconds, strict=False):
            started = time.perf_counter()
            losses.append(step(len(losses)))
            times.append(seconds_since(started))
        self.started = time.perf_counter()


def seconds_since(started: float) -> float:
    """Returns the seconds since `started`, once the device has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def train(model: Any, sequences: Dataset, turns: Turns, world: World) -> None:
    """Runs all steps with transformers' Trainer, without files or logs."""
    settings = engine_config(CONFIG, engine_settings("zero0"), world)
    with tempfile.TemporaryDirectory() as folder, discard_output():
        options = TrainingArguments(
            folder, deepspeed={**settings, "gradient_clipping": CONFIG.clip_norm},
            per_device_train_batch_size=CONFIG.batch_sequences,
            max_steps=WARM_UP + STEPS, optim="adamw_torch_fused", max_grad_norm=CONFIG.clip_norm,
            learning_rate=CONFIG.learning_rate, lr_scheduler_type=CONFIG.schedule,
            warmup_steps=CONFIG.effective_warmup_steps, weight_decay=CONFIG.weight_decay,
            adam_beta1=CONFIG.beta1, adam_beta2=CONFIG.beta2, train_sampling_strategy="sequential",
            logging_strategy="no", save_strategy="no", report_to=[], disable_tqdm=True,
        )  # fmt: skip
        Trainer(model, options, collate, sequences, callbacks=[turns]).train()


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Returns a batch for Trainer's model."""
    ids = torch.tensor([row["input_ids"] for row in rows])
    return {"input_ids": ids, "labels": ids}


if __name__ == "__main__":
    main()

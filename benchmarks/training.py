"""What a training step costs beside a bare loop: `python benchmarks/training.py`.

Training tokens a second, on the same random weights, batches and schedule in float32, as medians
over rounds that take turns, each way in a process of its own:

- bare: forward, cross-entropy, backward, clipping and AdamW (fused) over batches that stand ready;
- ours: `training.step.optimizer_step` with the DeepSpeed engine that `conf/deepspeed/zero0.yaml`
  makes; like Trainer it reads its batches from a `datasets.Dataset`;
- Trainer: `transformers.Trainer` with the same engine configuration, but clipping in the engine.

In multiples of the others: ours/bare and ours/Trainer are medians of the rounds' ratios. The losses
of all steps of ours and bare, and that of the first batch after the last step of all three, must
agree to 1e-4: it is the same work.

On a GPU there are lines for LLaMA's 7B shape (ZeRO 3, activation checkpointing, 4 × 2,048 tokens at
a time) and TinyLlama's 1.1B (ZeRO 1, 8 × 2,048 tokens), random weights in bfloat16, with the MFU
and the peak memory. Those lines were never run: there was no GPU.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line sets it
sys.path.insert(0, str(Path(__file__).parents[1]))  # else this file hides the package

import numpy as np
import torch
import yaml
from datasets import Dataset, Features, Sequence, Value
from torch.nn.utils import clip_grad_norm_
from transformers import Trainer, TrainerCallback, TrainingArguments, get_scheduler

from core.quiet import quiet_libraries
from training.config import ModelConfig, TrainingConfig
from training.data import Order
from training.engine import clips_itself, engine_config, start_engine
from training.flops import flops_per_token, utilization
from training.loss import token_losses
from training.models import make_model
from training.step import optimizer_step
from training.world import World, start_processes

CONF = Path(__file__).parents[1] / "conf"
WAYS = ("bare", "ours", "trainer")
ROUNDS, WARM_UP, STEPS, BATCHES = 5, 5, 20, 8
TOKENS, LONG = 256, 2048
PEAK_TFLOPS = 989  # of an H100 or H200, dense bfloat16
CONFIG = TrainingConfig(learning_rate=1e-3)

TINY = yaml.safe_load((CONF / "model" / "tiny_llama.yaml").read_text())["architecture"]
MEDIUM = {**TINY, "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4}
BILLION = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
           "num_attention_heads": 32, "num_key_value_heads": 4}  # fmt: skip
MODELS = {"64 wide, 2 layers": (TINY, 1024), "192 wide, 4 layers": (MEDIUM, 4096)}
LARGE = {"7B shape": ({}, "zero3", 4), "1.1B shape": (BILLION, "zero1", 8)}


def main() -> None:
    """Measure and print one line a model; with arguments, one way of one model, as JSON."""
    if len(sys.argv) > 1:
        quiet_libraries()
        way, name, result = sys.argv[1:]
        Path(result).write_text(json.dumps(large(name) if way == "large" else timed(way, name)))
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(
        f"{device}, {torch.get_num_threads()} threads; {CONFIG.batch_sequences} × {TOKENS} tokens"
    )
    columns = ("bare tok/s", "ours tok/s", "Trainer tok/s", "ours/bare", "ours/Trainer")
    print(f"{'model':20}{''.join(f'{column:>14}' for column in columns)}")
    for name in MODELS:
        rounds = [{way: process(way, name) for way in WAYS} for _ in range(ROUNDS)]
        check(rounds[0])
        speed = {way: [r[way]["tokens_per_second"] for r in rounds] for way in WAYS}
        medians = "".join(f"{statistics.median(speed[way]):14,.0f}" for way in WAYS)
        ratios = [
            statistics.median(a / b for a, b in zip(speed["ours"], speed[way], strict=True))
            for way in ("bare", "trainer")
        ]
        print(f"{name:20}{medians}{''.join(f'{ratio:14.2f}' for ratio in ratios)}")
    print(f"{'goal':62}{'≥ 0.95':>14}{'≥ 1.0':>14}")
    for name in LARGE if device == "cuda" else ():
        found = process("large", name)
        print("{}, bf16: {:,.0f} tok/s, MFU {:.2f}, peak {:.0f} GB".format(name, *found))


def process(way: str, name: str) -> Any:
    """What a process of its own finds: two engines don't go into one."""
    with tempfile.NamedTemporaryFile() as result:
        command = [sys.executable, __file__, way, name, result.name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{way}, {name}:\n{done.stderr}")
        return json.loads(Path(result.name).read_text())


def check(found: dict[str, Any]) -> None:
    """The ways did the same work."""
    np.testing.assert_allclose(found["ours"]["losses"], found["bare"]["losses"], rtol=0, atol=1e-4)
    after = [found[way]["after"] for way in WAYS]
    assert max(after) - min(after) <= 1e-4, after


def timed(way: str, name: str) -> dict[str, Any]:
    """Tokens a second of one way (the median step's), its losses, and the first batch's after."""
    world = start_processes()
    architecture, vocabulary = MODELS[name]
    sequences = sequences_of(vocabulary, TOKENS)
    model = make_model(ModelConfig(architecture=architecture), vocabulary, TOKENS, 0)
    model = model.to(world.device).train()
    seconds, losses = WAY[way](model, sequences, world)
    with torch.no_grad():
        after = float(token_losses(model, batch(sequences, 0, world)).mean())
    speed = CONFIG.batch_sequences * TOKENS / statistics.median(seconds)
    return {"tokens_per_second": speed, "losses": losses, "after": after}


def zero(stage: str) -> dict[str, Any]:
    """A file of `conf/deepspeed/`."""
    return dict(yaml.safe_load((CONF / "deepspeed" / f"{stage}.yaml").read_text()))


def sequences_of(vocabulary: int, width: int) -> Dataset:
    """Packed sequences of random tokens, as a corpus holds them."""
    shape = BATCHES * CONFIG.batch_sequences, width
    ids = np.random.default_rng(0).integers(vocabulary, size=shape, dtype=np.int32)
    kind = Features({"input_ids": Sequence(Value("int32"), length=width)})
    return Dataset.from_dict({"input_ids": list(ids)}, kind)


def batch(sequences: Dataset, step: int, world: World) -> torch.Tensor:
    """The token ids of a step, in the corpus's order, over and over."""
    size = CONFIG.batch_sequences
    first = step % BATCHES * size
    return torch.tensor(sequences[first : first + size]["input_ids"], device=world.device)


def bare(model: Any, sequences: Dataset, world: World) -> tuple[list[float], list[float]]:
    """The loop that every tutorial has."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=CONFIG.learning_rate, betas=(CONFIG.beta1, CONFIG.beta2),
        weight_decay=CONFIG.weight_decay, fused=True,
    )  # fmt: skip
    schedule = get_scheduler(CONFIG.schedule, optimizer, num_warmup_steps=CONFIG.warmup_steps)
    batches = [batch(sequences, step, world) for step in range(BATCHES)]

    def step(number: int) -> float:
        loss = token_losses(model, batches[number % BATCHES]).mean()
        loss.backward()
        clip_grad_norm_(model.parameters(), CONFIG.clip_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return clocked(step)


def ours(model: Any, sequences: Dataset, world: World) -> tuple[list[float], list[float]]:
    """The step of `python -m training`."""
    return clocked(our_step(model, sequences, CONFIG, zero("zero0"), world))


def our_step(
    model: Any, sequences: Dataset, config: TrainingConfig, stage: dict[str, Any], world: World
) -> Callable[[int], float]:
    """Step by number, in the corpus's order, over and over."""
    order = Order(len(sequences), config.batch_sequences, None)
    engine = start_engine(model, config, engine_config(config, stage, world), 1000, world)

    def step(number: int) -> float:
        rows, clip = order.rows(number % BATCHES), clips_itself(config, stage)
        return optimizer_step(engine, sequences, rows, config, world, clip=clip)[0]

    return step


def clocked(step: Callable[[int], float]) -> tuple[list[float], list[float]]:
    """Seconds of each step after the warm-up, and the loss of every step."""
    seconds, losses = [], []
    for number in range(WARM_UP + STEPS):
        started = time.perf_counter()
        losses.append(step(number))
        synchronize()
        seconds.append(time.perf_counter() - started)
    return seconds[WARM_UP:], losses


def synchronize() -> None:
    """Wait for the device."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Clock(TrainerCallback):
    """The time from the end of each step to that of the next."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Keep the time."""
        synchronize()
        self.times.append(time.perf_counter())

    on_step_end = on_train_begin


def trainer(model: Any, sequences: Dataset, world: World) -> tuple[list[float], list[float]]:
    """The same engine under transformers' loop, which logs nothing here."""
    clock, engine = Clock(), engine_config(CONFIG, zero("zero0"), world)
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            folder, max_steps=WARM_UP + STEPS,
            deepspeed={**engine, "gradient_clipping": CONFIG.clip_norm},
            per_device_train_batch_size=CONFIG.micro_batch_sequences,
            gradient_accumulation_steps=CONFIG.batch_sequences // CONFIG.micro_batch_sequences,
            learning_rate=CONFIG.learning_rate, lr_scheduler_type=CONFIG.schedule,
            warmup_steps=CONFIG.warmup_steps, weight_decay=CONFIG.weight_decay,
            adam_beta1=CONFIG.beta1, adam_beta2=CONFIG.beta2, max_grad_norm=CONFIG.clip_norm,
            optim="adamw_torch_fused", train_sampling_strategy="sequential", report_to=[],
            logging_strategy="no", save_strategy="no", disable_tqdm=True,
        )  # fmt: skip

        def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
            ids = torch.tensor([row["input_ids"] for row in rows])
            return {"input_ids": ids, "labels": ids}

        Trainer(
            model, options, train_dataset=sequences, data_collator=collate, callbacks=[clock]
        ).train()
    return [b - a for a, b in pairwise(clock.times)][WARM_UP:], []


WAY = {"bare": bare, "ours": ours, "trainer": trainer}


def large(name: str) -> tuple[float, float, float]:
    """Tokens a second, MFU and peak GB of our step on a GPU; never run."""
    architecture, stage, micro = LARGE[name]
    config = replace(CONFIG, dtype="bfloat16", micro_batch_sequences=micro,
                     activation_checkpointing=stage == "zero3")  # fmt: skip
    world = start_processes()
    model = make_model(ModelConfig(architecture=architecture), 32_000, LONG, 0)
    cost = flops_per_token(model.config, sum(p.numel() for p in model.parameters()), LONG)
    step = our_step(model, sequences_of(32_000, LONG), config, zero(stage), world)
    speed = config.batch_sequences * LONG / statistics.median(clocked(step)[0])
    peak = torch.cuda.max_memory_allocated() / 1e9
    return speed, utilization(speed, cost, PEAK_TFLOPS, 1), peak


if __name__ == "__main__":
    main()

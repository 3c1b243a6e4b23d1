"""What the loop asks of a DeepSpeed engine, in plain torch and in a few lines: cheap, and apart."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from contamination.core.distributed import World

VOCABULARY, WIDTH = 11, 8
STATE = "state.json"
NORM = 123.0  # what the engine says of its gradient


class Alone(World):
    """A process of several whose sums are its own part."""

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        return values


def tiny() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=4, intermediate_size=4, num_hidden_layers=1,
        num_attention_heads=1, max_position_embeddings=WIDTH, initializer_range=1.0,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config)


class PlainEngine:
    """Averages over `accumulate` micro-batches, then moves the weights at the step's own rate."""

    def __init__(self, accumulate: int, rates: list[float]) -> None:
        self.module, self.config = tiny().train(), {}
        self.optimizer = torch.optim.SGD(self.module.parameters())
        self.accumulate, self.rates, self.micro = accumulate, rates, 0
        self.gradients: list[torch.Tensor] = []

    def __call__(self, **given: Any) -> Any:
        return self.module(**given)

    def eval(self) -> None:
        self.module.eval()

    def train(self) -> None:
        self.module.train()

    def get_lr(self) -> list[float]:
        return [self.rates[self.micro // self.accumulate], 99.0]

    def backward(self, loss: torch.Tensor) -> None:
        (loss / self.accumulate).backward()

    def is_gradient_accumulation_boundary(self) -> bool:
        return (self.micro + 1) % self.accumulate == 0

    def get_global_grad_norm(self) -> float:
        return NORM

    def step(self) -> None:
        if self.is_gradient_accumulation_boundary():
            self.optimizer.param_groups[0]["lr"] = self.get_lr()[0]
            self.gradients = [p.grad.clone() for p in self.module.parameters()]
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.micro += 1

    def save_checkpoint(self, folder: str, **given: Any) -> None:
        """Two files, one of them in a folder, as DeepSpeed would name them."""
        place = Path(folder) / given["tag"]
        (place / "part").mkdir(parents=True)
        (place / "part" / "weights.pt").write_text(given["tag"])
        (place / STATE).write_text(json.dumps(given))


class Loaded:
    """An engine whose load does what DeepSpeed does with a universal checkpoint of ZeRO 3."""

    def __init__(self) -> None:
        groups = [{"weight_decay": 0.5}, {"weight_decay": 0.0}]
        self.optimizer = SimpleNamespace(param_groups=groups, state={})
        self.given: tuple[Any, ...] = ()
        self.lr_scheduler = SimpleNamespace(
            base_lrs=[0.5, 0.5], lr_lambdas=[lambda step: 1 / step] * 2, last_epoch=4
        )

    def load_checkpoint(self, folder: str, tag: str) -> None:
        self.given, counter = (folder, tag), torch.tensor(7.0)
        for place, group in enumerate(self.optimizer.param_groups):
            group["weight_decay"] = 0.5
            self.optimizer.state[place] = {"step": counter}

"""Losses at evaluation points: of validation text, of members, of non-members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from core.world import World
from injection import PackedCorpus
from training.loss import token_losses

Texts = Mapping[str, Sequence[Sequence[int]]]


def evaluation_texts(corpus: PackedCorpus, validation: PackedCorpus | None, examples: int) -> Texts:
    """Token ids by what they are: `members`, `nonmembers`, and `validation` where it is given.

    Args:
        corpus: whose examples are read, at most `examples` of either kind, the first by id.
        validation: a packed corpus of clean text that is never trained on.
        examples: 1 or more.
    """
    width = len(corpus.sequences[0]["input_ids"])
    table = corpus.examples.sort_values("example_id")
    tokenizer = corpus.tokenizer.hf
    texts: dict[str, list[list[int]]] = {}
    for name, member in (("members", True), ("nonmembers", False)):
        chosen = table[table["member"] == member]["text"].head(examples).tolist()
        rows = tokenizer(chosen)["input_ids"] if chosen else []
        texts[name] = [row[:width] for row in rows if len(row) > 1]
    if validation is not None:
        texts["validation"] = [
            np.asarray(row["input_ids"]).tolist() for row in validation.sequences
        ]
    return {name: rows for name, rows in texts.items() if rows}


@torch.no_grad()
def evaluate(engine: Any, texts: Texts, micro: int, world: World) -> dict[str, float]:
    """`loss_<name>`: the mean loss of a token, in nats, over each set's texts.

    Every process reads its share; all make the same number of forward passes.

    Args:
        engine: the DeepSpeed engine.
        texts: what `evaluation_texts` gave.
        micro: sequences of one forward pass of one process.
        world: this process's place.
    """
    engine.eval()
    found = {f"loss_{name}": _mean_loss(engine, rows, micro, world) for name, rows in texts.items()}
    engine.train()
    return found


def _mean_loss(engine: Any, rows: Sequence[Sequence[int]], micro: int, world: World) -> float:
    """The mean over all tokens but each text's first."""
    total = torch.zeros(2, dtype=torch.float64)
    at_once = micro * world.size
    for start in range(0, len(rows), at_once):
        mine = rows[start + world.rank * micro : start + (world.rank + 1) * micro]
        ids, real = _padded(mine or rows[:1], width=max(map(len, rows[start : start + at_once])))
        losses = token_losses(engine, ids.to(world.device)).cpu()
        if mine:
            total += torch.stack([losses[real[:, 1:]].double().sum(), real[:, 1:].sum()])
    summed, tokens = world.sum(total).tolist()
    return float(summed / tokens)


def _padded(rows: Sequence[Sequence[int]], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids (B, S) padded on the right, which a causal model never sees, and which are real."""
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    real = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, : len(row[:width])] = torch.tensor(row[:width])
        real[i, : len(row[:width])] = True
    return ids, real

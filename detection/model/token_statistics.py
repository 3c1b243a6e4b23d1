"""Statistics of next-token distributions over the vocabulary.

Shapes: N positions, V vocabulary. With y = logits − their maximum, e = exp(y) and S = Σ e:

    log p = y − log S,   μ = Σ e·y / S − log S,   σ² = Σ e·y² / S − (Σ e·y / S)²

The maximum is a safe shift for σ: σ² ≥ p_max·(Σ e·y / S)², so the difference loses no more than a
factor 1 / p_max of float32's precision, in practice some 20.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

STD_FLOOR = 1e-6  # a distribution that float32 holds for certain has no spread to divide by
BLOCK = 64


def statistics(logits: Iterable[Tensor], targets_N: Tensor) -> list[Tensor]:
    """What `TokenStats` holds: logprob, mean, std, top_logprob, top_id, each of shape (N,).

    Args:
        logits: float32 logits of the N positions in order, some rows (·, V) at a time; their
            memory is used as working space. A NaN or an infinity makes its row's statistics NaN.
        targets_N: the tokens that follow.
    """
    parts, start = [], 0
    for rows in logits:
        parts.append(_sums(rows, targets_N[start : start + len(rows)].to(rows.device)))
        start += len(rows)
    return finished(*map(torch.cat, zip(*parts, strict=True)))


def finished(
    target: Tensor, total: Tensor, first: Tensor, second: Tensor, top_id: Tensor
) -> list[Tensor]:
    """The statistics from the target's y, S, Σ e·y, Σ e·y², and the top token; all (N,)."""
    log_total, mean, square = total.log(), first / total, second / total
    std = (square - mean * mean).clamp_min(STD_FLOOR**2).sqrt()
    return [target - log_total, mean - log_total, std, -log_total, top_id]


def rows_at_once(vocabulary: int, device: torch.device) -> int:
    """Positions whose logits to hold at once: 4 MiB on a CPU, 512 MiB on an accelerator.

    Few enough to stay in a CPU's caches, enough for its threads and for a matrix product, which
    wants some 128 rows: a large vocabulary may therefore take up to 32 MiB.
    """
    if device.type != "cpu":
        return max(1, 2**27 // vocabulary)
    return max(1, min(max(128, 2**20 // vocabulary), 2**23 // vocabulary))


def _sums(logits_NV: Tensor, targets_N: Tensor) -> tuple[Tensor, ...]:
    """The target's y, S, Σ e·y, Σ e·y², and the top token; all but it float32 of shape (N,)."""
    top_id = _argmax(logits_NV)
    y = logits_NV.sub_(logits_NV.gather(1, top_id[:, None]))
    target = y.gather(1, targets_N[:, None])[:, 0]
    e = y.exp()
    total = e.sum(-1)
    return target, total, e.mul_(y).sum(-1), e.mul_(y).sum(-1), top_id


def _argmax(logits_NV: Tensor) -> Tensor:
    """The first maximum of each row, blocks' maxima first, several times faster on a CPU."""
    vocabulary = logits_NV.shape[1]
    if vocabulary % BLOCK or logits_NV.device.type != "cpu":
        return logits_NV.max(-1).indices
    blocks_NKB = logits_NV.view(len(logits_NV), -1, BLOCK)
    block = blocks_NKB.amax(-1).max(-1).indices
    inside = blocks_NKB[torch.arange(len(blocks_NKB)), block].max(-1).indices
    return block * BLOCK + inside

"""Statistics of next-token distributions, computed one block of the vocabulary at a time.

Shapes: N positions, V vocabulary, K blocks. With top the largest logit of a block, y = logits − top
and e = exp(y), a block has the sums S = Σ e, A = Σ e·y and B = Σ e·y². If another block's top is
larger by d, every y falls by d and every e by the factor exp(−d):

    S → exp(−d)·S,   A → exp(−d)·(A − d·S),   B → exp(−d)·(B − 2d·A + d²·S)

As y ≤ 0, all terms of a sum have one sign, so that nothing cancels. Over the whole vocabulary

    log p = y − log S,   μ = A / S − log S,   σ² = B / S − (A / S)²

The maximum is a safe shift for σ: σ² ≥ p_max·(A / S)², so the difference loses no more than a
factor 1 / p_max of float32's precision, in practice about 20.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

STD_FLOOR = 1e-6  # a distribution that is certain in float32 has no spread to divide by
BLOCK = 4096  # entries of the vocabulary
INNER = 64
FAR = 1000.0  # nats: exp(−FAR) is 0 in float32


def statistics(rows: Iterable[Iterable[Tensor]], targets_N: Tensor) -> list[Tensor]:
    """Returns the columns of `TokenStats`: logprob, mean, std, top_logprob, top_id, each (N,).

    Args:
        rows: float32 logits of consecutive chunks of the N positions. A chunk has one tensor per
            block of the vocabulary, `BLOCK` wide except for the last. The tensors are overwritten.
            A NaN or an infinity makes its row's statistics NaN.
        targets_N: the next tokens.
    """
    merged_chunks, start = [], 0
    for blocks in rows:
        sums = [_block_sums(block, k * BLOCK, targets_N[start:]) for k, block in enumerate(blocks)]
        sums_K5N, top_id_KN = map(torch.stack, zip(*sums, strict=True))
        merged_chunks.append(merge_blocks(sums_K5N, top_id_KN))
        start += top_id_KN.shape[1]
    return finish_statistics(*map(torch.cat, zip(*merged_chunks, strict=True)))


def merge_blocks(sums_K5N: Tensor, top_id_KN: Tensor) -> list[Tensor]:
    """Returns the target's y, S, A, B and the top token over all blocks, all (N,).

    Args:
        sums_K5N: each block's top, its logit of the target (0 if another block has it), S, A, B.
        top_id_KN: each block's top token.
    """
    top_KN, target, total, first, second = sums_K5N.unbind(1)
    top_N, block_N = top_KN.max(0)  # of equal values the first, which has the lowest ids
    d = (top_N - top_KN).clamp(max=FAR)
    shifted = total, first - d * total, second - 2 * d * first + d * d * total
    sums = [(torch.exp(-d) * sum_KN).sum(0) for sum_KN in shifted]
    return [target.sum(0) - top_N, *sums, top_id_KN.gather(0, block_N[None])[0]]


def finish_statistics(
    target: Tensor, total: Tensor, first: Tensor, second: Tensor, top_id: Tensor
) -> list[Tensor]:
    """Returns the statistics from the target's y, S, A, B and the top token; all (N,)."""
    log_total, mean, square = total.log(), first / total, second / total
    std = (square - mean * mean).clamp_min(STD_FLOOR**2).sqrt()
    return [target - log_total, mean - log_total, std, -log_total, top_id]


def rows_per_chunk(vocabulary: int, device: torch.device) -> int:
    """Returns the chunk size: 8 MiB of a block's logits on a CPU, 512 MiB on an accelerator.

    On a CPU that fits the caches, and is still enough for its threads and for a matrix product.
    """
    return (2**21 if device.type == "cpu" else 2**27) // min(vocabulary, BLOCK)


def _block_sums(logits_NB: Tensor, start: int, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the sums (5, N) and top tokens (N,) of a block that begins with token `start`."""
    rows, width = logits_NB.shape
    inside_N1 = targets[:rows, None].to(logits_NB.device) - start
    target = logits_NB.gather(1, inside_N1.clamp(0, width - 1))
    target = target.where((inside_N1 >= 0) & (inside_N1 < width), 0)
    best_N1 = _argmax(logits_NB)[:, None]
    top = logits_NB.gather(1, best_N1)
    y = logits_NB.sub_(top)
    p = y.softmax(-1)  # on a CPU faster than exp, and as exact; p is e times p_top
    p_top = p.gather(1, best_N1)[:, 0]
    sums = p.sum(-1), p.mul_(y).sum(-1), p.mul_(y).sum(-1)
    columns = target[:, 0], *(column / p_top for column in sums)
    return torch.stack([top[:, 0], *columns]), best_N1[:, 0] + start


def _argmax(logits_NB: Tensor) -> Tensor:
    """Returns the first maximum of each row; on a CPU, maxima of small pieces are much faster."""
    width = logits_NB.shape[1]
    if width % INNER or logits_NB.device.type != "cpu":
        return logits_NB.max(-1).indices
    inner_NKI: Tensor = logits_NB.unflatten(1, (-1, INNER))  # type: ignore[no-untyped-call]
    piece_N = inner_NKI.amax(-1).max(-1).indices
    inside_N = inner_NKI[torch.arange(len(inner_NKI)), piece_N].max(-1).indices
    return piece_N * INNER + inside_N

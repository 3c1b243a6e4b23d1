"""The head and the statistics of `token_statistics` in one Triton kernel, without storing logits.

Shapes: N rows, X hidden units, V vocabulary, P parts of the vocabulary.

A program handles some rows and a part of the vocabulary, one block at a time, and keeps the
largest logit so far and the sums S, A and B. Parts are merged like blocks. Products are summed in
float32, those of float32 numbers without TF32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from contamination.detection.models.head import HALF, Head
from contamination.detection.models.token_statistics import FAR, finish_statistics, merge_blocks

ROWS, ENTRIES = 128, 128  # of a block; half as many for float32, which needs more registers
UNITS = 64  # hidden units at a time
PROGRAMS = 1024  # about eight per multiprocessor, so that few are idle at the end


def fused_statistics(head: Head, hidden_NX: Tensor, targets_N: Tensor) -> list[Tensor]:
    """Returns `token_statistics.statistics` of the head's logits, on the head's device.

    Args:
        head: a linear head.
        hidden_NX: the hidden states, at least one.
        targets_N: the next tokens.
    """
    weight_VX, bias_V = head.module.weight, head.module.bias
    hidden_NX, targets_N = hidden_NX.to(weight_VX), targets_N.to(weight_VX.device)
    hidden_NX, targets_N = hidden_NX.contiguous(), targets_N.contiguous()
    half = weight_VX.dtype in HALF
    rows, entries = (ROWS, ENTRIES) if half else (ROWS // 2, ENTRIES // 2)
    (n, units), vocabulary = hidden_NX.shape, len(weight_VX)
    blocks, columns = triton.cdiv(n, rows), triton.cdiv(vocabulary, entries)
    part_entries = triton.cdiv(columns, min(columns, triton.cdiv(PROGRAMS, blocks))) * entries
    parts = triton.cdiv(vocabulary, part_entries)
    sums_P5N = hidden_NX.new_empty((parts, 5, n), dtype=torch.float32)
    top_id_PN = targets_N.new_empty((parts, n))
    with torch.cuda.device_of(weight_VX):  # type: ignore[no-untyped-call]
        _part_sums[(blocks, parts)](
            hidden_NX, weight_VX.contiguous(), weight_VX if bias_V is None else bias_V, targets_N,
            sums_P5N, top_id_PN, n, vocabulary, units, part_entries, head.scale, head.cap or 1.0,
            HAS_BIAS=bias_V is not None, HAS_CAP=head.cap is not None,
            WHOLE=units % UNITS == 0, ROWS=rows, ENTRIES=entries,
            UNITS=UNITS if half else UNITS // 2, FAR=FAR,
            num_warps=8 if half else 4, num_stages=3 if half else 2,
        )  # fmt: skip
    return finish_statistics(*merge_blocks(sums_P5N, top_id_PN))


@triton.jit  # type: ignore[untyped-decorator]
def _part_sums(  # type: ignore[no-untyped-def]
    hidden, weight, bias, targets, sums, top_ids, n, vocabulary, units, part_entries, scale, cap,
    HAS_BIAS: tl.constexpr, HAS_CAP: tl.constexpr, WHOLE: tl.constexpr,
    ROWS: tl.constexpr, ENTRIES: tl.constexpr, UNITS: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """Stores the maximum, the target's logit (0 if in another part), S, A, B and the top token."""
    row, unit = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, UNITS)
    read = tl.minimum(row, n - 1)  # rows and entries beyond the end repeat the last and are masked
    target = tl.load(targets + read)
    hidden_rows = hidden + read.to(tl.int64)[:, None] * units
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    top_id = tl.zeros((ROWS,), tl.int32)
    at_target = tl.zeros((ROWS,), tl.float32)
    total, first, second = at_target, at_target, at_target
    begin = tl.program_id(1) * part_entries
    for start in range(begin, tl.minimum(begin + part_entries, vocabulary), ENTRIES):
        entry = start + tl.arange(0, ENTRIES)
        inside = (entry < vocabulary)[None, :]
        in_range = tl.minimum(entry, vocabulary - 1)
        weight_columns = weight + in_range.to(tl.int64)[None, :] * units
        y = tl.zeros((ROWS, ENTRIES), tl.float32)
        for x in range(0, units, UNITS):
            if WHOLE:
                h = tl.load(hidden_rows + (x + unit)[None, :])
                w = tl.load(weight_columns + (x + unit)[:, None])
            else:
                there = x + unit < units
                h = tl.load(hidden_rows + (x + unit)[None, :], mask=there[None, :], other=0.0)
                w = tl.load(weight_columns + (x + unit)[:, None], mask=there[:, None], other=0.0)
            y = tl.dot(h, w, y, input_precision="ieee")
        if HAS_BIAS:
            y += tl.load(bias + in_range).to(tl.float32)[None, :]
        y *= scale
        if HAS_CAP:
            small = tl.exp(-2.0 * tl.abs(y / cap))
            y = tl.where(y < 0, -cap, cap) * ((1.0 - small) / (1.0 + small))
        at_target += tl.sum(tl.where(entry[None, :] == target[:, None], y, 0.0), 1)
        best = tl.max(tl.where(inside, y, float("-inf")), 1)
        best_entry = tl.where(inside & (y == best[:, None]), entry[None, :], vocabulary - 1)
        top_id = tl.where(best > top, tl.min(best_entry, 1), top_id)
        larger = tl.maximum(top, best)
        d = tl.where(top == float("-inf"), 0.0, tl.minimum(larger - top, FAR))
        y = tl.where(inside, y - larger[:, None], 0.0)
        e = tl.where(inside, tl.exp(y), 0.0)
        ey = e * y
        factor = tl.exp(-d)
        second = factor * (second - 2.0 * d * first + d * d * total) + tl.sum(ey * y, 1)
        first = factor * (first - d * total) + tl.sum(ey, 1)
        total = factor * total + tl.sum(e, 1)
        top = larger
    part, real = tl.program_id(1), row < n
    out = sums + part.to(tl.int64) * 5 * n + row
    tl.store(out, top, mask=real)
    tl.store(out + n, at_target, mask=real)
    tl.store(out + 2 * n, total, mask=real)
    tl.store(out + 3 * n, first, mask=real)
    tl.store(out + 4 * n, second, mask=real)
    tl.store(top_ids + part.to(tl.int64) * n + row, top_id.to(tl.int64), mask=real)

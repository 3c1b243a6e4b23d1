"""The choice between the fused Triton kernel and plain logits for statistics of hidden states.

Shapes: N rows, X hidden units (or the vocabulary, for a model without a head).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial

import torch
from torch import Tensor

from contamination.detection.models.head import HALF, Head
from contamination.detection.models.token_statistics import BLOCK, rows_per_chunk, statistics

CHECKED_ROWS, TOLERANCE = 64, 1e-4  # rows of the first batch; relative, and in nats
Statistics = Callable[[Tensor, Tensor], list[Tensor]]
"""Computes the five statistics from hidden states (N, X) and the next tokens (N,)."""
log = logging.getLogger(__name__)


def choose_statistics(head: Head | None, vocabulary: int, kernel: str) -> Statistics:
    """Returns the fused kernel for a linear 16-bit head on a GPU with Triton, else plain logits.

    In float32 plain logits are faster (docs/gpu.md).

    Args:
        head: the model's head; None if the hidden states are the logits.
        vocabulary: the number of entries in the model's vocabulary.
        kernel: `detection.kernel`.
    """
    plain = partial(plain_statistics, head, vocabulary)
    if kernel == "plain" or head is None or not head.is_linear or not head.module.weight.is_cuda:
        return plain
    if head.module.weight.dtype not in HALF:
        return plain
    try:
        from contamination.detection.models.fused_head import fused_statistics
    except ImportError as error:
        _warn_of_plain_logits(f"Triton can't be imported ({error})")
        return plain
    return CheckedStatistics(partial(fused_statistics, head), plain)


def plain_statistics(
    head: Head | None, vocabulary: int, hidden_NX: Tensor, targets_N: Tensor
) -> list[Tensor]:
    """Returns the statistics from logits of some rows and one block of the vocabulary at a time."""
    chunks = torch.split(hidden_NX, rows_per_chunk(vocabulary, hidden_NX.device))
    rows = (head.logits(h) if head else torch.split(h.float(), BLOCK, 1) for h in chunks)
    return statistics(rows, targets_N)


@dataclass
class CheckedStatistics:
    """Uses the fused kernel if it agrees with plain logits on the first rows, else plain logits.

    Attributes:
        fused: computes the statistics by the kernel.
        plain: computes them from logits.
        chosen: one of the two, after the first call.
    """

    fused: Statistics
    plain: Statistics
    chosen: Statistics | None = field(default=None, init=False)

    def __call__(self, hidden_NX: Tensor, targets_N: Tensor) -> list[Tensor]:
        """Returns the five statistics (N,)."""
        if not len(targets_N):
            return self.plain(hidden_NX, targets_N)
        if self.chosen is None:
            return self._first_batch_statistics(hidden_NX, targets_N)
        return self.chosen(hidden_NX, targets_N)

    def _first_batch_statistics(self, hidden_NX: Tensor, targets_N: Tensor) -> list[Tensor]:
        """Returns the statistics of the whole first batch; a few rows would not test the loop."""
        try:
            fused = self.fused(hidden_NX, targets_N)
            plain = self.plain(hidden_NX[:CHECKED_ROWS], targets_N[:CHECKED_ROWS])
            if all(map(_agrees, fused[:-1], plain[:-1])):
                self.chosen = self.fused
                return fused
            _warn_of_plain_logits("its statistics differ from those of the logits on this device")
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # any error of the compiler on this device
            _warn_of_plain_logits(
                f"the kernel does not run on this device ({type(error).__name__}: {error})"
            )
        self.chosen = self.plain
        return self.plain(hidden_NX, targets_N)


def _agrees(fused_N: Tensor, plain_N: Tensor) -> bool:
    checked_N = fused_N[: len(plain_N)]
    return torch.allclose(checked_N, plain_N, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


@cache  # one warning per process and reason
def _warn_of_plain_logits(reason: str) -> None:
    log.warning("detection.kernel: %s. Logits are computed one block at a time instead.", reason)

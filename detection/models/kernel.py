"""Which code makes the statistics of hidden states: the fused kernel, or the logits row by row.

Shapes: N rows, X hidden units (or the vocabulary, of a model without a head).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial

import torch
from torch import Tensor

from contamination.detection.models.head import HALF, Head
from contamination.detection.models.token_statistics import BLOCK, rows_at_once, statistics

CHECKED, TOLERANCE = 64, 1e-4  # rows of the first batch; relative, and in nats
Statistics = Callable[[Tensor, Tensor], list[Tensor]]
"""From hidden states (N, X) and the tokens that follow (N,) to the five statistics."""
log = logging.getLogger(__name__)


def statistics_of(head: Head | None, vocabulary: int, kernel: str) -> Statistics:
    """The statistics by the fused kernel, where there is a GPU, Triton and a linear head.

    Args:
        head: the model's head; None: the hidden states are its logits.
        vocabulary: the model's entries.
        kernel: `detection.kernel`.
    """
    plain = partial(plain_statistics, head, vocabulary)
    if kernel == "plain" or head is None or not head.is_linear or not head.module.weight.is_cuda:
        return plain
    if head.module.weight.dtype not in (*HALF, torch.float32):
        return plain
    try:
        from contamination.detection.models.fused_head import fused_statistics
    except ImportError as error:
        _say(f"Triton can't be imported ({error})")
        return plain
    return Checked(partial(fused_statistics, head), plain)


def plain_statistics(
    head: Head | None, vocabulary: int, hidden_NX: Tensor, targets_N: Tensor
) -> list[Tensor]:
    """The statistics from logits: of some rows and a block of the vocabulary at a time."""
    parts = torch.split(hidden_NX, rows_at_once(vocabulary, hidden_NX.device))
    rows = (head.logits(h) if head else torch.split(h.float(), BLOCK, 1) for h in parts)
    return statistics(rows, targets_N)


@dataclass
class Checked:
    """Fused statistics that must agree with the plain ones on the first rows; else the plain ones.

    Attributes:
        fused: the statistics by the kernel.
        plain: those from logits.
        chosen: one of the two, after the first call.
    """

    fused: Statistics
    plain: Statistics
    chosen: Statistics | None = field(default=None, init=False)

    def __call__(self, hidden_NX: Tensor, targets_N: Tensor) -> list[Tensor]:
        """The five statistics (N,)."""
        if not len(targets_N):
            return self.plain(hidden_NX, targets_N)
        if self.chosen is None:
            return self._first(hidden_NX, targets_N)
        return self.chosen(hidden_NX, targets_N)

    def _first(self, hidden_NX: Tensor, targets_N: Tensor) -> list[Tensor]:
        """Those of the first batch, all of it at once: of a few rows the kernel's loop is short."""
        try:
            found = self.fused(hidden_NX, targets_N)
            expected = self.plain(hidden_NX[:CHECKED], targets_N[:CHECKED])
            if all(map(_near, found[:-1], expected[:-1])):
                self.chosen = self.fused
                return found
            _say("its statistics are not those of the logits on this device")
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # whatever the compiler makes of this device
            _say(f"the kernel does not run on this device ({type(error).__name__}: {error})")
        self.chosen = self.plain
        return self.plain(hidden_NX, targets_N)


def _near(found: Tensor, expected: Tensor) -> bool:
    first = found[: len(expected)]
    return torch.allclose(first, expected, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


@cache
def _say(why: str) -> None:
    """Once a process, for one reason."""
    log.warning("detection.kernel: %s. Logits are made a block at a time instead.", why)

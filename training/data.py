"""The order in which training reads sequences, their batches, and the step that saw each copy.

The order depends on the seed and the global batch alone, not on the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from contamination.training.config import ALL, OUTPUT

if TYPE_CHECKING:
    import pandas as pd
    import torch

Rows = np.ndarray[Any, np.dtype[np.int64]]
PADDING = -1  # stands in for a sequence where the last batch is not full
TEXT = "text"  # the column of a fine-tuning set's sequences that a stream of text lacks
TARGETS = {ALL: "targets", OUTPUT: "output_targets"}


@dataclass(frozen=True)
class SequenceOrder:
    """`epochs` over `sequences` sequences in batches of `batch`, the same at any world size."""

    sequences: int
    batch: int
    seed: int | None
    """Draws the order, for each epoch another; None: that of the corpus."""
    epochs: int = 1

    @cached_property
    def _latest(self) -> dict[int, Rows]:
        """The order of the epoch that was asked for last."""
        return {}

    def _permutation(self, epoch: int) -> Rows:
        if epoch not in self._latest:
            self._latest.clear()
            self._latest[epoch] = self._drawn(epoch)
        return self._latest[epoch]

    def _drawn(self, epoch: int) -> Rows:
        if self.seed is None:
            return np.arange(self.sequences)
        seed = [self.seed, epoch] if epoch else self.seed
        return np.random.default_rng(seed).permutation(self.sequences)

    @property
    def steps(self) -> int:
        """Optimizer steps of all epochs."""
        return self.epochs * self._of_an_epoch

    @property
    def _of_an_epoch(self) -> int:
        return -(-self.sequences // self.batch)

    def rows(self, step: int) -> Rows:
        """Sequences of a step (from 0), shape (batch,), with PADDING at the end of an epoch."""
        epoch, place = divmod(step, self._of_an_epoch)
        rows = self._permutation(epoch)[place * self.batch : (place + 1) * self.batch]
        return np.pad(rows, (0, self.batch - len(rows)), constant_values=PADDING)

    def seen(self, steps: int) -> int:
        """Sequences of the first `steps` steps, each as often as it is seen."""
        epochs, rest = divmod(steps, self._of_an_epoch)
        return epochs * self.sequences + min(self.sequences, rest * self.batch)

    def step_of(self, epoch: int = 0) -> Rows:
        """The step (from 0) of an epoch at which each sequence is seen, shape (sequences,)."""
        return np.argsort(self._permutation(epoch)) // self.batch + epoch * self._of_an_epoch


@dataclass(frozen=True)
class Batch:
    """B sequences of S tokens.

    Attributes:
        ids_BS: the tokens.
        real_B: 0 for a sequence that fills a batch up, else 1.
        counted_BS: 1 where the loss of the token after the first counts, else 0, shape (B, S-1);
            None: everywhere.
        positions_BS: each token's place in its own text; None: sequences hold one text.
        texts_BS: the number of the text that each token is of, -1 for padding; None: each sequence
            is one text.
        rows_B: the sequences' numbers; that of one that fills a batch up means nothing.
    """

    ids_BS: torch.Tensor
    real_B: torch.Tensor
    rows_B: torch.Tensor
    counted_BS: torch.Tensor | None = None
    positions_BS: torch.Tensor | None = None
    texts_BS: torch.Tensor | None = None

    @property
    def counts_BS(self) -> torch.Tensor:  # noqa: N802
        """1 where the loss of the token after the first counts, else 0, shape (B, S-1)."""
        counted_BS = self.counted_BS
        if counted_BS is None:
            counted_BS = self.ids_BS.new_ones(self.ids_BS[:, 1:].shape, dtype=self.real_B.dtype)
        return counted_BS * self.real_B[:, None]

    @property
    def numbers_BS(self) -> torch.Tensor:  # noqa: N802
        """The number of each token's text, shape (B, S); a corpus's texts are its sequences."""
        texts = self.texts_BS
        return self.rows_B[:, None].expand(self.ids_BS.shape) if texts is None else texts

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        moved: dict[str, Any] = {k: v if v is None else v.to(device) for k, v in vars(self).items()}
        return Batch(**moved)


def micro_batches(rows: Rows, rank: int, world: int, micro: int) -> Iterator[Rows]:
    """A process's share of a step, `micro` sequences at a time."""
    for part in rows.reshape(-1, world, micro):
        yield part[rank]


def read_batch(sequences: Any, rows: Rows, loss_on: str = ALL) -> Batch:
    """The sequences of the rows.

    Args:
        sequences: of a corpus (`input_ids`), or of a fine-tuning set (`text` and `output` too).
        rows: their numbers; PADDING stands for a sequence that counts for nothing.
        loss_on: of a fine-tuning set, which tokens' losses count: `all` or those of the `output`.
    """
    import torch

    at = np.maximum(rows, 0)
    read = [sequences[int(row)] for row in at]
    ids = torch.from_numpy(_stacked(read, "input_ids"))
    real = torch.from_numpy((rows != PADDING).astype(np.float32))
    if TEXT not in read[0]:
        return Batch(ids, real, torch.from_numpy(at))
    texts = _stacked(read, TEXT)
    counted = (texts[:, 1:] == texts[:, :-1]) & (texts[:, 1:] >= 0)
    if loss_on == OUTPUT:
        counted &= _stacked(read, "output")[:, 1:] == 1
    packed = any(row["texts"] > 1 for row in read)
    positions = torch.from_numpy(_positions(texts)) if packed else None
    counts = torch.from_numpy(counted.astype(np.float32))
    return Batch(ids, real, torch.from_numpy(at), counts, positions, torch.from_numpy(texts))


def _stacked(read: list[Any], column: str) -> Rows:
    return np.stack([np.asarray(row[column], dtype=np.int64) for row in read])


def _positions(texts_BS: Rows) -> Rows:  # noqa: N803
    """The place of each token in its text: from 0 where another text, or padding, begins."""
    places = np.broadcast_to(np.arange(texts_BS.shape[1]), texts_BS.shape)
    begins = np.diff(texts_BS, axis=1, prepend=-2) != 0
    return places - np.maximum.accumulate(np.where(begins, places, 0), axis=1)


def counted_tokens(sequences: Any, rows: Rows, loss_on: str = ALL) -> int:
    """How many tokens' losses count in the rows: what `read_batch` gives 1 in `counted_BS`."""
    real = rows[rows != PADDING]
    first = sequences[int(real[0])]
    if TEXT not in first:
        return len(real) * (len(first["input_ids"]) - 1)
    return sum(int(sequences[int(row)][TARGETS[loss_on]]) for row in real)


def counted_texts(sequences: Any, rows: Rows | None = None) -> int:
    """How many texts the rows hold (None: all rows); a corpus's sequences are one text each."""
    real = np.arange(len(sequences)) if rows is None else rows[rows != PADDING]
    if TEXT not in sequences[int(real[0])]:
        return len(real)
    return sum(int(sequences[int(row)]["texts"]) for row in real)


def exposures(ledger: pd.DataFrame, order: SequenceOrder) -> pd.DataFrame:
    """The ledger with the optimizer step (from 1) that saw each copy, a row for each epoch."""
    import pandas as pd

    rows = ledger["sequence"].to_numpy(dtype=np.int64)
    seen = [ledger.assign(step=order.step_of(e)[rows] + 1) for e in range(order.epochs)]
    return seen[0] if len(seen) == 1 else pd.concat(seen, ignore_index=True)

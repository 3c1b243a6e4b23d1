"""The order in which training reads sequences, their batches, and the step that saw each copy.

The order depends only on the seed and the global batch size, not on the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from contamination.training.config import ALL_TOKENS, OUTPUT_TOKENS

if TYPE_CHECKING:
    import pandas as pd
    import torch

Rows = np.ndarray[Any, np.dtype[np.int64]]
PADDING = -1  # in place of row numbers that are missing in a partial last batch
TEXT_COLUMN = "text"  # a column that only the sequences of fine-tuning sets have
TARGET_COUNT_COLUMNS = {ALL_TOKENS: "targets", OUTPUT_TOKENS: "output_targets"}


@dataclass(frozen=True)
class SequenceOrder:
    """The order of `epochs` epochs over `sequences` sequences in batches of `batch`."""

    sequences: int
    batch: int
    seed: int | None
    """The seed for a different order in each epoch; None: the order of the corpus."""
    epochs: int = 1

    @cached_property
    def _last_permutation(self) -> dict[int, Rows]:
        """The permutation of the latest requested epoch: epoch → permutation."""
        return {}

    def _permutation(self, epoch: int) -> Rows:
        if epoch not in self._last_permutation:
            self._last_permutation.clear()
            self._last_permutation[epoch] = self._draw_permutation(epoch)
        return self._last_permutation[epoch]

    def _draw_permutation(self, epoch: int) -> Rows:
        if self.seed is None:
            return np.arange(self.sequences)
        seed = [self.seed, epoch] if epoch else self.seed
        return np.random.default_rng(seed).permutation(self.sequences)

    @property
    def steps(self) -> int:
        """The number of optimizer steps of all epochs."""
        return self.epochs * self._steps_per_epoch

    @property
    def _steps_per_epoch(self) -> int:
        return -(-self.sequences // self.batch)

    def rows_of_step(self, step: int) -> Rows:
        """Returns the rows of a step (from 0), shape (batch,); PADDING fills the last batch."""
        epoch, batch_number = divmod(step, self._steps_per_epoch)
        start = batch_number * self.batch
        rows = self._permutation(epoch)[start : start + self.batch]
        return np.pad(rows, (0, self.batch - len(rows)), constant_values=PADDING)

    def count_sequences_seen(self, steps: int) -> int:
        """Returns how many sequences the first `steps` steps see, counting repeats."""
        epochs, steps_left = divmod(steps, self._steps_per_epoch)
        return epochs * self.sequences + min(self.sequences, steps_left * self.batch)

    def step_by_sequence(self, epoch: int = 0) -> Rows:
        """Returns the step (from 0) of an epoch that sees each sequence, shape (sequences,)."""
        return np.argsort(self._permutation(epoch)) // self.batch + epoch * self._steps_per_epoch


@dataclass(frozen=True)
class Batch:
    """B sequences of S tokens.

    Attributes:
        ids_BS: the tokens.
        real_B: 1, or 0 for a sequence that only fills the last batch.
        counted_BS: 1 for each token after the first whose loss counts, else 0, shape (B, S-1);
            None: all count.
        positions_BS: each token's position in its text; None: one text per sequence.
        texts_BS: the number of each token's text, -1 for padding; None: one text per sequence.
        rows_B: the row numbers of the sequences; arbitrary where `real_B` is 0.
    """

    ids_BS: torch.Tensor
    real_B: torch.Tensor
    rows_B: torch.Tensor
    counted_BS: torch.Tensor | None = None
    positions_BS: torch.Tensor | None = None
    texts_BS: torch.Tensor | None = None

    @property
    def loss_mask_BS(self) -> torch.Tensor:  # noqa: N802
        """1 for each token after the first whose loss counts, else 0, shape (B, S-1)."""
        counted_BS = self.counted_BS
        if counted_BS is None:
            counted_BS = self.ids_BS.new_ones(self.ids_BS[:, 1:].shape, dtype=self.real_B.dtype)
        return counted_BS * self.real_B[:, None]

    @property
    def text_numbers_BS(self) -> torch.Tensor:  # noqa: N802
        """The number of each token's text, shape (B, S); a corpus's texts are its sequences."""
        texts = self.texts_BS
        return self.rows_B[:, None].expand(self.ids_BS.shape) if texts is None else texts

    def to(self, device: torch.device) -> Batch:
        """Returns the batch on a device."""
        moved: dict[str, Any] = {k: v if v is None else v.to(device) for k, v in vars(self).items()}
        return Batch(**moved)


def iter_micro_batch_rows(
    rows: Rows, rank: int, world_size: int, micro_batch: int
) -> Iterator[Rows]:
    """Yields a process's rows of a step, `micro_batch` at a time."""
    for rows_of_ranks in rows.reshape(-1, world_size, micro_batch):
        yield rows_of_ranks[rank]


def read_batch(sequences: Any, rows: Rows, loss_on: str = ALL_TOKENS) -> Batch:
    """Returns the sequences of these rows.

    Args:
        sequences: those of a corpus (`input_ids`), or of a fine-tuning set (also `text`, `output`).
        rows: the row numbers; PADDING for a sequence that does not count.
        loss_on: for a fine-tuning set, which tokens' losses count: `all` or those of the `output`.
    """
    import torch

    rows_to_read = np.maximum(rows, 0)
    records = [sequences[int(row)] for row in rows_to_read]
    ids_BS = torch.from_numpy(_stack_column(records, "input_ids"))
    real_B = torch.from_numpy((rows != PADDING).astype(np.float32))
    rows_B = torch.from_numpy(rows_to_read)
    if TEXT_COLUMN not in records[0]:
        return Batch(ids_BS, real_B, rows_B)
    texts_BS = _stack_column(records, TEXT_COLUMN)
    counted_BS = (texts_BS[:, 1:] == texts_BS[:, :-1]) & (texts_BS[:, 1:] >= 0)
    if loss_on == OUTPUT_TOKENS:
        counted_BS &= _stack_column(records, "output")[:, 1:] == 1
    has_packed_texts = any(record["texts"] > 1 for record in records)
    return Batch(
        ids_BS,
        real_B,
        rows_B,
        counted_BS=torch.from_numpy(counted_BS.astype(np.float32)),
        positions_BS=torch.from_numpy(positions_in_texts(texts_BS)) if has_packed_texts else None,
        texts_BS=torch.from_numpy(texts_BS),
    )


def _stack_column(records: list[Any], column: str) -> Rows:
    return np.stack([np.asarray(record[column], dtype=np.int64) for record in records])


def positions_in_texts(texts_BS: Rows) -> Rows:  # noqa: N803
    """Returns each token's position in its text, counted from 0 where a text or padding begins."""
    positions_BS = np.broadcast_to(np.arange(texts_BS.shape[1]), texts_BS.shape)
    begins_BS = np.diff(texts_BS, axis=1, prepend=-2) != 0
    return positions_BS - np.maximum.accumulate(np.where(begins_BS, positions_BS, 0), axis=1)


def count_loss_tokens(sequences: Any, rows: Rows, loss_on: str = ALL_TOKENS) -> int:
    """Returns the number of tokens in the rows whose losses count; see `Batch.counted_BS`."""
    real_rows = rows[rows != PADDING]
    first = sequences[int(real_rows[0])]
    if TEXT_COLUMN not in first:
        return len(real_rows) * (len(first["input_ids"]) - 1)
    return sum(int(sequences[int(row)][TARGET_COUNT_COLUMNS[loss_on]]) for row in real_rows)


def count_texts(sequences: Any, rows: Rows | None = None) -> int:
    """Returns the number of texts in the rows (None: all); a corpus has one per sequence."""
    real_rows = np.arange(len(sequences)) if rows is None else rows[rows != PADDING]
    if TEXT_COLUMN not in sequences[int(real_rows[0])]:
        return len(real_rows)
    return sum(int(sequences[int(row)]["texts"]) for row in real_rows)


def make_exposure_table(ledger: pd.DataFrame, order: SequenceOrder) -> pd.DataFrame:
    """Returns the ledger with the step (from 1) that saw each copy: one row per copy and epoch."""
    import pandas as pd

    rows = ledger["sequence"].to_numpy(dtype=np.int64)
    by_epoch = [
        ledger.assign(step=order.step_by_sequence(e)[rows] + 1) for e in range(order.epochs)
    ]
    return by_epoch[0] if len(by_epoch) == 1 else pd.concat(by_epoch, ignore_index=True)

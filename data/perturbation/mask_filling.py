"""Fills blanks with a masked language model; it imports torch, so import it inside functions.

Shapes: B windows, T tokens (padded), N blanks, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contamination.core.errors import ConfigError
from contamination.core.progress import progress_bar
from contamination.data.perturbation.masking import Blank, Vocabulary, Window, draw_token

EXTRA_LOGITS = (
    8  # logits beyond the candidates, to detect whether the last candidate is a close call
)
FilledBlanks = list[tuple[int, str, bool]]
"""The blanks of a window: number, word, and whether the draw was certain."""


class MaskFiller:
    """Draws a word for each blank in windows of tokens."""

    def __init__(
        self, path: str, model: Any, vocabulary: Vocabulary, pad: int, candidates: int
    ) -> None:
        self.path, self.model, self.vocabulary = path, model, vocabulary
        self.pad, self.candidates = pad, candidates
        self.device: torch.device = next(model.parameters()).device
        not_a_word = [not word for word in vocabulary.words]
        self.not_a_word = torch.tensor(not_a_word, device=self.device)

    def draw_words(
        self, windows: Sequence[Window], blanks: Sequence[Blank], batch_tokens: int
    ) -> list[str]:
        """Returns a word for each blank, which differs from the word that it replaces."""
        word_by_blank: dict[int, str] = {}
        with progress_bar(total=len(windows), desc="rewording", unit="window") as bar:
            for batch in self._iter_batches_longest_first(windows, batch_tokens):
                answers = self._answers_halving_batches(batch, blanks)
                for window, answer in zip(batch, answers, strict=True):
                    if len(batch) > 1 and not all(certain for _, _, certain in answer):
                        # Rounding depends on the batch, so a close call is repeated by itself.
                        (answer,) = self._draw_answers([window], blanks)
                    word_by_blank.update((number, word) for number, word, _ in answer)
                bar.update(len(batch))
        return [word_by_blank[i] for i in range(len(blanks))]

    def _iter_batches_longest_first(
        self, windows: Sequence[Window], batch_tokens: int
    ) -> Iterator[list[Window]]:
        waiting = sorted(windows, key=lambda window: -len(window.ids))
        while waiting:
            size = max(1, batch_tokens // len(waiting[0].ids))
            yield waiting[:size]
            waiting = waiting[size:]

    def _answers_halving_batches(
        self, batch: list[Window], blanks: Sequence[Blank]
    ) -> list[FilledBlanks]:
        """Returns the answers of a batch, computed in two halves if memory runs out."""
        try:
            return self._draw_answers(batch, blanks)
        except torch.cuda.OutOfMemoryError as error:
            half = len(batch) // 2
            if not half:
                raise ConfigError(
                    f"a window of {len(batch[0].ids)} tokens does not fit into the device's "
                    "memory. Set a smaller masked_lm.window_tokens, or masked_lm.device=cpu."
                ) from error
        torch.cuda.empty_cache()
        return self._answers_halving_batches(batch[:half], blanks) + self._answers_halving_batches(
            batch[half:], blanks
        )

    def _draw_answers(self, batch: Sequence[Window], blanks: Sequence[Blank]) -> list[FilledBlanks]:
        """Returns the filled blanks of each window."""
        numbers = [number for window in batch for number, _ in window.blanks]
        logits, ids = self._top_logits_and_ids(batch, [blanks[n].word for n in numbers])
        rows = zip(numbers, logits, ids, strict=True)
        drawn = iter([self._draw_word_and_certainty(blanks[number], *row) for number, *row in rows])
        return [[(number, *next(drawn)) for number, _ in window.blanks] for window in batch]

    def _draw_word_and_certainty(self, blank: Blank, logits: Any, ids: Any) -> tuple[str, bool]:
        possible = np.isfinite(logits)  # a small vocabulary may have fewer candidates
        token, certain = draw_token(logits[possible], ids[possible], self.candidates, blank.seed)
        return self.vocabulary.word_in_original_case(token, blank.word), certain

    @torch.inference_mode()
    def _top_logits_and_ids(
        self, batch: Sequence[Window], originals: Sequence[str]
    ) -> tuple[Any, Any]:
        """Returns the highest logits and their ids, (N, candidates + EXTRA_LOGITS), descending."""
        logits_NV = self._blank_logits(batch)
        if not bool((torch.isfinite(logits_NV) | self.not_a_word).all()):
            raise ConfigError(
                f"masked_lm.path is {self.path!r}: the model's logits are NaN or infinite. Check "
                "its weights, or choose another masked model."
            )
        logits_NV = logits_NV.masked_fill(self.not_a_word, -torch.inf)
        for row, word in enumerate(originals):
            logits_NV[
                row, self.vocabulary.same.get(self.vocabulary.fold_word(word), [])
            ] = -torch.inf
        top = torch.topk(logits_NV, min(self.candidates + EXTRA_LOGITS, logits_NV.shape[1]))
        return top.values.double().cpu().numpy(), top.indices.cpu().numpy()

    def _blank_logits(self, batch: Sequence[Window]) -> Tensor:
        """Returns the float32 logits of only the blanks, shape (N, V), to save memory."""
        shape = (len(batch), max(len(window.ids) for window in batch))
        ids_BT = torch.full(shape, self.pad)
        real_BT = torch.zeros(shape, dtype=torch.long)
        for row, window in enumerate(batch):
            ids_BT[row, : len(window.ids)] = torch.tensor(window.ids)
            real_BT[row, : len(window.ids)] = 1
        blanks = [(row, index) for row, window in enumerate(batch) for _, index in window.blanks]
        rows, places = torch.tensor(blanks, device=self.device).T

        def only_blanks(_: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            return (args[0][rows, places],) if args[0].shape[:2] == shape else None

        head = self.model.get_output_embeddings()
        hook = head.register_forward_pre_hook(only_blanks) if head is not None else None
        try:
            inputs = {"input_ids": ids_BT, "attention_mask": real_BT}
            logits = self.model(**{k: v.to(self.device) for k, v in inputs.items()}).logits.float()
        finally:
            if hook is not None:
                hook.remove()
        chosen: Tensor = logits if logits.dim() == 2 else logits[rows, places]
        return chosen

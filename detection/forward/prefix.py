"""Reads texts after a shared prefix, whose keys and values are computed once.

Shapes: B texts, T tokens (padded), X hidden units (or the vocabulary).
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from contamination.detection.forward.batches import run_by_key, run_sequences
from contamination.detection.forward.reader import count_leading_special
from contamination.detection.models.base import LanguageModel, ProgressCallback, ignore_progress
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.passes import Copies, TokenStats

log = logging.getLogger(__name__)

SEPARATOR = "\n"


class CachedPrefixModel(LanguageModel):
    """A model that has read a prefix and returns statistics of texts after it.

    The text's leading special tokens, if any, are not read again because the prefix begins with
    them. In their place is the prefix's last state, which predicts the text's first token. So a
    text has the same tokens with a prefix and without.
    """

    @torch.inference_mode()
    def __init__(self, model: CausalLM, prefix: Sequence[int], special: int) -> None:
        self.model, self.special = model, special
        prefix_1P = torch.tensor([list(prefix)], device=model.device)
        states, self.past = model.hidden_states_and_cache(input_ids=prefix_1P, use_cache=True)
        self.last_11X = states[:, -1:]

    def score(
        self, sequences: Sequence[Sequence[int]], on_progress: ProgressCallback = ignore_progress
    ) -> list[TokenStats]:
        """Returns the statistics of each sequence's tokens after the first, after the prefix."""
        return self.model.score(sequences, compute_hidden_states=self.hidden_states)

    def hidden_states(self, ids_BT: Tensor) -> Tensor:
        """Returns the hidden states (B, T, X) of each text after the prefix."""
        rows, body_BT = len(ids_BT), ids_BT[:, self.special :]
        past = copy.deepcopy(self.past)  # a forward extends it
        past.batch_repeat_interleave(rows)
        states = self.model.hidden_states_and_cache(input_ids=body_BT, cache=past)[0]
        return torch.cat([self.last_11X.expand(rows, -1, -1)] * self.special + [states], dim=1)


class PrependedPrefixModel(LanguageModel):
    """A model without cached keys and values, which reads the prefix with each text."""

    def __init__(self, model: LanguageModel, prefix: Sequence[int], special: int) -> None:
        self.model, self.prefix, self.special = model, prefix, special
        self.batches_itself = model.batches_itself

    def score(
        self, sequences: Sequence[Sequence[int]], on_progress: ProgressCallback = ignore_progress
    ) -> list[TokenStats]:
        """Returns the statistics of each sequence's tokens after the first, after the prefix.

        The prefix begins with the sequences' own leading special tokens.
        """
        prefixed = [[*self.prefix, *sequence[self.special :]] for sequence in sequences]
        start = len(self.prefix) - min(1, self.special)
        leading = slice(0, max(0, self.special - 1))
        return [
            TokenStats.concatenate([stats[leading], stats[start:]])
            for stats in self.model.score(prefixed, on_progress)
        ]


def model_after_prefix(model: LanguageModel, prefix: Sequence[int], special: int) -> LanguageModel:
    """Returns a model that reads texts after a prefix.

    The first `special` tokens of the prefix also begin each text.
    """
    if isinstance(model, CausalLM):
        after_prefix = CachedPrefixModel(model, prefix, special)
        if (
            after_prefix.past is not None
        ):  # otherwise a layer keeps something other than keys and values
            return after_prefix
    return PrependedPrefixModel(model, prefix, special)


class Shots:
    """The tokens of prefixes of 0 to all shots.

    Attributes:
        special: the leading special tokens.
        ids: the token ids of the first n shots, for each n from 0.
    """

    def __init__(self, tokenizer: Any, shots: Sequence[str]) -> None:
        self.special = tokenizer("a")["input_ids"][: count_leading_special(tokenizer)]
        joined = ["".join(s + SEPARATOR for s in shots[:n]) for n in range(len(shots) + 1)]
        rows = tokenizer(joined, add_special_tokens=False, verbose=False)["input_ids"]
        self.ids = [[*self.special, *row] for row in rows]

    def count_fitting(self, tokens: int, context: int | None) -> int:
        """Returns how many shots leave room for a text of `tokens` tokens."""
        body = tokens - len(self.special)
        if context is None:
            return len(self.ids) - 1
        return max((n for n, row in enumerate(self.ids) if len(row) + body <= context), default=0)


def run_prefixed(
    model: LanguageModel,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    prefix_numbers: Sequence[int],
    prefixes: Sequence[Shots],
    batch_tokens: int,
    context: int | None,
    progress: str | None = None,
) -> list[Copies]:
    """Returns the statistics of each sequence i after `prefixes[prefix_numbers[i]]`."""

    def run(number: int, indices: list[int]) -> list[TokenStats]:
        texts = [sequences[i] for i in indices], [names[i] for i in indices]
        return run_after_shots(model, prefixes[number], *texts, batch_tokens, context, progress)

    return [(stats,) for stats in run_by_key(prefix_numbers, run)]


def run_after_shots(
    model: LanguageModel,
    shots: Shots,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    batch_tokens: int,
    context: int | None,
    progress: str | None = None,
    *,
    warn: bool = True,
) -> list[TokenStats]:
    """Returns the statistics of each sequence's tokens after the first, after the shots that fit.

    The number of a text's shots depends only on its length. With `warn`, a warning says how many
    texts leave no room for all shots. For the other arguments and errors see `run_sequences`.
    """

    def run(count: int, indices: list[int]) -> list[TokenStats]:
        if warn and count < (all_shots := len(shots.ids) - 1):
            remark = "" if count else " Their scores are meaningless."
            log.warning(
                f"prefix: {len(indices)} of {len(sequences)} texts have room in the model's "
                f"context for {count} of {all_shots} shots.{remark}"
            )
        prefix = shots.ids[count]
        width = max(len(sequences[i]) for i in indices)
        return run_sequences(
            model_after_prefix(model, prefix, len(shots.special)) if count else model,
            [sequences[i] for i in indices],
            [names[i] for i in indices],
            max(1, batch_tokens * width // (width + len(prefix))),  # the cache takes memory too
            progress,
        )

    return run_by_key([shots.count_fitting(len(sequence), context) for sequence in sequences], run)

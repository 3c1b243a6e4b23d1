"""What a model says of m tokens after each token is replaced by the model's own first choice.

A branch is a text x with one token x_p replaced by x*_p = argmax p(·|x_<p). Only the tokens that
follow change, and they share the prefix x_<p, so a branch costs no more than its own tokens
x*_p, x_{p+1}, …: all branches of a text are one row of queries over the text's cached keys, told
apart by position ids and a 4-D attention mask.

Shapes: B texts, Q query tokens (padded), P cached tokens, N query tokens that are real, X hidden
units. Positions p count from 0, as in the token ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers.cache_utils import DynamicCache, DynamicLayer

from detection.model.causal_lm import CausalLM

Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Branches:
    """The query tokens of one text's branches, branch after branch; every array has shape (N,).

    Attributes:
        ids: the token read: x*_p first, then the text's own tokens after p.
        targets: the text's token that follows, of which the statistics are wanted.
        start: p, the place of the branch's replaced token.
        offset: the token's place less p, from 0.
    """

    ids: Index
    targets: Index
    start: Index
    offset: Index

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: slice) -> Branches:
        return Branches(self.ids[part], self.targets[part], self.start[part], self.offset[part])


def make_branches(sequence: Sequence[int], top_id: NDArray[Any], future: int) -> Branches:
    """The branches of a text that differ from it and are followed by a token.

    Args:
        sequence: the text's T token ids.
        top_id: x* of the T-1 tokens after the first.
        future: m, the tokens after p to look at, 1 or more.
    """
    x, last = np.asarray(sequence, dtype=np.int64), len(sequence) - 1
    p = 1 + np.flatnonzero(top_id != x[1:])
    p = p[p < last]
    lengths = np.minimum(future, last - p)
    start = np.repeat(p, lengths)
    offset = np.arange(len(start)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    ids = np.where(offset == 0, top_id[start - 1], x[start + offset])
    return Branches(ids, x[start + offset + 1], start, offset)


def branch_states(
    model: CausalLM, cache: DynamicCache, texts: Sequence[Branches], queries: int
) -> Iterator[tuple[list[Branches], Tensor]]:
    """The hidden states (N, X) of the texts' query tokens, a piece of every text at a time.

    Args:
        model: the model.
        cache: the keys and values of the same texts, right-padded; it is not changed.
        texts: their branches.
        queries: at most this many query tokens of a text at once, but always a whole branch.
    """
    cuts = [_cuts(text, queries) for text in texts]
    for i in range(max(map(len, cuts))):
        piece = [t[slice(*c[i])] if i < len(c) else t[:0] for t, c in zip(texts, cuts, strict=True)]
        yield piece, _piece_states(model, cache, piece)


def naive_states(
    model: CausalLM,
    sequences: Sequence[Sequence[int]],
    texts: Sequence[Branches],
    batch_tokens: int,
) -> Iterator[tuple[list[Branches], Tensor]]:
    """The branches' states by a forward over a whole text for each branch, a text at a time."""
    for sequence, text in zip(sequences, texts, strict=True):
        starts, size = np.unique(text.start), max(1, batch_tokens // len(sequence))
        for first in range(0, len(starts), size):
            group = starts[first : first + size]
            piece = text[slice(*np.searchsorted(text.start, [group[0], group[-1] + 1]))]
            place, row = piece.start + piece.offset, np.searchsorted(group, piece.start)
            ids = np.tile(np.asarray(sequence[: int(place.max()) + 1]), (len(group), 1))
            ids[np.arange(len(group)), group] = piece.ids[piece.offset == 0]
            states_BTX = model.hidden(torch.from_numpy(ids).to(model.device))
            states_NX = states_BTX[torch.from_numpy(row), torch.from_numpy(place)]
            yield [piece if other is text else other[:0] for other in texts], states_NX


def _cuts(text: Branches, queries: int) -> list[tuple[int, int]]:
    """Where to cut the query tokens: between branches, as late as `queries` allows."""
    cuts = [0]
    for begin, end in pairwise([*np.flatnonzero(text.offset == 0).tolist(), len(text)]):
        if end - cuts[-1] > queries and begin > cuts[-1]:
            cuts.append(begin)
    return list(pairwise([*cuts, len(text)])) if len(text) else []


def _piece_states(model: CausalLM, cache: DynamicCache, texts: Sequence[Branches]) -> Tensor:
    start_BQ = _padded([t.start for t in texts], model)
    offset_BQ = _padded([t.offset for t in texts], model)
    real_BQ = _padded([np.ones_like(t.ids) for t in texts], model).bool()
    prefix, cached = int(start_BQ.max()), DynamicCache()
    cached.layers = [_FrozenLayer(layer, prefix) for layer in cache.layers]
    states_BQX, _ = model.states(
        input_ids=_padded([t.ids for t in texts], model),
        position_ids=start_BQ + offset_BQ,
        attention_mask=branch_mask(start_BQ, prefix, model.hf.dtype),
        past_key_values=cached,
        use_cache=True,
    )
    return states_BQX[real_BQ.to(states_BQX.device)]


def branch_mask(start_BQ: Tensor, prefix: int, dtype: torch.dtype) -> Tensor:
    """The additive mask (B, 1, Q, P + Q): 0 where a query token may look, else the lowest number.

    A branch sees the cached tokens before its start and its own tokens so far. Padding has start 0
    and sees the padding before it.
    """
    width, device = start_BQ.shape[1], start_BQ.device
    cached = torch.arange(prefix, device=device) < start_BQ[:, :, None]
    same = start_BQ[:, :, None] == start_BQ[:, None, :]
    earlier = torch.ones(width, width, dtype=torch.bool, device=device).tril()
    hidden = torch.cat([cached, same & earlier], dim=-1).logical_not_()[:, None]
    mask = torch.zeros(hidden.shape, dtype=dtype, device=device)
    return mask.masked_fill_(hidden, torch.finfo(dtype).min)


class _FrozenLayer(DynamicLayer):  # type: ignore[misc]
    """A layer's first keys and values, which no forward changes."""

    def __init__(self, layer: Any, prefix: int) -> None:
        super().__init__()
        self.lazy_initialization(layer.keys, layer.values)
        self.keys, self.values = layer.keys[..., :prefix, :], layer.values[..., :prefix, :]

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """The prefix and then the new ones, kept nowhere."""
        return torch.cat([self.keys, keys], dim=-2), torch.cat([self.values, values], dim=-2)


def _padded(rows: Sequence[Index], model: CausalLM) -> Tensor:
    return pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True).to(model.device)

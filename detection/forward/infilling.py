"""The pass of the Infilling Score: a text, and the text after each token's replacement.

The published code runs a forward for each token. Here a text costs as much as about 1 + m forwards
and the result is exact: one forward for the text, whose keys and values are cached, and the
equivalent of one for each of the m following tokens (see `run_branches`). Branches that equal the
text, because the model's first choice is the text's own token, cost nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers.cache_utils import DynamicCache, DynamicLayer

from contamination.core.errors import DataError
from contamination.detection.forward.batches import check_finite, run_batches, run_by_key
from contamination.detection.models.base import ProgressCallback, ignore_progress
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.passes import FLOATS, Copies, Parameter, TokenStats

Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Branches:
    """The query tokens of one text's branches, branch after branch; every array has shape (N,).

    Attributes:
        ids: the token that is read: first x*_p, then the text's own tokens after p.
        targets: the text's next token, whose statistics are computed.
        start: p, the position of the branch's replaced token.
        offset: the token's position minus p, from 0.
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
    """Returns the branches of a text that differ from it and are followed by a token.

    Args:
        sequence: the text's T token ids.
        top_id: x* of the T-1 tokens after the first.
        future: m, the number of tokens after p, 1 or more.
    """
    x, last = np.asarray(sequence, dtype=np.int64), len(sequence) - 1
    p = 1 + np.flatnonzero(top_id != x[1:])
    p = p[p < last]
    lengths = np.minimum(future, last - p)
    start = np.repeat(p, lengths)
    offset = np.arange(len(start)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    ids = np.where(offset == 0, top_id[start - 1], x[start + offset])
    return Branches(ids, x[start + offset + 1], start, offset)


def iter_branch_states(
    model: CausalLM, cache: DynamicCache, texts: Sequence[Branches], max_queries: int
) -> Iterator[tuple[list[Branches], Tensor]]:
    """Yields the hidden states (N, X) of the texts' query tokens, a piece of every text at a time.

    Args:
        model: the model.
        cache: the keys and values of the same texts, right-padded; it is not modified.
        texts: the branches of each text.
        max_queries: the maximum number of query tokens per text and piece; a branch is not divided.
    """
    bounds = [_query_pieces(text, max_queries) for text in texts]
    for i in range(max(map(len, bounds))):
        piece = [
            t[slice(*b[i])] if i < len(b) else t[:0] for t, b in zip(texts, bounds, strict=True)
        ]
        yield piece, _piece_states(model, cache, piece)


def iter_naive_states(
    model: CausalLM,
    sequences: Sequence[Sequence[int]],
    texts: Sequence[Branches],
    batch_tokens: int,
) -> Iterator[tuple[list[Branches], Tensor]]:
    """Yields the branches' states, from a forward over the whole text for each branch."""
    for sequence, text in zip(sequences, texts, strict=True):
        starts, size = np.unique(text.start), max(1, batch_tokens // len(sequence))
        for first in range(0, len(starts), size):
            group = starts[first : first + size]
            piece = text[slice(*np.searchsorted(text.start, [group[0], group[-1] + 1]))]
            position, row = piece.start + piece.offset, np.searchsorted(group, piece.start)
            ids = np.tile(np.asarray(sequence[: int(position.max()) + 1]), (len(group), 1))
            ids[np.arange(len(group)), group] = piece.ids[piece.offset == 0]
            states_BTX = model.hidden_states(torch.from_numpy(ids).to(model.device))
            states_NX = states_BTX[torch.from_numpy(row), torch.from_numpy(position)]
            yield [piece if other is text else other[:0] for other in texts], states_NX


def _query_pieces(text: Branches, max_queries: int) -> list[tuple[int, int]]:
    """Divides the query tokens between branches into pieces of up to `max_queries` tokens."""
    cuts = [0]
    for begin, end in pairwise([*np.flatnonzero(text.offset == 0).tolist(), len(text)]):
        if end - cuts[-1] > max_queries and begin > cuts[-1]:
            cuts.append(begin)
    return list(pairwise([*cuts, len(text)])) if len(text) else []


def _piece_states(model: CausalLM, cache: DynamicCache, texts: Sequence[Branches]) -> Tensor:
    start_BQ = _pad_rows([t.start for t in texts], model)
    offset_BQ = _pad_rows([t.offset for t in texts], model)
    real_BQ = _pad_rows([np.ones_like(t.ids) for t in texts], model).bool()
    prefix, cached = int(start_BQ.max()), DynamicCache()
    cached.layers = [_FrozenLayer(layer, prefix) for layer in cache.layers]
    states_BQX, _ = model.hidden_states_and_cache(
        input_ids=_pad_rows([t.ids for t in texts], model),
        position_ids=start_BQ + offset_BQ,
        attention_mask=branch_mask(start_BQ, prefix, model.hf.dtype),
        cache=cached,
    )
    return states_BQX[real_BQ.to(states_BQX.device)]


def branch_mask(start_BQ: Tensor, prefix: int, dtype: torch.dtype) -> Tensor:
    """Returns the additive mask (B, 1, Q, P + Q): 0 for visible tokens, else the lowest number.

    A token of a branch sees the cached tokens before the branch's start and the branch's own
    earlier tokens. Padding has start 0 and sees the padding before it.
    """
    width, device = start_BQ.shape[1], start_BQ.device
    cached = torch.arange(prefix, device=device) < start_BQ[:, :, None]
    same = start_BQ[:, :, None] == start_BQ[:, None, :]
    earlier = torch.ones(width, width, dtype=torch.bool, device=device).tril()
    hidden = torch.cat([cached, same & earlier], dim=-1).logical_not_()[:, None]
    mask = torch.zeros(hidden.shape, dtype=dtype, device=device)
    return mask.masked_fill_(hidden, torch.finfo(dtype).min)


class _FrozenLayer(DynamicLayer):  # type: ignore[misc]
    """The first keys and values of a layer, which a forward does not modify."""

    def __init__(self, layer: Any, prefix: int) -> None:
        super().__init__()
        self.lazy_initialization(layer.keys, layer.values)
        self.keys, self.values = layer.keys[..., :prefix, :], layer.values[..., :prefix, :]

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Returns the prefix followed by the new keys and values, which are not stored."""
        return torch.cat([self.keys, keys], dim=-2), torch.cat([self.values, values], dim=-2)


def _pad_rows(rows: Sequence[Index], model: CausalLM) -> Tensor:
    return pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True).to(model.device)


ALL = "all"
QUERIES = 256  # query tokens per text and piece: a small mask, but large matrix products


@torch.inference_mode()
def run_branches(
    model: CausalLM,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    batch_tokens: int,
    future: Parameter,
    on_progress: ProgressCallback = ignore_progress,
) -> list[Copies]:
    """Returns the texts' copies, from a forward and from their branches over cached prefixes."""
    cache = DynamicCache()  # of whole layers, even if the model's own cache would drop tokens

    def hidden(ids_BT: Tensor) -> Tensor:
        return model.hidden_states_and_cache(input_ids=ids_BT, cache=cache)[0]

    texts = model.score(sequences, compute_hidden_states=hidden)
    max_queries = max(1, min(QUERIES, batch_tokens // len(sequences)))
    states = partial(iter_branch_states, model, cache, max_queries=max_queries)
    return _all_copies(model, sequences, names, future, texts, states, on_progress)


@torch.inference_mode()
def run_naive(
    model: CausalLM,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    batch_tokens: int,
    future: Parameter,
    on_progress: ProgressCallback = ignore_progress,
) -> list[Copies]:
    """Returns what `run_branches` does, for models without a cache or 4-D masks.

    It runs one forward per branch.
    """
    states = partial(iter_naive_states, model, sequences, batch_tokens=batch_tokens)
    return _all_copies(model, sequences, names, future, model.score(sequences), states, on_progress)


def _all_copies(
    model: CausalLM,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    future: Parameter,
    text_stats: Sequence[TokenStats],
    states: Callable[[Sequence[Branches]], Iterator[tuple[list[Branches], Tensor]]],
    on_progress: ProgressCallback,
) -> list[Copies]:
    """Returns the texts' copies from their own statistics and the `states` of their branches."""
    check_finite(text_stats, names)
    depths = [len(text) if future == ALL else int(future) for text in text_stats]
    rows = zip(sequences, text_stats, depths, strict=True)
    branches = [make_branches(sequence, text.top_id, m) for sequence, text, m in rows]
    stats_pieces = [[text[:0]] for text in text_stats]
    done, total = 0, sum(map(len, branches))
    for pieces, states_NX in states(branches):
        stats_by_text = model.stats_of(states_NX, [piece.targets for piece in pieces])
        for part, stats in zip(stats_pieces, stats_by_text, strict=True):
            part.append(stats)
        done += len(states_NX)
        on_progress(done, total)
    branch_stats = list(map(TokenStats.concatenate, stats_pieces))
    check_finite(branch_stats, names)
    return [
        _copies_of_text(*rows)
        for rows in zip(text_stats, branches, branch_stats, depths, strict=True)
    ]


def _copies_of_text(
    text: TokenStats, branches: Branches, branch_stats: TokenStats, future: int
) -> Copies:
    """Returns copies 0 to min(m, T-2): the text's statistics, replaced by those of its branches."""
    depth = min(future, len(text) - 1)
    order = np.argsort(branches.offset, kind="stable")
    ends = np.searchsorted(branches.offset[order], np.arange(1, depth + 1))
    copies = [text]
    for j, group in enumerate(np.split(order, ends)[:depth], start=1):
        columns = {name: column[j:].copy() for name, column in vars(text).items()}
        for name, column in columns.items():
            column[branches.start[group] - 1] = vars(branch_stats)[name][group]
        copies.append(TokenStats(**columns))
    return tuple(copies)


log = logging.getLogger(__name__)


def run_infill(
    model: CausalLM,
    sequences: Sequence[Sequence[int]],
    text_names: Sequence[str],
    batch_tokens: int,
    future: Parameter,
    progress: str | None = None,
) -> list[Copies]:
    """Returns the copies of each text, in the given order.

    Copy 0 has the statistics of the text. Copy j has, for each token after the first 1 + j, its
    statistics after the token j positions earlier was replaced by the model's first choice.

    `future` is m, 1 or more, or `all`. For the other arguments and errors see `run_sequences`.
    """

    def run(naive: int, indices: list[int]) -> list[Copies]:
        return run_batches(
            [sequences[i] for i in indices],
            [text_names[i] for i in indices],
            batch_tokens,
            partial(run_naive if naive else run_branches, model, future=future),
            progress,
            in_pieces=True,
        )

    return run_by_key(_need_naive_by_text(model, sequences), run)


def supports_branches(model: CausalLM) -> bool:
    """Returns whether branches have the naive loop's statistics, by trying a short random text."""
    ids = np.random.default_rng(0).integers(model.vocabulary, size=12).tolist()
    tolerance = max(1e-3, 32 * torch.finfo(model.hf.dtype).eps)
    try:
        (copies,) = run_branches(model, [ids], [""], 5, 3)
        (expected,) = run_naive(model, [ids], [""], 24, 3)
    except DataError:
        return True  # NaN logits, which are reported for the texts by name
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError):
        return False
    return all(
        np.allclose(getattr(a, name), getattr(b, name), rtol=tolerance, atol=tolerance)
        for a, b in zip(copies, expected, strict=True)
        for name in FLOATS
    )


def fits_window(model: CausalLM, tokens: int) -> bool:
    """Returns whether every layer's attention window is at least `tokens` wide."""
    config = model.hf.config.get_text_config(decoder=True)
    names = ("sliding_window", "attention_chunk_size")
    return all(tokens <= (getattr(config, name, None) or tokens) for name in names)


def _need_naive_by_text(model: CausalLM, sequences: Sequence[Sequence[int]]) -> list[bool]:
    """Returns which texts need the naive loop, and logs its cost."""
    branches_work = supports_branches(model)
    needed = [not branches_work or not fits_window(model, len(ids)) for ids in sequences]
    if any(needed):
        reason = "the texts exceed the model's attention window"
        if not branches_work:
            reason = "the model takes no 4-D mask or no cache"
        naive_lengths = [len(ids) for ids, naive in zip(sequences, needed, strict=True) if naive]
        forwards = sum(length - 1 for length in naive_lengths)
        log.warning(
            f"infilling: {reason}. {sum(needed)} of {len(sequences)} texts cost a forward for each "
            f"token, up to {forwards} in all, instead of about 1 + m for each text."
        )
    return needed

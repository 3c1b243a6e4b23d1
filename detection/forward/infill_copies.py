"""A text's statistics before and after each replacement, with branches or by the naive loop.

Copy 0 of a text of T tokens is its own statistics. Entry i of copy j = 1..min(m, T-2) is about
token t + j, t = i + 2, after token t is replaced by x*_t = argmax p(·|x_<t): T-1-j entries, none
padded, so a larger m holds every smaller one. Where x*_t = x_t, it is copy 0's entry for token
t + j to the bit: the branch is the text, and is not run.

Shapes: B texts, T tokens (padded), N rows that are real tokens, X hidden units.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from detection.forward.batches import check_finite
from detection.forward.infill_branches import (
    Branches,
    branch_states,
    make_branches,
    naive_states,
    read_text,
)
from detection.model.causal_lm import CausalLM
from detection.passes import Copies, Parameter, TokenStats

ALL = "all"
QUERIES = 256  # a text's query tokens at once: the mask stays small, the matrix products large


@torch.inference_mode()
def run_branches(
    model: CausalLM,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    batch_tokens: int,
    future: Parameter,
) -> list[Copies]:
    """One forward over the texts, then all their branches over the cached prefixes."""
    rows = [torch.tensor(sequence) for sequence in sequences]
    ids_BT = pad_sequence(rows, batch_first=True).to(model.device)
    states_BTX, cache = read_text(model, ids_BT)
    states_NX = torch.cat([s[: len(r) - 1] for s, r in zip(states_BTX, rows, strict=True)])
    del states_BTX
    columns = _split_columns(model, states_NX, [np.array(s[1:]) for s in sequences])
    texts = [TokenStats(*each) for each in columns]
    check_finite(texts, names)
    depths, branches = _branches(sequences, texts, future)
    queries = max(1, min(QUERIES, batch_tokens // len(sequences)))
    after = _after_branches(model, texts, branch_states(model, cache, branches, queries))
    check_finite(after, names)
    return [_copies(*each) for each in zip(texts, branches, after, depths, strict=True)]


@torch.inference_mode()
def run_naive(
    model: CausalLM,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    batch_tokens: int,
    future: Parameter,
) -> list[Copies]:
    """What `run_branches` gives, by one forward a branch: for models without cache or 4-D mask."""
    texts = model.stats(sequences)
    check_finite(texts, names)
    depths, branches = _branches(sequences, texts, future)
    after = [
        _after_branches(model, [text], naive_states(model, sequence, branch, batch_tokens))[0]
        for sequence, text, branch in zip(sequences, texts, branches, strict=True)
    ]
    check_finite(after, names)
    return [_copies(*each) for each in zip(texts, branches, after, depths, strict=True)]


def _branches(
    sequences: Sequence[Sequence[int]], texts: Sequence[TokenStats], future: Parameter
) -> tuple[list[int], list[Branches]]:
    """Each text's m and its branches."""
    depths = [len(text) if future == ALL else int(future) for text in texts]
    each = zip(sequences, texts, depths, strict=True)
    return depths, [make_branches(sequence, text.top_id, m) for sequence, text, m in each]


def _split_columns(
    model: CausalLM, states_NX: Tensor, targets: Sequence[NDArray[np.int64]]
) -> list[tuple[NDArray[Any], ...]]:
    """Each text's five statistics, from the states of all their tokens in a row."""
    targets_N = torch.from_numpy(np.concatenate(targets)).to(model.device)
    ends = np.cumsum([len(t) for t in targets])[:-1]
    columns = model.columns(states_NX, targets_N)
    return list(zip(*(np.split(column, ends) for column in columns), strict=True))


def _after_branches(
    model: CausalLM,
    texts: Sequence[TokenStats],
    pieces: Iterable[tuple[list[Branches], Tensor]],
) -> list[TokenStats]:
    """Each text's statistics of its query tokens, in the order of its `Branches`."""
    parts = [[text[:0]] for text in texts]
    for branches, states_NX in pieces:
        columns = _split_columns(model, states_NX, [b.targets for b in branches])
        for part, each in zip(parts, columns, strict=True):
            part.append(TokenStats(*each))
    return list(map(TokenStats.joined, parts))


def _copies(text: TokenStats, branches: Branches, after: TokenStats, future: int) -> Copies:
    """Copy 0 and the copies j = 1..min(m, T-2): the text's own, but where a branch says else."""
    depth = min(future, len(text) - 1)
    order = np.argsort(branches.offset, kind="stable")
    ends = np.searchsorted(branches.offset[order], np.arange(1, depth + 1))
    copies = [text]
    for j, group in enumerate(np.split(order, ends)[:depth], start=1):
        columns = {name: column[j:].copy() for name, column in vars(text).items()}
        for name, column in columns.items():
            column[branches.start[group] - 1] = vars(after)[name][group]
        copies.append(TokenStats(**columns))
    return tuple(copies)

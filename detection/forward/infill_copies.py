"""A text's statistics before and after each replacement, with branches or by the naive loop.

Copy 0 of a text of T tokens is its own statistics. Entry i of copy j = 1..min(m, T-2) is about
token t + j, t = i + 2, after token t is replaced by x*_t = argmax p(·|x_<t): T-1-j entries, none
padded, so a larger m holds every smaller one. Where x*_t = x_t, it is copy 0's entry for token
t + j to the bit: the branch is the text, and is not run.

Shapes: B texts, T tokens (padded), N query tokens, X hidden units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from detection.forward.batches import check_finite
from detection.forward.infill_branches import Branches, branch_states, make_branches, naive_states
from detection.model.causal_lm import CausalLM
from detection.model.language_model import Tell, tell_nobody
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
    tell: Tell = tell_nobody,
) -> list[Copies]:
    """One forward over the texts, then all their branches over the cached prefixes."""
    cache = DynamicCache()  # of whole layers, whatever the model's own cache would forget

    def hidden(ids_BT: Tensor) -> Tensor:
        return model.states(input_ids=ids_BT, past_key_values=cache, use_cache=True)[0]

    texts = model.stats(sequences, hidden=hidden)
    queries = max(1, min(QUERIES, batch_tokens // len(sequences)))
    states = partial(branch_states, model, cache, queries=queries)
    return _all_copies(model, sequences, names, future, texts, states, tell)


@torch.inference_mode()
def run_naive(
    model: CausalLM,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    batch_tokens: int,
    future: Parameter,
    tell: Tell = tell_nobody,
) -> list[Copies]:
    """What `run_branches` gives, by one forward a branch: for models without cache or 4-D mask."""
    states = partial(naive_states, model, sequences, batch_tokens=batch_tokens)
    return _all_copies(model, sequences, names, future, model.stats(sequences), states, tell)


def _all_copies(
    model: CausalLM,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    future: Parameter,
    texts: Sequence[TokenStats],
    states: Callable[[Sequence[Branches]], Iterator[tuple[list[Branches], Tensor]]],
    tell: Tell,
) -> list[Copies]:
    """The texts' copies from their own statistics and the `states` of their branches, in pieces."""
    check_finite(texts, names)
    depths = [len(text) if future == ALL else int(future) for text in texts]
    each = zip(sequences, texts, depths, strict=True)
    branches = [make_branches(sequence, text.top_id, m) for sequence, text, m in each]
    parts = [[text[:0]] for text in texts]
    done, total = 0, sum(map(len, branches))
    for pieces, states_NX in states(branches):
        found = model.stats_of(states_NX, [piece.targets for piece in pieces])
        for part, stats in zip(parts, found, strict=True):
            part.append(stats)
        done += len(states_NX)
        tell(done, total)
    after = list(map(TokenStats.joined, parts))
    check_finite(after, names)
    return [_copies(*each) for each in zip(texts, branches, after, depths, strict=True)]


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

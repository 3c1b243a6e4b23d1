"""The pass of the Infilling Score: a text, and the text after each token's replacement.

The published code runs a forward for each token. Here a text costs the arithmetic of about 1 + m
forwards, exactly: one for the text, whose keys and values are kept, and one of its length for each
of the m tokens looked at (see `infill_branches`). Branches that equal the text, where the model's
first choice is the text's own token, cost nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from core.errors import DataError
from detection.forward.batches import run_batches
from detection.forward.infill_copies import run_branches, run_naive
from detection.model.causal_lm import CausalLM
from detection.passes import NUMBERS, Copies, Parameter

log = logging.getLogger(__name__)


def run_infill(
    model: CausalLM,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    batch_tokens: int,
    future: Parameter,
    progress: str | None = None,
) -> list[Copies]:
    """The copies of each text (see `infill_copies`), in the given order.

    Args:
        model: the model.
        sequences: token ids, at least 2 each.
        names: what to call each sequence in an error.
        batch_tokens: tokens in a batch, padding included; one text may exceed it.
        future: m, 1 or more, or `all`.
        progress: the progress bar's title; none without.

    Raises:
        DataError: the model's logits for a text are not finite.
        ConfigError: a text alone does not fit into the device's memory.
    """
    naive = _naive(model, sequences)
    others = sorted(set(range(len(sequences))) - set(naive))
    results: dict[int, Copies] = {}
    for run, group in ((run_naive, naive), (run_branches, others)):
        rows, called = [sequences[i] for i in group], [names[i] for i in group]
        score = partial(_score, run, model, rows, called, future)
        title = progress if group else None
        found = run_batches(rows, called, batch_tokens, score, title, in_pieces=True)
        results.update(zip(group, found, strict=True))
    return [results[i] for i in range(len(sequences))]


def takes_branches(model: CausalLM) -> bool:
    """Whether the model gives the naive loop's statistics for branches, tried on a short text."""
    ids = np.random.default_rng(0).integers(model.vocabulary, size=12).tolist()
    tolerance = max(1e-3, 32 * torch.finfo(model.hf.dtype).eps)
    try:
        (found,) = run_branches(model, [ids], [""], 5, 3)
        (expected,) = run_naive(model, [ids], [""], 24, 3)
    except DataError:
        return True  # NaN, as the texts will say by name
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError):
        return False
    return all(
        np.allclose(getattr(a, field), getattr(b, field), rtol=tolerance, atol=tolerance)
        for a, b in zip(found, expected, strict=True)
        for field in NUMBERS[:-1]
    )


def fits_window(model: CausalLM, tokens: int) -> bool:
    """Whether no layer's attention is narrower than a text of so many tokens."""
    config = model.hf.config.get_text_config(decoder=True)
    names = ("sliding_window", "attention_chunk_size")
    return all(tokens <= (getattr(config, name, None) or tokens) for name in names)


def _naive(model: CausalLM, sequences: Sequence[Sequence[int]]) -> list[int]:
    """The texts that need the naive loop; its cost is said."""
    cached = takes_branches(model)
    found = [i for i, s in enumerate(sequences) if not cached or not fits_window(model, len(s))]
    if found:
        log.warning(
            "infilling: %s. %d of %d texts cost a forward for each token, up to %d in all, instead "
            "of about 1 + m for each text.",
            "the texts exceed the model's attention window"
            if cached
            else "the model takes no 4-D mask or no cache",
            len(found),
            len(sequences),
            sum(len(sequences[i]) - 1 for i in found),
        )
    return found


def _score(
    run: Callable[..., list[Copies]],
    model: CausalLM,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    future: Parameter,
    batch: Sequence[int],
    batch_tokens: int,
) -> list[Copies]:
    """A batch's copies."""
    chosen, called = [sequences[i] for i in batch], [names[i] for i in batch]
    return run(model, chosen, called, batch_tokens, future)

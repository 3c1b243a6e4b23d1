"""The pass of the Infilling Score: a text, and the text after each token's replacement.

The published code runs a forward for each token. Here a text costs the arithmetic of about 1 + m
forwards, exactly: one for the text, whose keys and values are kept, and one of its length for each
of the m tokens looked at (see `infill_branches`). Branches that equal the text, where the model's
first choice is the text's own token, cost nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from core.errors import DataError
from detection.forward.batches import run_batches, run_groups
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

    `future` is m, 1 or more, or `all`. Other arguments and the errors are `run_sequences`'s.
    """

    def run(naive: int, places: list[int]) -> list[Copies]:
        return run_batches(
            [sequences[i] for i in places],
            [names[i] for i in places],
            batch_tokens,
            partial(run_naive if naive else run_branches, model, future=future),
            progress,
            in_pieces=True,
        )

    return run_groups(_naive(model, sequences), run)


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


def _naive(model: CausalLM, sequences: Sequence[Sequence[int]]) -> list[bool]:
    """Which texts need the naive loop, whose cost is logged."""
    cached = takes_branches(model)
    naive = [not cached or not fits_window(model, len(sequence)) for sequence in sequences]
    if any(naive):
        why = "the texts exceed the model's attention window"
        if not cached:
            why = "the model takes no 4-D mask or no cache"
        forwards = sum(len(sequences[i]) - 1 for i, loops in enumerate(naive) if loops)
        log.warning(
            f"infilling: {why}. {sum(naive)} of {len(sequences)} texts cost a forward for each "
            f"token, up to {forwards} in all, instead of about 1 + m for each text."
        )
    return naive

"""What a model of transformers writes after prompts: its `generate`, with draws of our own.

A draw takes one uniform number u a token: the first token up to which p, summed in the
vocabulary's order, exceeds u. The numbers follow from the prompt's seed alone, so a continuation
does not depend on what else is in its batch.

Shapes: B prompts of one length P, L new tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from core.errors import ConfigError, DataError
from detection.model.language_model import Prompt


class Draw(LogitsProcessor):  # type: ignore[misc]
    """Leaves each row the token that its uniform number draws, at a temperature above 0."""

    def __init__(self, prompts: Sequence[Prompt], temperature: float) -> None:
        drawn = [np.random.default_rng(each.seed).random(each.tokens) for each in prompts]
        self.uniform_BL = torch.from_numpy(np.stack(drawn))
        self.start, self.temperature = len(prompts[0].ids), temperature

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The logits (B, V): 0 for the drawn token, −∞ for every other."""
        step = input_ids.shape[1] - self.start
        total_BV = (scores.double() / self.temperature).softmax(-1).cumsum(-1)
        u_B1 = self.uniform_BL[:, step, None].to(scores.device) * total_BV[:, -1:]
        token_B1 = torch.searchsorted(total_BV, u_B1, right=True)
        token_B1 = token_B1.clamp_max(scores.shape[1] - 1)
        return torch.full_like(scores, -torch.inf).scatter_(1, token_B1, 0.0)


class Finite(LogitsProcessor):  # type: ignore[misc]
    """Raises a DataError where no token has a probability."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The logits (B, V) as they are."""
        if not scores.logsumexp(-1).isfinite().all():
            raise DataError(
                "the model's logits are NaN or infinite, so it can't write. Check the model's "
                "weights, or use detection.dtype=float32."
            )
        return scores


@torch.inference_mode()
def written(
    hf: Any, device: torch.device, prompts: Sequence[Prompt], temperature: float
) -> list[list[int]]:
    """See `LanguageModel.write`; all prompts have one length and want as many tokens.

    Raises:
        ConfigError: the model's class has no `generate`.
        DataError: the model's logits are not finite.
    """
    if not getattr(hf, "can_generate", bool)():
        raise ConfigError(
            f"the model's class, {type(hf).__name__}, has no `generate`, so it writes nothing: "
            "leave out the methods for which a model writes, such as samia and cdd."
        )
    ids_BP = torch.tensor([list(prompt.ids) for prompt in prompts], device=device)
    own, ends = hf.generation_config, end_tokens(hf)
    steps = [Finite(), *([Draw(prompts, temperature)] if temperature else [])]
    hf.generation_config = GenerationConfig(  # its own may repeat less, or cut the vocabulary
        max_new_tokens=prompts[0].tokens,
        do_sample=False,
        eos_token_id=ends or None,
        pad_token_id=ends[0] if ends else 0,
    )
    try:
        found = hf.generate(
            ids_BP,
            attention_mask=torch.ones_like(ids_BP),
            logits_processor=LogitsProcessorList(steps),
        )
    finally:
        hf.generation_config = own
    rows = found[:, ids_BP.shape[1] :].tolist()
    return [row[: min((row.index(e) for e in ends if e in row), default=None)] for row in rows]


def end_tokens(hf: Any) -> list[int]:
    """The tokens that end a text, by the model's own settings."""
    config = hf.config.get_text_config(decoder=True)
    given = hf.generation_config.eos_token_id
    given = config.eos_token_id if given is None else given
    return [] if given is None else [given] if isinstance(given, int) else list(given)

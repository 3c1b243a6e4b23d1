"""A causal language model of transformers: its hidden states, token statistics and generation.

Shapes: B texts, P prompt tokens, L generated tokens, T tokens (padded), N rows that are real
tokens, X hidden units (or the vocabulary), V vocabulary.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.cache_utils import DynamicLayer

from contamination.core.errors import ConfigError, DataError
from contamination.core.models import load_model
from contamination.detection.config import DetectionConfig
from contamination.detection.models.base import (
    LanguageModel,
    ProgressCallback,
    Prompt,
    ignore_progress,
)
from contamination.detection.models.head import HALF, find_verified_head
from contamination.detection.models.kernel import choose_statistics
from contamination.detection.passes import TokenStats


class SampleByUniforms(LogitsProcessor):  # type: ignore[misc]
    """Samples each row's token by inverse transform, from uniforms that the prompt's seed draws."""

    def __init__(self, prompts: Sequence[Prompt], temperature: float) -> None:
        uniforms = [np.random.default_rng(p.seed).random(p.tokens) for p in prompts]
        self.uniform_BL = torch.from_numpy(np.stack(uniforms))
        self.start, self.temperature = len(prompts[0].ids), temperature

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Returns logits (B, V): 0 for the sampled token, −∞ for every other."""
        step = input_ids.shape[1] - self.start
        total_BV = (scores.double() / self.temperature).softmax(-1).cumsum(-1)
        u_B1 = self.uniform_BL[:, step, None].to(scores.device) * total_BV[:, -1:]
        token_B1 = torch.searchsorted(total_BV, u_B1, right=True)
        token_B1 = token_B1.clamp_max(scores.shape[1] - 1)
        return torch.full_like(scores, -torch.inf).scatter_(1, token_B1, 0.0)


class CheckFinite(LogitsProcessor):  # type: ignore[misc]
    """Raises a DataError if no token has a probability."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Returns the logits (B, V) unchanged."""
        if not scores.logsumexp(-1).isfinite().all():
            raise DataError(
                "the model's logits are NaN or infinite, so it can't generate text. Check the "
                "model's weights, or use detection.dtype=float32."
            )
        return scores


@torch.inference_mode()
def generate_batch(
    hf: Any, device: torch.device, prompts: Sequence[Prompt], temperature: float
) -> list[list[int]]:
    """Returns the continuations of prompts that share one length and one maximum of tokens.

    Raises:
        ConfigError: the model's class has no `generate`.
        DataError: the model's logits are not finite.
    """
    if not getattr(hf, "can_generate", bool)():
        raise ConfigError(
            f"the model's class, {type(hf).__name__}, has no `generate`: leave out the methods "
            "for which a model generates text, such as samia and cdd."
        )
    ids_BP = torch.tensor([list(prompt.ids) for prompt in prompts], device=device)
    eos_ids = eos_token_ids(hf)
    processors = [CheckFinite(), *([SampleByUniforms(prompts, temperature)] if temperature else [])]
    model_defaults = hf.generation_config  # may penalise repetition, or truncate the vocabulary
    hf.generation_config = GenerationConfig(
        max_new_tokens=prompts[0].tokens,
        do_sample=False,
        eos_token_id=eos_ids or None,
        pad_token_id=eos_ids[0] if eos_ids else 0,
    )
    try:
        ids_BT = hf.generate(
            ids_BP,
            attention_mask=torch.ones_like(ids_BP),
            logits_processor=LogitsProcessorList(processors),
        )
    finally:
        hf.generation_config = model_defaults
    rows = ids_BT[:, ids_BP.shape[1] :].tolist()
    return [row[: min((row.index(e) for e in eos_ids if e in row), default=None)] for row in rows]


def eos_token_ids(hf: Any) -> list[int]:
    """Returns the tokens that end a text, by the model's own settings."""
    config = hf.config.get_text_config(decoder=True)
    eos = hf.generation_config.eos_token_id
    eos = config.eos_token_id if eos is None else eos
    return [] if eos is None else [eos] if isinstance(eos, int) else list(eos)


log = logging.getLogger(__name__)


class CausalLM(LanguageModel):
    """Runs a model and keeps few float32 logits in memory at a time.

    Nearly every model is a body and a head (`find_verified_head`). If not, its full logits take
    the place of the hidden states. On a GPU, one kernel computes the statistics from the hidden
    states (`choose_statistics`).

    A model that is spread over devices moves its inputs itself: the hidden states and the logits
    may be on another device than `device`, which receives the token ids.

    Args:
        hf: a model of transformers.
        kernel: `detection.kernel`.
    """

    def __init__(self, hf: Any, kernel: str = "auto") -> None:
        self.hf = hf
        devices = (p.device for p in hf.parameters() if not p.is_meta)  # meta: offloaded to disk
        self.device = next(devices, torch.device("cpu"))  # that of the first layer
        config = hf.config.get_text_config(decoder=True)
        self.vocabulary: int = config.vocab_size
        ids = torch.arange(min(8, self.vocabulary), device=self.device)[None]
        self.head = find_verified_head(hf, ids)
        self.statistics = choose_statistics(self.head, self.vocabulary, kernel)
        half = {str(p.dtype) for p in hf.parameters() if p.dtype in HALF}
        if half and (self.head is None or not self.head.is_linear):
            log.warning("%s computes its logits itself, in %s.", type(hf).__name__, *half)

    @torch.inference_mode()
    def score(
        self,
        sequences: Sequence[Sequence[int]],
        on_progress: ProgressCallback = ignore_progress,
        compute_hidden_states: Callable[[Tensor], Tensor] | None = None,
    ) -> list[TokenStats]:
        """Returns each sequence's statistics from one forward pass, padded on the right.

        Args:
            sequences: token ids, at least 2 each.
            on_progress: never called, since a batch is one forward pass.
            compute_hidden_states: computes the hidden states instead of the method of this name.
        """
        rows = [torch.tensor(sequence) for sequence in sequences]
        ids_BT = pad_sequence(rows, batch_first=True).to(self.device)
        hidden_BTX = (compute_hidden_states or self.hidden_states)(ids_BT)
        states = [
            hidden_TX[: len(row) - 1] for hidden_TX, row in zip(hidden_BTX, rows, strict=True)
        ]
        return self.stats_of(torch.cat(states), [np.array(sequence[1:]) for sequence in sequences])

    def generate(
        self,
        prompts: Sequence[Prompt],
        temperature: float,
        on_progress: ProgressCallback = ignore_progress,
    ) -> list[list[int]]:
        """Returns each prompt's continuation; prompts of one length share a batch, unpadded."""
        shapes = [(len(prompt.ids), prompt.tokens) for prompt in prompts]
        continuations = dict[int, list[int]]()
        for shape in sorted(set(shapes)):
            indices = [i for i, prompt_shape in enumerate(shapes) if prompt_shape == shape]
            batch = [prompts[i] for i in indices]
            batch_continuations = generate_batch(self.hf, self.device, batch, temperature)
            continuations.update(zip(indices, batch_continuations, strict=True))
        return [continuations[i] for i in range(len(prompts))]

    def stats_of(self, hidden_NX: Tensor, targets: Sequence[NDArray[np.int64]]) -> list[TokenStats]:
        """Returns each text's statistics of its `targets`, from the states before them.

        Args:
            hidden_NX: the states of all texts, concatenated.
            targets: the token ids of each text.
        """
        targets_N = torch.from_numpy(np.concatenate(targets)).to(self.device)
        ends = np.cumsum([len(tokens) for tokens in targets])[:-1]
        split_columns = [
            np.split(column, ends) for column in self.statistics_columns(hidden_NX, targets_N)
        ]
        return [TokenStats(*columns) for columns in zip(*split_columns, strict=True)]

    def statistics_columns(self, hidden_NX: Tensor, targets_N: Tensor) -> list[NDArray[Any]]:
        """Returns the five statistics (N,)."""
        *floats, top_id = (c.cpu().numpy() for c in self.statistics(hidden_NX, targets_N))
        return [*floats, top_id.astype(np.int32)]

    def hidden_states(self, ids_BT: Tensor) -> Tensor:
        """Returns the last hidden states (B, T, X); the padding must be on the right.

        No attention mask is needed: a position of a causal model never attends to later ones.
        """
        return self.hidden_states_and_cache(input_ids=ids_BT, use_cache=False)[0]

    def hidden_states_and_cache(self, cache: Any = None, **inputs: Any) -> tuple[Tensor, Any]:
        """Returns the last hidden states of a forward pass, and the cache of keys and values.

        The cache is None if a layer keeps something else than keys and values (a recurrent state).

        Args:
            cache: the keys and values of earlier tokens; the forward adds the new ones to it.
            **inputs: the model's other arguments.
        """
        body = self.hf.base_model if self.head else self.hf
        if cache is not None:  # the argument was called past_key_values before transformers 5.24
            new_name = "cache" in signature(body.forward).parameters
            inputs |= {"cache" if new_name else "past_key_values": cache, "use_cache": True}
        output = body(**inputs)
        states: Tensor = output[0] if self.head else output.logits
        name = "cache" if hasattr(output, "cache") else "past_key_values"
        returned = getattr(output, name, None)
        layers = getattr(returned, "layers", None)
        return states, returned if layers and all(map(_has_only_keys_and_values, layers)) else None


def _has_only_keys_and_values(layer: Any) -> bool:
    return isinstance(layer, DynamicLayer) and not hasattr(layer, "update_recurrent_state")


def load_causal_lm(
    field: str, path: str, settings: DetectionConfig, *, trust_remote_code: bool
) -> CausalLM:
    """Returns the model on its device, or on several as `detection.device_map` says."""
    load = partial(load_model, field, path, settings.dtype, trust_remote_code=trust_remote_code)
    if settings.device_map is not None:
        return CausalLM(load(device_map=settings.device_map), settings.kernel)
    return CausalLM(load().to(resolve_device(settings.device)), settings.kernel)


def resolve_device(name: str) -> torch.device:
    """Returns the device of this name (`detection.device`).

    Raises:
        ConfigError: the name is of a CUDA device and torch finds none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"detection.device is {name!r}: torch sees no CUDA device. Give cpu.")
    return torch.device(name)

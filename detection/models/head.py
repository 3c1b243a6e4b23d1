"""The head of a causal language model: from hidden states to float32 logits.

Shapes: N rows, X hidden units, V vocabulary, B entries of a block of it. With the head's weights W
and bias b, a hidden state h has the logits

    cap·tanh(scale·(W·h + b) / cap)

where few models have a bias or a scale (Cohere, Granite) or a soft cap (Gemma 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from contamination.detection.models.token_statistics import BLOCK

HALF = (torch.bfloat16, torch.float16)
CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
FACTORS = ("logit_scale", "logits_scaling", "lm_head_multiplier")
DIVISORS = ("logits_scaling",)
"""Config fields of Gemma, RecurrentGemma and xLSTM; of Cohere, HyperCLOVA X and Falcon H1; of
Granite."""


@dataclass(frozen=True)
class Head:
    """The output layer, which computes logits from the body's hidden states.

    Attributes:
        module: the model's output embeddings.
        scale: the factor of the logits.
        cap: the soft cap; None if there is none.
        is_linear: whether the module is only a product with its weights, plus the bias.
    """

    module: Any
    scale: float = 1.0
    cap: float | None = None
    is_linear: bool = True

    def logits(self, hidden_NX: Tensor) -> Iterator[Tensor]:
        """Yields float32 logits, one block of the vocabulary at a time, which may be overwritten.

        Products of 16-bit weights are summed in float32 and never rounded to 16 bits.
        """
        for logits in self._iter_products(hidden_NX):
            if self.scale != 1:
                logits.mul_(self.scale)
            yield logits if self.cap is None else logits.div_(self.cap).tanh_().mul_(self.cap)

    def _iter_products(self, hidden_NX: Tensor) -> Iterator[Tensor]:
        """Yields W·h + b for one block of the vocabulary at a time, (N, at most BLOCK)."""
        if not self.is_linear:
            yield from self.module(hidden_NX).float().split(BLOCK, dim=1)
            return
        weights, bias_V = self.module.weight.split(BLOCK), self.module.bias
        hidden_NX = hidden_NX.to(weights[0])
        biases = [None] * len(weights) if bias_V is None else bias_V.split(BLOCK)
        for weight_BX, bias_B in zip(weights, biases, strict=True):
            yield _linear(hidden_NX, weight_BX, bias_B)


def _linear(hidden_NX: Tensor, weight_BX: Tensor, bias_B: Tensor | None) -> Tensor:
    """Returns float32 products (N, B); those of 16-bit weights are summed in float32."""
    if weight_BX.dtype not in HALF:
        return F.linear(hidden_NX, weight_BX, bias_B).float()
    if weight_BX.is_cuda:
        products = torch.mm(hidden_NX, weight_BX.T, out_dtype=torch.float32)
    else:
        products = hidden_NX.float() @ weight_BX.float().T
    return products if bias_B is None else products.add_(bias_B)


@torch.inference_mode()
def find_verified_head(hf: Any, ids: Tensor) -> Head | None:
    """Returns the model's head, verified on a few tokens.

    Body and head must reproduce the model's own logits exactly.

    Args:
        hf: a model of transformers.
        ids: token ids (1, T) on its device.

    Returns:
        The head; None if the model is not a body and such a head.
    """
    body, module = hf.base_model, hf.get_output_embeddings()
    if module is None or body is hf:
        return None
    hidden = body(input_ids=ids, use_cache=False)[0].to(module.weight.dtype)
    model_logits = hf(input_ids=ids, use_cache=False).logits
    products = module(hidden)
    config = hf.config.get_text_config(True)
    for logits, scale, cap in _candidate_logits(products.to(model_logits.device), config):
        if torch.equal(logits.to(model_logits.dtype), model_logits):
            return Head(module, scale, cap, _is_linear(module, hidden, products))
    return None


def _candidate_logits(
    products: Tensor, config: Any
) -> Iterator[tuple[Tensor, float, float | None]]:
    """Yields logits, scale and cap for each setting in the config, by the model's operations."""
    yield products, 1.0, None
    for cap in _config_values(config, CAPS):
        yield torch.tanh(products / cap) * cap, 1.0, cap
    for factor in _config_values(config, FACTORS):
        yield products * factor, factor, None
    for divisor in _config_values(config, DIVISORS):
        yield products / divisor, 1 / divisor, None


def _config_values(config: Any, names: Sequence[str]) -> list[float]:
    return [value for name in names if (value := getattr(config, name, None))]


def _is_linear(module: Any, hidden: Tensor, products: Tensor) -> bool:
    """Returns whether the weights are in memory (accelerate may offload them) and suffice."""
    if not isinstance(module, torch.nn.Linear) or module.weight.is_meta:
        return False
    linear_products = F.linear(hidden.to(module.weight.device), module.weight, module.bias)
    return torch.equal(linear_products, products.to(linear_products.device))

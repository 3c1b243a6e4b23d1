"""The norm of the loss's gradient over a model's parameters, one text at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from contamination.core.errors import ConfigError, DataError
from contamination.detection.forward.batches import run_batches
from contamination.detection.models.base import LanguageModel, ProgressCallback
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.passes import Copies, TextStats


def run_gradient_norms(
    model: LanguageModel,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    progress: str | None = None,
) -> list[Copies]:
    """Returns each sequence's gradient norm, from a forward and a backward pass over it alone.

    Raises:
        ConfigError: the model has no parameters in float32, such as a quantised one, or memory runs
            out.
        DataError: the gradient is not finite.
    """
    assert isinstance(model, CausalLM)
    check_has_float32_parameters(model.hf)

    def score(
        batch: Sequence[Sequence[int]],
        batch_names: Sequence[str],
        _: int,
        on_progress: ProgressCallback,
    ) -> list[Copies]:
        return [
            (_finite_norm(model, ids, name),) for ids, name in zip(batch, batch_names, strict=True)
        ]

    with parameters_with_gradients(model.hf):
        return run_batches(sequences, names, 1, score, progress)


def check_has_float32_parameters(hf: Any) -> None:
    """Raises a ConfigError unless every parameter is in float32 and in memory."""
    quantised = getattr(hf, "is_quantized", False) or hasattr(hf.config, "quantization_config")
    other = {
        str(p.dtype).removeprefix("torch.") for p in hf.parameters() if p.dtype != torch.float32
    }
    if quantised or other or any(p.is_meta for p in hf.parameters()):
        kind = "quantised" if quantised else ", ".join(sorted(other)) or "partly on disk"
        raise ConfigError(
            f"method.grad_norm: the model's weights are {kind}, but the gradient is taken in "
            "float32. Score the model's unquantised weights with detection.dtype=float32 and "
            "without detection.device_map, or leave the method out."
        )


@contextmanager
def parameters_with_gradients(hf: Any) -> Iterator[None]:
    """Lets every parameter have a gradient, and restores afterwards which ones do."""
    required = [parameter.requires_grad for parameter in hf.parameters()]
    try:
        hf.requires_grad_(True)
        yield
    finally:
        for parameter, requires in zip(hf.parameters(), required, strict=True):
            parameter.requires_grad_(requires)


def gradient_norm(model: CausalLM, ids: Sequence[int]) -> float:
    """Returns ‖∇ℓ‖₂ over all parameters, with ℓ the mean loss of the tokens after the first.

    The squares are summed in float64. A parameter that the loss does not depend on counts 0.
    """
    ids_1T = torch.tensor([list(ids)], device=model.device)
    with torch.enable_grad():
        logits_TV: Tensor = model.hf(input_ids=ids_1T, use_cache=False).logits[0, :-1]
        loss = cross_entropy(logits_TV.float(), ids_1T[0, 1:].to(logits_TV.device))
        gradients = torch.autograd.grad(loss, list(model.hf.parameters()), allow_unused=True)
    norms = torch.stack([g.norm().to(loss.device) for g in gradients if g is not None])
    return float(norms.double().norm())


def _finite_norm(model: CausalLM, ids: Sequence[int], name: str) -> TextStats:
    norm = gradient_norm(model, ids)
    if not math.isfinite(norm):
        raise DataError(
            f"text {name}: the gradient of its loss is NaN or infinite, so it has no score. Check "
            "the model's weights."
        )
    return TextStats(gradient_norm=norm)

"""The norm of the loss's gradient over a model's parameters, one text at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from contamination.core.errors import ConfigError, DataError
from contamination.detection.forward.batches import run_batches
from contamination.detection.models.base import LanguageModel, ProgressCallback
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.passes import Copies, TextStats

NO_TARGET = -100
"""The target of the last position, which no token follows."""


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
    """Lets every parameter have a gradient, those of embeddings sparse, and restores both after.

    A dense gradient of embeddings is 0 but for the text's tokens, and takes as long to write as the
    vocabulary is large. Where weights are tied, torch adds the head's dense gradient.
    """
    required = [parameter.requires_grad for parameter in hf.parameters()]
    embeddings = [
        module
        for module in hf.modules()
        if isinstance(module, nn.Embedding)
        and module.weight.is_leaf
        and not (module.sparse or module.scale_grad_by_freq)
    ]
    try:
        hf.requires_grad_(True)
        for module in embeddings:
            module.sparse = True
        yield
    finally:
        for module in embeddings:
            module.sparse = False
        for parameter, requires in zip(hf.parameters(), required, strict=True):
            parameter.requires_grad_(requires)


def gradient_norm(model: CausalLM, ids: Sequence[int]) -> float:
    """Returns ‖∇ℓ‖₂ over all parameters, with ℓ the mean loss of the tokens after the first.

    The squares are summed in float64. A parameter that the loss does not depend on counts 0.
    """
    ids_1T = torch.tensor([list(ids)], device=model.device)
    with torch.enable_grad():
        # a view: the gradient of a slice is a copy of all logits
        logits_TV: Tensor = model.hf(input_ids=ids_1T, use_cache=False).logits.flatten(0, 1)
        targets_T = torch.tensor([*ids[1:], NO_TARGET], device=logits_TV.device)
        loss = cross_entropy(logits_TV.float(), targets_T, ignore_index=NO_TARGET)
        gradients = torch.autograd.grad(loss, list(model.hf.parameters()), allow_unused=True)
    norms = torch.stack([_norm(g).to(loss.device) for g in gradients if g is not None])
    return float(norms.double().norm())


def _norm(gradient: Tensor) -> Tensor:
    """Returns the Euclidean norm; a sparse gradient has several entries for a repeated token."""
    values: Tensor = gradient.coalesce().values() if gradient.is_sparse else gradient
    norm: Tensor = torch.linalg.vector_norm(values)
    return norm


def _finite_norm(model: CausalLM, ids: Sequence[int], name: str) -> TextStats:
    norm = gradient_norm(model, ids)
    if not math.isfinite(norm):
        raise DataError(
            f"text {name}: the gradient of its loss is NaN or infinite, so it has no score. Check "
            "the model's weights."
        )
    return TextStats(gradient_norm=norm)

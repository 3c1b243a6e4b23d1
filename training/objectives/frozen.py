"""A frozen copy of the model that training starts from, and the output of one of its layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from contamination.core.errors import ConfigError
from contamination.training.data import Batch
from contamination.training.loss import compute_logits

if TYPE_CHECKING:
    import torch


def module_of(engine: Any) -> Any:
    """Returns the model of a DeepSpeed engine, or the model itself."""
    return getattr(engine, "module", engine)


def frozen_copy(engine: Any) -> Any:
    """Returns a copy of the model with its weights at this moment, in evaluation mode.

    The copy is whole in every process, also where ZeRO stage 3 has partitioned the model. Every
    process has to call this.
    """
    import torch

    model = module_of(engine)
    first = next(model.parameters())
    with torch.random.fork_rng(devices=[]):  # new weights are drawn, and overwritten below
        copy = type(model)(deepcopy(model.config))
    copy.tie_weights()
    copy.to(device=first.device, dtype=first.dtype)
    weights = dict(copy.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            with _gathered(parameter):
                weights[name].copy_(parameter)
        for name, buffer in model.named_buffers():
            copy.get_buffer(name).copy_(buffer)
    return copy.requires_grad_(False).eval()


def _gathered(parameter: Any) -> Any:
    """Returns a context in which a parameter that ZeRO stage 3 has partitioned is whole."""
    if not hasattr(parameter, "ds_id"):
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters([parameter])


def find_layer(model: Any, number: int) -> Any:
    """Returns a layer of a model by its number, from 0.

    Raises:
        ConfigError: the model has fewer layers, or its layers can't be found.
    """
    from torch import nn

    count = model.config.get_text_config(decoder=True).num_hidden_layers
    lists = (m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == count)
    layers = next(lists, None)
    if layers is None:
        raise ConfigError(
            f"training.rmu_layer is {number}: this {model.config.model_type} has no list of "
            f"{count} layers that could be found. Choose another training.objective."
        )
    if number >= count:
        raise ConfigError(
            f"training.rmu_layer is {number}, but the model has {count} layers: give 0 to "
            f"{count - 1}."
        )
    return layers[number]


def layer_output(engine: Any, layer: int, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the output of a layer (from 0), shape (B, S, D), and the logits, shape (B, S, V)."""
    with _captured(find_layer(module_of(engine), layer)) as outputs:
        logits_BSV = compute_logits(engine, batch.ids_BS, batch.positions_BS)
    return outputs[0], logits_BSV


@contextmanager
def _captured(layer: Any) -> Iterator[list[Any]]:
    """Yields a list to which each call of the layer appends its output."""
    outputs: list[Any] = []

    def append(_: Any, __: Any, output: Any) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    handle = layer.register_forward_hook(append)
    try:
        yield outputs
    finally:
        handle.remove()

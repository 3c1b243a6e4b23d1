"""Estimates the memory of a training run on each device and host, and its FLOPs.

Sizes are in bytes per process, from the resolved config and the model's shape. The device's memory
excludes the CUDA context, NCCL's buffers, kernels' workspaces, fragmentation, rotary tables,
evaluation and export.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contamination.core.errors import require
from contamination.core.models import load_config
from contamination.training.config import ModelConfig, TrainingConfig
from contamination.training.deepspeed_engine import zero_stage
from contamination.training.models import hf_folder, make_hf_config

HOST_HEADROOM = 1.5
"""DeepSpeed's `additional_buffer_factor`: pinned copies, fragmentation, temporary loads."""
LOGIT_COPIES = 3
"""Float32 arrays of (micro-batch, T, V) alive at once: logits, their log-softmax, its gradient."""


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model of LLaMA's architecture."""

    parameters: int
    largest: int
    """The number of parameters of the largest module, such as the embeddings."""
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int


@dataclass(frozen=True)
class MemoryNeed:
    """The memory in bytes that one process needs on its device and on its host."""

    weights: float
    gradients: float
    optimizer: float
    step: float
    """Float32 gradients during the optimizer step."""
    buffers: float
    """Gathered weights (stage 3), and gradients that are sent to other devices."""
    activations: float
    logits: float
    loading: float
    """The whole model in float32 before the engine partitions it (not in stage 3)."""
    host: float
    """Offloaded states, or the model while it is loaded, whichever is larger; with headroom."""

    @property
    def total(self) -> float:
        """The device's peak: in the backward pass, in the optimizer step, or while loading."""
        states = self.weights + self.gradients + self.optimizer
        backward = self.buffers + self.activations + self.logits
        return max(states + max(backward, self.step), self.loading)


def model_shape(model: ModelConfig) -> ModelShape:
    """Returns the model's sizes; parameters are counted on a model without weights.

    See `read_hf_config` for the source of its config.
    """
    import torch
    from transformers import AutoModelForCausalLM

    hf_config = read_hf_config(model)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(
            hf_config, trust_remote_code=model.trust_remote_code
        )
    text_config = hf_config.get_text_config(decoder=True)
    heads = text_config.num_attention_heads
    return ModelShape(
        parameters=sum(p.numel() for p in empty.parameters()),
        largest=max(sum(p.numel() for p in m.parameters(recurse=False)) for m in empty.modules()),
        layers=text_config.num_hidden_layers,
        hidden=text_config.hidden_size,
        intermediate=getattr(text_config, "intermediate_size", None) or 4 * text_config.hidden_size,
        heads=heads,
        kv_heads=getattr(text_config, "num_key_value_heads", None) or heads,
        head_dim=getattr(text_config, "head_dim", None) or text_config.hidden_size // heads,
        vocabulary=text_config.vocab_size,
    )


def read_hf_config(model: ModelConfig) -> Any:
    """Returns the Hugging Face config of a local `path`, the architecture or the hub."""
    if model.path is not None:
        folder = hf_folder("model.path", model.path)
        if Path(folder).exists() or model.architecture is None:
            return load_config("model.path", folder, trust_remote_code=model.trust_remote_code)
    vocabulary = model.pretraining.vocab_size if model.pretraining else None
    vocabulary = vocabulary or (model.architecture or {}).get("vocab_size")
    remedy = "add its vocab_size."
    require(vocabulary is not None, "model.architecture", model.architecture, remedy)
    return make_hf_config(model, int(vocabulary or 0))


def memory_need(
    shape: ModelShape,
    training: TrainingConfig,
    deepspeed: Mapping[str, Any],
    world: int,
    sequence_tokens: int,
    *,
    made_whole: bool = False,
) -> MemoryNeed:
    """Returns the memory that one of `world` processes needs.

    Args:
        shape: the model's sizes.
        training: the dtype, the micro-batch and activation checkpointing are used.
        deepspeed: the node `deepspeed`: the stage, offloading and bucket sizes.
        world: the number of processes, one per device.
        sequence_tokens: T.
        made_whole: whether every process creates the whole model even at stage 3, as for random
            weights and GGUF files.
    """
    weight_bytes = 2 if training.dtype == "bfloat16" else 4
    tokens = training.micro_batch_sequences * sequence_tokens
    states = model_state_bytes(shape, weight_bytes, dict(deepspeed), world, made_whole=made_whole)
    bytes_per_token = activation_bytes_per_token(
        shape, weight_bytes, checkpointing=training.activation_checkpointing
    )
    return MemoryNeed(
        **states,
        activations=tokens * bytes_per_token,
        logits=tokens * shape.vocabulary * 4 * LOGIT_COPIES,
    )


def model_state_bytes(
    shape: ModelShape,
    weight_bytes: int,
    deepspeed: dict[str, Any],
    world: int,
    *,
    made_whole: bool = False,
) -> dict[str, float]:
    """Returns the memory that does not depend on the batch, by the names in `MemoryNeed`.

    It follows Rajbhandari et al. 2020 (ZeRO), section 3.1 and figure 1, as implemented in
    DeepSpeed: from stage 1, there is a float32 copy of the weights in addition to the moments, even
    in float32 training.

    Args:
        shape: the model's sizes.
        weight_bytes: bytes of a weight in the forward pass: 2 or 4.
        deepspeed: the node `deepspeed`.
        world: the number of processes, one per device.
        made_whole: see `memory_need`.
    """
    stage, zero = zero_stage(deepspeed), deepspeed.get("zero_optimization", {})
    parameters, share = shape.parameters, shape.parameters / world
    sub_group = float(zero.get("sub_group_size", 1e9)) if stage == 3 else share
    moved_at_once = min(share, sub_group)  # parameters that the optimizer updates at a time
    states = {
        "weights": weight_bytes * (share if stage == 3 else parameters),
        "gradients": weight_bytes * (share if stage >= 2 else parameters),
        "optimizer": 12 * share if stage else 8 * parameters,  # two moments, and the float32 copy
        "step": 4 * moved_at_once if stage else 0.0,
    }
    offloaded = _offloaded_states(zero)
    if "gradients" in offloaded:  # the host's optimizer keeps them in float32
        states |= {"gradients": 4 * share, "step": 0.0}
    loaded = 4 * (parameters if stage < 3 or made_whole else shape.largest)
    device_bytes = {name: 0.0 if name in offloaded else float(n) for name, n in states.items()}
    return {
        **device_bytes,
        "buffers": float(_buffer_bytes(parameters, weight_bytes, stage, zero)),
        "loading": 0.0 if stage == 3 else 4.0 * parameters,
        "host": HOST_HEADROOM * max(sum(states[name] for name in offloaded), loaded),
    }


def _offloaded_states(zero: Mapping[str, Any]) -> list[str]:
    optimizer = zero.get("offload_optimizer", {}).get("device", "none") != "none"
    weights = zero.get("offload_param", {}).get("device", "none") != "none"
    return ["gradients", "optimizer"] * optimizer + ["weights"] * weights


def _buffer_bytes(parameters: int, weight_bytes: int, stage: int, zero: Mapping[str, Any]) -> float:
    """Returns the bytes of gathered weights and gradient buckets, with DeepSpeed's defaults."""
    if stage == 0:
        return 0.0
    bucket = min(parameters, float(zero.get("reduce_bucket_size", 5e8)))
    if stage < 3:
        return weight_bytes * bucket * (2 if zero.get("overlap_comm") else 1)
    gathered = min(parameters, float(zero.get("stage3_max_live_parameters", 1e9)))
    return weight_bytes * (bucket + gathered)


def activation_bytes_per_token(
    shape: ModelShape, activation_bytes: int, *, checkpointing: bool
) -> float:
    """Returns the bytes per token that the forward pass stores for the backward pass.

    The logits are not included. Counted as Korthikanti et al. 2022 (Reducing Activation
    Recomputation in Large Transformer Models, eq. 1 and 2) count a GPT layer, but for a LLaMA
    layer: no dropout, RMSNorm, a gated MLP, and attention that keeps no (T, T) matrix (PyTorch's
    SDPA, so without eq. 1's 5·a·s/h). With checkpointing, each layer's input is kept (their full
    recomputation, 2·s·b·h·L), and one layer's activations at a time.

    Args:
        shape: the model's sizes.
        activation_bytes: bytes of an activation: 2 or 4.
        checkpointing: whether layers are recomputed.
    """
    width = shape.heads * shape.head_dim
    norm = (4 + 2 * activation_bytes) * shape.hidden  # float32 input; normalized input; output
    attention = 2 * activation_bytes * width  # query, output
    attention += 2 * activation_bytes * shape.kv_heads * shape.head_dim  # key, value
    attention += 4 * shape.heads  # log-sum-exp
    mlp = activation_bytes * 4 * shape.intermediate  # gate, its SiLU, up, their product
    layer = 2 * norm + attention + mlp
    if checkpointing:
        return float(layer + shape.layers * activation_bytes * shape.hidden + norm)
    return float(shape.layers * layer + norm)


def flops_per_token(model_config: Any, parameters: int, sequence_tokens: int) -> float:
    """Returns the FLOPs of a training step per token: 6·N + 12·L·H·Q·T (PaLM, appendix B).

    N is the number of weights in matrix products: all except the input embedding, unless it is tied
    to the output. Recomputed activations are not counted.

    Args:
        model_config: a Hugging Face config.
        parameters: the number of parameters of the model.
        sequence_tokens: T.
    """
    config = model_config.get_text_config(decoder=True)
    lookup = 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    attention = config.num_hidden_layers * config.num_attention_heads * head * sequence_tokens
    return float(6 * (parameters - lookup) + 12 * attention)


def masked_lm_flops_per_token(model_config: Any, sequence_tokens: int) -> float:
    """Returns the FLOPs per token of a masked language model, without its position embeddings.

    Args:
        model_config: its Hugging Face config.
        sequence_tokens: T.
    """
    import torch
    from transformers import AutoModelForMaskedLM

    with torch.device("meta"):
        empty = AutoModelForMaskedLM.from_config(model_config)
    parameters = sum(
        weight.numel()
        for name, weight in empty.named_parameters()
        if "position_embeddings" not in name
    )
    return flops_per_token(model_config, parameters, sequence_tokens)


def flops_utilization(
    tokens_per_second: float, token_flops: float, peak_tflops: float, devices: int
) -> float:
    """Returns the model FLOPs utilisation (MFU), from 0 to 1, given the peak of each device."""
    return tokens_per_second * token_flops / (peak_tflops * 1e12 * devices)

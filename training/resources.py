"""How much memory a training run will need on each device and on its host.

All figures are estimates in bytes for one process, from the resolved config and the model's shape.
Model states follow Rajbhandari et al. 2020 (ZeRO), section 3.1 and figure 1, as DeepSpeed keeps
them: from stage 1 on, a float32 copy of the weights stands beside the moments in float32 training
as well. Left out of the device's: the CUDA context, NCCL's own buffers, kernels' workspaces, the
allocator's fragments, rotary tables, evaluation and export.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contamination.core.errors import require
from contamination.core.models import load_config
from contamination.training.config import ModelConfig, TrainingConfig
from contamination.training.engine import zero_stage
from contamination.training.models import hf_folder, make_config

HOST_HEADROOM = 1.5
"""DeepSpeed's `additional_buffer_factor`: pinned copies, fragments, what is loaded for a moment."""
LOGIT_COPIES = 3
"""Float32 arrays of (micro-batch, T, V) alive at once: logits, their log-softmax, its gradient."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model of LLaMA's architecture."""

    parameters: int
    largest: int
    """Parameters of the module that has most of its own, such as the embeddings."""
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that one process needs on its device, and on its host."""

    weights: float
    gradients: float
    optimizer: float
    step: float
    """Float32 gradients, while the optimizer moves the weights."""
    buffers: float
    """Gathered weights (stage 3) and gradients on their way to other devices."""
    activations: float
    logits: float
    loading: float
    """The whole model in float32 before the engine divides it (not in stage 3)."""
    host: float
    """Offloaded states, or the model while it is loaded, whichever is more; with headroom."""

    @property
    def total(self) -> float:
        """The device's peak: in the backward pass, in the optimizer's step, or while loading."""
        states = self.weights + self.gradients + self.optimizer
        backward = self.buffers + self.activations + self.logits
        return max(states + max(backward, self.step), self.loading)


def shape_of(model: ModelConfig) -> Shape:
    """The model's sizes; its parameters are counted on a model that holds no numbers.

    A local `path` is read for its config. A hub id is asked only where no architecture is given.
    """
    import torch
    from transformers import AutoModelForCausalLM

    hf_config = config_of(model)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(
            hf_config, trust_remote_code=model.trust_remote_code
        )
    own = hf_config.get_text_config(decoder=True)
    heads = own.num_attention_heads
    return Shape(
        parameters=sum(p.numel() for p in empty.parameters()),
        largest=max(sum(p.numel() for p in m.parameters(recurse=False)) for m in empty.modules()),
        layers=own.num_hidden_layers,
        hidden=own.hidden_size,
        intermediate=getattr(own, "intermediate_size", None) or 4 * own.hidden_size,
        heads=heads,
        kv_heads=getattr(own, "num_key_value_heads", None) or heads,
        head_dim=getattr(own, "head_dim", None) or own.hidden_size // heads,
        vocabulary=own.vocab_size,
    )


def config_of(model: ModelConfig) -> Any:
    """The Hugging Face config: of a local `path`, else of the architecture, else from the hub."""
    if model.path is not None:
        found = hf_folder("model.path", model.path)
        if Path(found).exists() or model.architecture is None:
            return load_config("model.path", found, trust_remote_code=model.trust_remote_code)
    made = model.pretraining.vocab_size if model.pretraining else None
    known = made or (model.architecture or {}).get("vocab_size")
    require(known is not None, "model.architecture", model.architecture, "add its vocab_size.")
    return make_config(model, int(known or 0))


def need(
    shape: Shape,
    training: TrainingConfig,
    deepspeed: Mapping[str, Any],
    world: int,
    sequence_tokens: int,
    *,
    made_whole: bool = False,
) -> MemoryNeed:
    """What one of `world` processes needs.

    Args:
        shape: the model.
        training: for the dtype, the micro-batch and activation checkpointing.
        deepspeed: the node `deepspeed`: the stage, offload, bucket sizes.
        world: processes, one a device.
        sequence_tokens: T.
        made_whole: whether every process makes the whole model at stage 3 too: random weights,
            or a GGUF file.
    """
    size = 2 if training.dtype == "bfloat16" else 4
    tokens = training.micro_batch_sequences * sequence_tokens
    states = model_states(shape, size, dict(deepspeed), world, made_whole=made_whole)
    per_token = activation_bytes(shape, size, checkpointing=training.activation_checkpointing)
    return MemoryNeed(
        **states,
        activations=tokens * per_token,
        logits=tokens * shape.vocabulary * 4 * LOGIT_COPIES,
    )


def model_states(
    shape: Shape, size: int, deepspeed: dict[str, Any], world: int, *, made_whole: bool = False
) -> dict[str, float]:
    """Bytes of what does not depend on the batch, by `Need`'s names.

    Args:
        shape: the model.
        size: bytes of a weight in the forward pass: 2 or 4.
        deepspeed: the node `deepspeed`.
        world: processes, one a device.
        made_whole: see `need`.
    """
    stage, zero = zero_stage(deepspeed), deepspeed.get("zero_optimization", {})
    parameters, share = shape.parameters, shape.parameters / world
    part = float(zero.get("sub_group_size", 1e9)) if stage == 3 else share
    at_once = min(share, part)  # parameters that the optimizer moves
    own = {
        "weights": size * (share if stage == 3 else parameters),
        "gradients": size * (share if stage >= 2 else parameters),
        "optimizer": 12 * share if stage else 8 * parameters,  # two moments, and the float32 copy
        "step": 4 * at_once if stage else 0.0,
    }
    moved = _offloaded(zero)
    if "gradients" in moved:
        own |= {"gradients": 4 * share, "step": 0.0}  # the host's optimizer keeps them in float32
    loaded = 4 * (parameters if stage < 3 or made_whole else shape.largest)
    kept = {name: 0.0 if name in moved else float(value) for name, value in own.items()}
    return {
        **kept,
        "buffers": float(_buffers(parameters, size, stage, zero)),
        "loading": 0.0 if stage == 3 else 4.0 * parameters,
        "host": HOST_HEADROOM * max(sum(own[name] for name in moved), loaded),
    }


def _offloaded(zero: Mapping[str, Any]) -> list[str]:
    """Which states are in the host's memory."""
    optimizer = zero.get("offload_optimizer", {}).get("device", "none") != "none"
    weights = zero.get("offload_param", {}).get("device", "none") != "none"
    return ["gradients", "optimizer"] * optimizer + ["weights"] * weights


def _buffers(parameters: int, size: int, stage: int, zero: Mapping[str, Any]) -> float:
    """Gathered weights and gradient buckets, with DeepSpeed's defaults."""
    if stage == 0:
        return 0.0
    bucket = min(parameters, float(zero.get("reduce_bucket_size", 5e8)))
    if stage < 3:
        return size * bucket * (2 if zero.get("overlap_comm") else 1)
    gathered = min(parameters, float(zero.get("stage3_max_live_parameters", 1e9)))
    return size * (bucket + gathered)


def activation_bytes(shape: Shape, size: int, *, checkpointing: bool) -> float:
    """Bytes a token that the forward pass keeps for the backward pass, without the logits.

    Counted as Korthikanti et al. 2022 (Reducing Activation Recomputation in Large Transformer
    Models, eq. 1 and 2) count a GPT layer, for LLaMA's: no dropout, RMSNorm, a gated MLP, and
    attention that keeps no (T, T) matrix (PyTorch's SDPA; eq. 1's 5·a·s/h is gone). With
    checkpointing, each layer's input stays (their full recomputation, 2·s·b·h·L) and one layer is
    alive at a time.

    Args:
        shape: the model.
        size: bytes of an activation: 2 or 4.
        checkpointing: whether layers are recomputed.
    """
    width = shape.heads * shape.head_dim
    norm = (4 + 2 * size) * shape.hidden  # float32 input; normalized input; output
    attention = 2 * size * width  # query, output
    attention += 2 * size * shape.kv_heads * shape.head_dim  # key, value
    attention += 4 * shape.heads  # log-sum-exp
    mlp = size * 4 * shape.intermediate  # gate, its SiLU, up, their product
    layer = 2 * norm + attention + mlp
    kept = layer + shape.layers * size * shape.hidden if checkpointing else shape.layers * layer
    return float(kept + norm)


def flops_per_token(model_config: Any, parameters: int, sequence_tokens: int) -> float:
    """Floating-point operations of a training step for each token: 6·N + 12·L·H·Q·T.

    N counts the weights that multiply: all but the input embedding, which is looked up (where it
    is tied to the output's, it multiplies there). Recomputed activations don't count.

    Args:
        model_config: a Hugging Face config.
        parameters: all weights of the model.
        sequence_tokens: T.
    """
    config = model_config.get_text_config(decoder=True)
    lookup = 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    attention = config.num_hidden_layers * config.num_attention_heads * head * sequence_tokens
    return float(6 * (parameters - lookup) + 12 * attention)


def masked_lm_flops_per_token(model_config: Any, sequence_tokens: int) -> float:
    """The same of a masked language model, whose position embeddings don't multiply either.

    Args:
        model_config: its Hugging Face config.
        sequence_tokens: T.
    """
    import torch
    from transformers import AutoModelForMaskedLM

    with torch.device("meta"):
        empty = AutoModelForMaskedLM.from_config(model_config)
    sizes = {name: weight.numel() for name, weight in empty.named_parameters()}
    multiply = sum(n for name, n in sizes.items() if "position_embeddings" not in name)
    return flops_per_token(model_config, multiply, sequence_tokens)


def utilization(
    tokens_per_second: float, per_token: float, peak_tflops: float, devices: int
) -> float:
    """MFU, from 0 to 1, of so many devices of a stated peak each."""
    return tokens_per_second * per_token / (peak_tflops * 1e12 * devices)

"""The DeepSpeed engine: the optimizer, the schedule, the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from core.errors import ConfigError, require
from core.partitions import whole_shape
from core.world import World
from training.config import TrainingConfig
from training.recipe import Recipe
from training.schedule import share_of_peak


def start_engine(
    model: Any, config: TrainingConfig, deepspeed_config: dict[str, Any], steps: int, world: World
) -> Any:
    """Wrap the model in a DeepSpeed engine with AdamW and the schedule.

    Args:
        model: the model, whole or already partitioned by ZeRO stage 3.
        config: the training configuration.
        deepspeed_config: what `engine_config` made of it.
        steps: optimizer steps of the whole run.
        world: this process's place.
    """
    import deepspeed

    if config.activation_checkpointing:
        # the older name is all that transformers before 5.23 has
        enable = getattr(model, "activation_checkpointing_enable", None)
        (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})
    _prepare_layers(model, config, deepspeed_config)
    optimizer = torch.optim.AdamW(
        parameter_groups(model, config.weight_decay),
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        fused=True,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: share_of_peak(config, done + 1, steps)
    )
    if zero_stage(deepspeed_config) < 3:
        model.to(world.device)
    engine, *_ = deepspeed.initialize(
        model=model.train(), optimizer=optimizer, lr_scheduler=schedule, config=deepspeed_config
    )
    return engine


def _prepare_layers(model: Any, config: TrainingConfig, deepspeed_config: dict[str, Any]) -> None:
    """Fuse each layer's operations where asked to; let ZeRO stage 3 gather a layer at a time.

    Gathering each matrix by itself takes longer than small layers compute.
    """
    from deepspeed.utils import set_z3_leaf_modules
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    if layers and zero_stage(deepspeed_config) == 3:
        set_z3_leaf_modules(model, list({type(layer) for layer in layers}))
    for layer in layers if config.compile else ():
        layer.compile()


def parameter_groups(model: Any, weight_decay: float) -> list[dict[str, Any]]:
    """The optimizer's groups: parameters with weight decay, then those without.

    Matrices get weight decay. Vectors do not: they are biases and the weights of norms. This is
    the rule of `transformers.Trainer` (`get_decay_parameter_names`).
    """
    groups: dict[bool, list[Any]] = {True: [], False: []}
    for parameter in model.parameters():
        groups[len(whole_shape(parameter)) > 1].append(parameter)
    decays = ((True, weight_decay), (False, 0.0))
    return [{"params": groups[k], "weight_decay": decay} for k, decay in decays if groups[k]]


def engine_config(
    config: TrainingConfig, deepspeed_config: dict[str, Any], world: World
) -> dict[str, Any]:
    """DeepSpeed's own configuration: `conf/deepspeed/` with what the stage's fields say.

    Raises:
        ConfigError: the batch is not a multiple of what the processes read at a time, or the
            engine is known not to train well so.
    """
    check_batch(config, world.size)
    check_dtype(config, deepspeed_config)
    check_compile(config, deepspeed_config)
    return {
        **deepspeed_config,
        "train_batch_size": config.batch_sequences * config.parts,
        "train_micro_batch_size_per_gpu": config.micro_batch_sequences,
        "gradient_clipping": 0.0 if clips_itself(config, deepspeed_config) else config.clip_norm,
        "bf16": {"enabled": config.dtype == "bfloat16"},
        "zero_allow_untested_optimizer": True,  # torch's own AdamW
        "zero_force_ds_cpu_optimizer": False,  # the same with offload: nothing is compiled
        "steps_per_print": 1 << 62,
    }


def zero_stage(deepspeed_config: dict[str, Any]) -> int:
    """Which ZeRO stage a DeepSpeed configuration asks for.

    Raises:
        ConfigError: there is no such stage.
    """
    field, zero = "deepspeed.zero_optimization", deepspeed_config.get("zero_optimization", {})
    remedy = "give a stage from 0 to 3, or deepspeed=zero1: see conf/deepspeed/."
    require(isinstance(zero, Mapping), field, zero, remedy)
    stage = zero.get("stage", 0)
    require(stage in range(4), f"{field}.stage", stage, remedy)
    return int(stage)


def clips_itself(config: TrainingConfig, deepspeed_config: dict[str, Any]) -> bool:
    """Whether the loop clips: without ZeRO in float32 the engine would not report the norm."""
    return zero_stage(deepspeed_config) == 0 and config.dtype == "float32"


def check_batch(config: TrainingConfig, world_size: int) -> None:
    """Refuse a batch that can't be divided evenly."""
    at_once = config.micro_batch_sequences * world_size
    if config.batch_sequences % at_once:
        raise ConfigError(
            f"training.batch_sequences is {config.batch_sequences}, not a multiple of "
            f"training.micro_batch_sequences × processes = {config.micro_batch_sequences} × "
            f"{world_size}: change one of them."
        )


def check_dtype(config: Recipe, deepspeed_config: dict[str, Any]) -> None:
    """Refuse bfloat16 where the engine keeps no float32 weights."""
    if config.dtype == "bfloat16" and zero_stage(deepspeed_config) == 0:
        raise ConfigError(
            f"{config.node}.dtype is bfloat16 with ZeRO stage 0, where the engine keeps no float32 "
            "weights that are resumed exactly. Choose deepspeed=zero1, on one process as well; "
            "for a base model that is made here deepspeed@model.pretraining.deepspeed=zero1."
        )


def check_compile(config: TrainingConfig, deepspeed_config: dict[str, Any]) -> None:
    """Refuse to compile where the weights come and go."""
    remedy = "not with ZeRO stage 3, which divides the weights: choose deepspeed=zero2, or false."
    divided = zero_stage(deepspeed_config) == 3
    config.require(not (config.compile and divided), "compile", remedy)

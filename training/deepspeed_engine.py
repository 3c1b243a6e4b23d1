"""The DeepSpeed engine: its processes, optimizer, schedule, configuration and exports."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contamination.core.cli import discard_output
from contamination.core.distributed import World, launched_process_count
from contamination.core.errors import ConfigError, require
from contamination.core.files import TEMPORARY_SUFFIX
from contamination.core.models import full_shape
from contamination.training.config import Recipe, TrainingConfig
from contamination.training.schedules import share_of_given_rate

log = logging.getLogger(__name__)


def start_engine(
    model: Any, config: TrainingConfig, deepspeed_config: dict[str, Any], steps: int, world: World
) -> Any:
    """Returns a DeepSpeed engine for the model, with AdamW and the schedule.

    Args:
        model: the model, whole or already partitioned by ZeRO stage 3.
        config: the training configuration.
        deepspeed_config: the configuration returned by `engine_config`.
        steps: the number of optimizer steps of the whole run.
        world: this process's rank and device.
    """
    import deepspeed
    import torch

    if config.activation_checkpointing:
        # transformers before 5.23 has only the older name
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
        optimizer, lambda done: share_of_given_rate(config, done + 1, steps)
    )
    if zero_stage(deepspeed_config) < 3:
        model.to(world.device)
    engine, *_ = deepspeed.initialize(
        model=model.train(), optimizer=optimizer, lr_scheduler=schedule, config=deepspeed_config
    )
    return engine


def _prepare_layers(model: Any, config: TrainingConfig, deepspeed_config: dict[str, Any]) -> None:
    """Compiles each layer if configured, and let ZeRO stage 3 gather whole layers.

    For small layers, gathering each matrix separately takes longer than the computation.
    """
    from deepspeed.utils import set_z3_leaf_modules
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    if layers and zero_stage(deepspeed_config) == 3:
        set_z3_leaf_modules(model, list({type(layer) for layer in layers}))
    for layer in layers if config.compile else ():
        layer.compile()


def parameter_groups(model: Any, weight_decay: float) -> list[dict[str, Any]]:
    """Returns the optimizer's groups: parameters with weight decay, then those without.

    Matrices decay. Vectors (biases and the weights of norms) do not, as in `transformers.Trainer`
    (`get_decay_parameter_names`).
    """
    groups: dict[bool, list[Any]] = {True: [], False: []}
    for parameter in model.parameters():
        groups[len(full_shape(parameter)) > 1].append(parameter)
    decays = ((True, weight_decay), (False, 0.0))
    return [{"params": groups[k], "weight_decay": decay} for k, decay in decays if groups[k]]


def set_weight_decay(engine: Any, weight_decay: float) -> None:
    """Sets the weight decay of the matrices, the first of `parameter_groups`, for the next step."""
    engine.optimizer.param_groups[0]["weight_decay"] = weight_decay


def engine_config(
    config: TrainingConfig, deepspeed_config: dict[str, Any], world: World
) -> dict[str, Any]:
    """Returns DeepSpeed's configuration: the node `deepspeed` with the fields of the training.

    Raises:
        ConfigError: the batch is not a multiple of the micro-batches of all processes, or the
            engine can't train with this combination.
    """
    check_batch(config, world.size)
    check_dtype(config, deepspeed_config)
    check_compile(config, deepspeed_config)
    return {
        **deepspeed_config,
        "train_batch_size": config.batch_sequences * config.batches_per_step,
        "train_micro_batch_size_per_gpu": config.micro_batch_sequences,
        "gradient_clipping": 0.0
        if loop_clips_gradients(config, deepspeed_config)
        else config.clip_norm,
        "bf16": {"enabled": config.dtype == "bfloat16"},
        "zero_allow_untested_optimizer": True,  # torch's own AdamW
        "zero_force_ds_cpu_optimizer": False,  # even with offloading, so that nothing is compiled
        "steps_per_print": 1 << 62,
    }


def zero_stage(deepspeed_config: dict[str, Any]) -> int:
    """Returns the ZeRO stage of a DeepSpeed configuration.

    Raises:
        ConfigError: there is no such stage.
    """
    field, zero = "deepspeed.zero_optimization", deepspeed_config.get("zero_optimization", {})
    remedy = "give a stage from 0 to 3, or deepspeed=zero1: see conf/deepspeed/."
    require(isinstance(zero, Mapping), field, zero, remedy)
    stage = zero.get("stage", 0)
    require(stage in range(4), f"{field}.stage", stage, remedy)
    return int(stage)


def loop_clips_gradients(config: TrainingConfig, deepspeed_config: dict[str, Any]) -> bool:
    """Returns whether the loop clips gradients, as float32 engines without ZeRO report no norm."""
    return zero_stage(deepspeed_config) == 0 and config.dtype == "float32"


def check_batch(config: TrainingConfig, world_size: int) -> None:
    """Raises a ConfigError if the batch can't be divided evenly among the processes."""
    if config.batch_sequences % (config.micro_batch_sequences * world_size):
        raise ConfigError(
            f"training.batch_sequences is {config.batch_sequences}, not a multiple of "
            f"training.micro_batch_sequences × processes = {config.micro_batch_sequences} × "
            f"{world_size}: change one of them."
        )


def check_dtype(config: Recipe, deepspeed_config: dict[str, Any]) -> None:
    """Raises a ConfigError for bfloat16 with ZeRO stage 0, which keeps no float32 weights."""
    if config.dtype == "bfloat16" and zero_stage(deepspeed_config) == 0:
        raise ConfigError(
            f"{config.node}.dtype is bfloat16 with ZeRO stage 0, where the engine keeps no float32 "
            "weights, so it can't resume exactly. Choose deepspeed=zero1, even for one process; "
            "for the pretraining of a base model, deepspeed@model.pretraining.deepspeed=zero1."
        )


def check_compile(config: TrainingConfig, deepspeed_config: dict[str, Any]) -> None:
    """Raises a ConfigError for compilation with ZeRO stage 3, which gathers and frees weights."""
    remedy = "it does not work with ZeRO stage 3: choose deepspeed=zero2, or false."
    is_partitioned = zero_stage(deepspeed_config) == 3
    config.require(not (config.compile and is_partitioned), "compile", remedy)


def gather_weights(engine: Any) -> Any:
    """Returns ZeRO stage 3's weights by name, gathered on rank 0; None on other ranks.

    Every process has to call this.
    """
    return engine._zero3_consolidated_16bit_state_dict()


def skip_deepspeed_op_build() -> None:
    """Prevents DeepSpeed from compiling an unused C++ op when it first starts on a CPU."""
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def export_model(engine: Any, tokenizer: Path, folder: Path, world: World) -> None:
    """Writes the model as a Hugging Face folder, which appears only once it is complete.

    Args:
        engine: the DeepSpeed engine, of any ZeRO stage; every process has to call this.
        tokenizer: a folder whose files are copied into the export.
        folder: the Hugging Face folder to write.
        world: this process's rank and device.
    """
    is_partitioned = zero_stage(engine.config) == 3
    weights = gather_weights(engine) if is_partitioned else None

    def write_folder() -> None:
        unfinished = folder.with_name(f".{folder.name}{TEMPORARY_SUFFIX}")
        shutil.rmtree(unfinished, ignore_errors=True)
        engine.module.save_pretrained(unfinished, state_dict=weights)
        for file in tokenizer.iterdir():
            shutil.copyfile(file, unfinished / file.name)
        unfinished.rename(folder)

    world.on_rank_0(write_folder)


def destroy_engine(engine: Any) -> None:
    """Removes what keeps an engine's weights and optimizer in memory when it is no longer used.

    `engine.destroy()` removes its hooks. Under ZeRO stage 3 DeepSpeed also keeps the module in a
    list, and its parameters in the cache of a method, which both outlive the engine. The cache is
    cleared for all engines of the process, which fill it again.
    """
    engine.destroy()
    if engine.zero_optimization_stage() != 3:
        return
    try:  # private names of DeepSpeed's: another release may have others
        from deepspeed.runtime.zero.parameter_offload import FWD_MODULE_STACK
        from deepspeed.runtime.zero.partitioned_param_coordinator import (
            PartitionedParameterCoordinator,
        )
    except ImportError as error:
        log.warning("This DeepSpeed keeps the weights until the process ends: %s", error)
        return
    FWD_MODULE_STACK[:] = [module for module in FWD_MODULE_STACK if module is not engine.module]
    for method in vars(PartitionedParameterCoordinator).values():
        for variable in getattr(method, "__closure__", None) or ():
            clear_cache = getattr(variable.cell_contents, "cache_clear", None)
            if clear_cache is not None:  # a wrapped functools.lru_cache
                clear_cache()


def join_process_group() -> World:
    """Joins the launcher's process group, or creates a group with only this process."""
    import torch

    launched_process_count()
    launched = "RANK" in os.environ
    atexit.register(_destroy_process_group)
    _set_environment_defaults()
    with discard_output():  # both print the output of a compiler
        import deepspeed

        skip_deepspeed_op_build()
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    has_cuda = torch.cuda.is_available()
    if has_cuda:  # a task that sees only one GPU calls it 0
        os.environ["LOCAL_RANK"] = str(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    backend = "nccl" if has_cuda else "gloo"
    if not launched and not torch.distributed.is_initialized():
        _start_single_process_group(backend)
    deepspeed.init_distributed(dist_backend=backend, verbose=False)
    local, rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
    if has_cuda:
        torch.cuda.set_device(local)
    if rank:  # rank 0 logs for all processes
        logging.getLogger().setLevel(logging.ERROR)
    device = torch.device("cuda", local) if has_cuda else torch.device("cpu")
    return World(rank, int(os.environ["WORLD_SIZE"]), device)


def _set_environment_defaults() -> None:
    """Sets the environment variables that DeepSpeed reads, unless a launcher has set them."""
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("DS_LOG_LEVEL", "warning")
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    if "RANK" not in os.environ:
        for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1}.items():
            os.environ.setdefault(name, str(value))


def _start_single_process_group(backend: str) -> None:
    """Creates a group of one process that needs no network, unlike torch's default store."""
    import torch

    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    before = os.environ.get("GLOO_SOCKET_IFNAME")
    if loopback is not None and before is None:  # otherwise gloo looks up this machine's name
        os.environ["GLOO_SOCKET_IFNAME"] = loopback
    try:
        store = torch.distributed.HashStore()  # type: ignore[attr-defined]
        torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    except RuntimeError as error:
        if "find address for" not in str(error):
            raise
        raise ConfigError(
            f"torch needs a network interface even for one process: {str(error).splitlines()[0]}. "
            "Enable the loopback (ip link set lo up), or name another in GLOO_SOCKET_IFNAME."
        ) from error
    finally:
        if before is None:
            os.environ.pop("GLOO_SOCKET_IFNAME", None)


def _destroy_process_group() -> None:
    """Destroys the process group; otherwise its threads may abort the process at exit."""
    import torch

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()

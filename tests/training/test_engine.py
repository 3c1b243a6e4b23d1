"""What the DeepSpeed engine is told, what it refuses, and the processes that it joins."""

import logging
import os
import socket
import sys
from types import SimpleNamespace

import pytest
import torch

from contamination.core.distributed import World
from contamination.core.errors import ConfigError
from contamination.core.files import TEMPORARY_SUFFIX
from contamination.training import deepspeed_engine as engines
from contamination.training.config import PretrainingConfig, TrainingConfig

CPU = torch.device("cpu")
RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


def test_the_engine_is_told_the_trainings_fields():
    zero = {"zero_optimization": {"stage": 1}, "comms_logger": {"enabled": False}}
    config = TrainingConfig(
        batch_sequences=8, micro_batch_sequences=2, clip_norm=0.7, retain_folder="kept"
    )
    fixed = {
        "train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False, "steps_per_print": 2**62,
    }  # fmt: skip
    assert engines.engine_config(config, zero, World(0, 2, CPU)) == {
        **zero, **fixed, "train_batch_size": 16, "gradient_clipping": 0.7,
        "bf16": {"enabled": False},
    }  # fmt: skip
    config = TrainingConfig(
        batch_sequences=8, micro_batch_sequences=2, clip_norm=0.7, dtype="bfloat16"
    )
    assert engines.engine_config(config, zero, World(0, 1, CPU)) == {
        **zero, **fixed, "train_batch_size": 8, "gradient_clipping": 0.7, "bf16": {"enabled": True}
    }  # fmt: skip
    config = TrainingConfig(batch_sequences=8, micro_batch_sequences=2, clip_norm=0.7)
    assert engines.engine_config(config, {}, World(0, 4, CPU)) == {
        **fixed, "train_batch_size": 8, "gradient_clipping": 0.0, "bf16": {"enabled": False}
    }  # fmt: skip


def test_a_zero_stage_is_from_0_to_3():
    assert engines.zero_stage({}) == engines.zero_stage({"zero_optimization": {}}) == 0
    assert [engines.zero_stage({"zero_optimization": {"stage": stage}}) for stage in range(4)] == [
        0, 1, 2, 3
    ]  # fmt: skip
    remedy = "give a stage from 0 to 3, or deepspeed=zero1: see conf/deepspeed/."
    for zero, field_and_value in (
        (3, " is 3"),
        ({"stage": 4}, ".stage is 4"),
        ({"stage": -1}, ".stage is -1"),
    ):
        with pytest.raises(ConfigError) as error:
            engines.zero_stage({"zero_optimization": zero})
        assert str(error.value) == f"deepspeed.zero_optimization{field_and_value}: {remedy}"


def test_what_the_engine_cannot_train_is_said():
    with pytest.raises(ConfigError) as error:
        engines.check_batch(TrainingConfig(batch_sequences=8, micro_batch_sequences=2), 3)
    assert str(error.value) == (
        "training.batch_sequences is 8, not a multiple of training.micro_batch_sequences × "
        "processes = 2 × 3: change one of them."
    )
    engines.check_batch(TrainingConfig(batch_sequences=12, micro_batch_sequences=2), 3)
    with pytest.raises(ConfigError, match=r"^model\.pretraining\.dtype is bfloat16 with ZeRO st"):
        engines.check_dtype(PretrainingConfig(dtype="bfloat16"), {})
    for dtype, stage in (("bfloat16", 1), ("float32", 0)):
        engines.check_dtype(TrainingConfig(dtype=dtype), {"zero_optimization": {"stage": stage}})
    with pytest.raises(ConfigError) as error:
        engines.check_compile(TrainingConfig(compile=True), {"zero_optimization": {"stage": 3}})
    assert str(error.value) == (
        "training.compile is True: it does not work with ZeRO stage 3: choose deepspeed=zero2, or "
        "false."
    )
    for compiles, stage in ((True, 2), (False, 3)):
        config = TrainingConfig(compile=compiles)
        engines.check_compile(config, {"zero_optimization": {"stage": stage}})


@pytest.mark.parametrize("stage", [2, 3])
def test_an_export_has_the_gathered_weights_and_the_tokenizer(tmp_path, monkeypatch, stage):
    """What an export that was cut short has left is not part of it."""
    saved = []

    def save(folder, state_dict):
        folder.mkdir()
        (folder / "model.safetensors").touch()
        saved.append((folder.name, state_dict))

    monkeypatch.setattr(engines, "gather_weights", lambda engine: {"weight": 1})
    engine = SimpleNamespace(
        config={"zero_optimization": {"stage": stage}}, module=SimpleNamespace(save_pretrained=save)
    )
    unfinished = tmp_path / f".hf{TEMPORARY_SUFFIX}"
    for folder, file in ((unfinished, "old"), (tmp_path / "tokenizer", "tokenizer.json")):
        folder.mkdir()
        (folder / file).write_text(file)
    engines.export_model(engine, tmp_path / "tokenizer", tmp_path / "hf", World(0, 1, CPU))
    assert saved == [(unfinished.name, {"weight": 1} if stage == 3 else None)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "tokenizer"]
    files = sorted(path.name for path in (tmp_path / "hf").iterdir())
    assert files == ["model.safetensors", "tokenizer.json"]
    assert (tmp_path / "hf" / "tokenizer.json").read_text() == "tokenizer.json"


@pytest.fixture
def environment(monkeypatch):
    """This process's variables without those of a launcher and of DeepSpeed."""
    engines.skip_deepspeed_op_build()  # imports DeepSpeed while it sees this process's own devices
    names = (*RANKS, "DS_ACCELERATOR", "DS_LOG_LEVEL", "GLOO_SOCKET_IFNAME")
    variables = {name: value for name, value in os.environ.items() if name not in names}
    monkeypatch.setattr(os, "environ", variables)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return variables


@pytest.fixture
def loggers():
    """The root's and DeepSpeed's loggers, whose levels are put back."""
    loggers = logging.getLogger(), logging.getLogger("DeepSpeed")
    levels_before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.INFO)
    yield loggers
    for logger, level in zip(loggers, levels_before, strict=True):
        logger.setLevel(level)


def test_a_process_without_a_launcher_is_the_only_one(environment, loggers, monkeypatch):
    variables_before = {**environment}
    engines._set_environment_defaults()
    assert dict(environment.items() - variables_before.items()) == {
        "DS_ACCELERATOR": "cpu", "DS_LOG_LEVEL": "warning",
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
    }  # fmt: skip
    assert loggers[1].level == logging.WARNING
    environment.clear()
    environment.update(RANK="3", DS_LOG_LEVEL="info")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    engines._set_environment_defaults()
    assert environment == {"RANK": "3", "DS_LOG_LEVEL": "info"}


def test_a_launched_process_joins_its_launchers_group(environment, loggers, monkeypatch):
    import deepspeed

    calls = []
    monkeypatch.setattr(deepspeed, "init_distributed", lambda **keywords: calls.append(keywords))
    monkeypatch.setattr(engines, "_start_single_process_group", lambda backend: calls.append(None))
    monkeypatch.setattr(engines.atexit, "register", calls.append)
    operations = deepspeed.ops.__compatible_ops__
    monkeypatch.setitem(operations, "deepspeed_shm_comm", True)
    for rank, level in ((0, logging.INFO), (1, logging.ERROR)):
        environment.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
        assert engines.join_process_group() == World(rank, 2, CPU)
        assert loggers[0].level == level
    joined = [engines._destroy_process_group, {"dist_backend": "gloo", "verbose": False}]
    assert calls == joined * 2
    assert operations["deepspeed_shm_comm"] is False  # it would be compiled


def test_one_process_needs_no_network(environment, monkeypatch):
    calls, failures = [], []

    def start(backend, **keywords):
        interface = environment.get("GLOO_SOCKET_IFNAME")
        calls.append((backend, keywords["rank"], keywords["world_size"], interface))
        assert isinstance(keywords["store"], torch.distributed.HashStore)
        for message in failures:
            raise RuntimeError(message)

    monkeypatch.setattr(torch.distributed, "init_process_group", start)
    names = [(1, "eth0"), (2, "lo"), (3, "lo2")]
    monkeypatch.setattr(socket, "if_nameindex", lambda: names)
    engines._start_single_process_group("gloo")
    assert "GLOO_SOCKET_IFNAME" not in environment
    environment["GLOO_SOCKET_IFNAME"] = "eth7"
    engines._start_single_process_group("gloo")
    assert environment.pop("GLOO_SOCKET_IFNAME") == "eth7"
    del names[1:]
    engines._start_single_process_group("nccl")
    assert calls == [("gloo", 0, 1, "lo"), ("gloo", 0, 1, "eth7"), ("nccl", 0, 1, None)]
    failures.append("unable to find address for: me\nmore")
    with pytest.raises(ConfigError) as error:
        engines._start_single_process_group("gloo")
    assert str(error.value) == (
        "torch needs a network interface even for one process: unable to find address for: me. "
        "Enable the loopback (ip link set lo up), or name another in GLOO_SOCKET_IFNAME."
    )
    failures[:] = ["something else"]
    with pytest.raises(RuntimeError, match="^something else$"):
        engines._start_single_process_group("gloo")
    assert "GLOO_SOCKET_IFNAME" not in environment


@pytest.mark.parametrize("joined", [True, False])
def test_a_group_is_left_at_the_end(monkeypatch, joined):
    calls = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: joined)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: calls.append(1))
    engines._destroy_process_group()
    assert len(calls) == joined


def test_another_deepspeed_that_keeps_the_weights_is_said(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "deepspeed.runtime.zero.parameter_offload", None)
    destroyed = []
    for stage in (2, 3):
        engine = SimpleNamespace(destroy=lambda: destroyed.append(1))
        engine.zero_optimization_stage = lambda stage=stage: stage
        engines.destroy_engine(engine)
    assert len(destroyed) == 2
    (message,) = caplog.messages
    assert message.startswith("This DeepSpeed keeps the weights until the process ends: ")

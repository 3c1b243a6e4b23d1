"""The estimate of a training's memory, against the papers' model and what a small one keeps."""

from dataclasses import replace

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from contamination.core.cli import compose_stage
from contamination.core.errors import ConfigError
from contamination.training.config import MemoryConfig, MemoryStage, ModelConfig, TrainingConfig
from contamination.training.loss import token_losses
from contamination.training.masked_lm import MaskedLMTrainingConfig, roberta_config
from contamination.training.memory_plan import (
    MACHINES,
    Machine,
    _engine_alternatives,
    cheapest_change_that_fits,
    format_memory_plan,
    largest_micro_batch,
    memories_too_small,
    memory_need_on,
)
from contamination.training.models import load_or_create_model
from contamination.training.resources import (
    MemoryNeed,
    ModelShape,
    activation_bytes_per_token,
    masked_lm_flops_per_token,
    memory_need,
    model_shape,
    model_state_bytes,
)
from tests.forks import run_in_fork

MODEL = ModelConfig(
    name="small",
    architecture={
        "model_type": "llama", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 160,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
    },
)  # fmt: skip
LLAMA_7B = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 2048,
}  # fmt: skip
LLAMA_13B = {
    **LLAMA_7B, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40,
    "num_attention_heads": 40, "num_key_value_heads": 40,
}  # fmt: skip
STAGES = [{"zero_optimization": {"stage": stage}} for stage in range(4)]
OFFLOAD = {
    "zero_optimization": {
        "stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}
    }
}  # fmt: skip


@pytest.fixture(scope="module")
def large():
    return model_shape(ModelConfig(name="llama_7b", architecture=LLAMA_7B))


@pytest.fixture(scope="module")
def larger():
    return model_shape(ModelConfig(name="llama_13b", architecture=LLAMA_13B))


def test_the_parameters_are_those_of_the_papers_model(large):
    assert large.parameters == 6_738_415_616


@pytest.mark.parametrize("tied", [False, True])
def test_states_are_exactly_what_a_small_model_and_its_optimizer_hold(tied):
    config = replace(MODEL, architecture={**MODEL.architecture, "tie_word_embeddings": tied})
    model = load_or_create_model(config, 300, 32, 0).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    token_losses(model, torch.arange(64).reshape(2, 32)).sum().backward()
    optimizer.step()
    parameters = list(model.parameters())
    moments = [s[name] for s in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    found = model_state_bytes(model_shape(config), 4, STAGES[0], 1)
    assert found["weights"] == sum(p.nbytes for p in parameters)
    assert found["gradients"] == sum(p.grad.nbytes for p in parameters)
    assert found["optimizer"] == sum(m.nbytes for m in moments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activations_are_what_a_small_model_keeps(dtype):
    model = load_or_create_model(MODEL, 300, 64, 0).to(dtype).train()
    ids = torch.arange(256).reshape(4, 64)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = tensor  # alive, so that no other gets its place
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = model.model(input_ids=ids, use_cache=False)[0]
    measured = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    assert torch.isfinite(hidden).all()
    expected = activation_bytes_per_token(model_shape(MODEL), dtype.itemsize, checkpointing=False)
    assert measured / ids.numel() == pytest.approx(expected, rel=0.02)


class Alive(TorchDispatchMode):
    """The most bytes alive at once in arrays of `least` bytes or more."""

    def __init__(self, least):
        super().__init__()
        self.least, self.most, self._storages = least, 0, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in (leaf for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor)):
            storage = tensor.untyped_storage()
            if storage.nbytes() >= self.least:
                kept = StorageWeakRef(storage), storage.nbytes()
                self._storages[storage.data_ptr()] = kept
        alive = sum(size for kept, size in self._storages.values() if not kept.expired())
        self.most = max(self.most, alive)
        return made


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_are_what_a_small_models_loss_keeps_at_once(dtype):
    model = load_or_create_model(MODEL, 300, 64, 0).to(getattr(torch, dtype)).train()
    with Alive(4 * 64 * 300 * 4) as alive:  # B, T, V, float32
        token_losses(model, torch.arange(256).reshape(4, 64)).sum().backward()
    config = TrainingConfig(dtype=dtype, micro_batch_sequences=4)
    assert memory_need(model_shape(MODEL), config, STAGES[1], 1, 64).logits == alive.most


def test_recomputing_keeps_the_inputs_of_layers_and_one_layer(large):
    whole = activation_bytes_per_token(large, 2, checkpointing=False)
    one = activation_bytes_per_token(replace(large, layers=1), 2, checkpointing=False)
    recomputed = activation_bytes_per_token(large, 2, checkpointing=True)
    assert recomputed == one + 32 * 2 * 4096
    assert recomputed < whole / 10


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_higher_stage_never_needs_more_for_the_model(large, dtype):
    size = 2 if dtype == "bfloat16" else 4
    for world in (2, 8, 16):
        sums = [
            sum(model_state_bytes(large, size, zero, world)[name]
                for name in ("weights", "gradients", "optimizer"))
            for zero in [*STAGES[1:], OFFLOAD]
        ]  # fmt: skip
        assert sums == sorted(sums, reverse=True)
        assert len(set(sums)) == len(sums)


def estimates(zero, shape, devices):
    """DeepSpeed's own figures in bytes: a device's states, the node's host, a layer at work."""
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    node = zero["zero_optimization"]
    optimizer, weights = "offload_optimizer" in node, "offload_param" in node
    if node["stage"] == 2:
        host, device = estimate_zero2_model_states_mem_needs(
            shape.parameters, devices, 1, cpu_offload=optimizer
        )
        return device, host, 0
    host, device, layer = estimate_zero3_model_states_mem_needs(
        shape.parameters, shape.largest, devices, 1,
        cpu_offload=optimizer, cpu_offload_params=weights, zero_init=True,
    )  # fmt: skip
    return device, host, layer


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("name", ["large", "larger"])
@pytest.mark.parametrize("stage", [2, 3])
def test_the_plan_is_deepspeeds_own_estimate(request, name, stage, devices):
    shape = request.getfixturevalue(name)
    found = model_state_bytes(shape, 2, STAGES[stage], devices)
    device, host, _ = estimates(STAGES[stage], shape, devices)
    states = sum(found[part] for part in ("weights", "gradients", "optimizer", "step"))
    assert states == pytest.approx(device, rel=0.1)
    assert found["host"] * devices == pytest.approx(host, rel=0.1)


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("name", ["large", "larger"])
@pytest.mark.parametrize(
    ("stage", "moved"),
    [(2, ["optimizer"]), (3, ["optimizer"]), (3, ["optimizer", "param"])],
)
def test_offload_is_deepspeeds_own_estimate(request, name, stage, moved, devices):
    shape, host = request.getfixturevalue(name), {"device": "cpu"}
    zero = {"zero_optimization": {"stage": stage, **{f"offload_{m}": host for m in moved}}}
    found = model_state_bytes(shape, 2, zero, devices)
    device, host, layer = estimates(zero, shape, devices)
    states = sum(found[part] for part in ("weights", "gradients", "optimizer", "step"))
    assert states == pytest.approx(device - layer, rel=1e-6)  # the layer is among the buffers:
    assert found["buffers"] >= layer
    assert found["host"] * devices == pytest.approx(host, rel=0.1)


def test_a_model_made_whole_is_on_every_processs_host(large):
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs

    host, *_ = estimate_zero3_model_states_mem_needs(
        large.parameters, large.largest, 8, 1, cpu_offload=False, zero_init=False
    )
    found = model_state_bytes(large, 2, STAGES[3], 8, made_whole=True)
    assert found["host"] * 8 == pytest.approx(host, rel=0.01)
    eight = MACHINES[1]
    for path, whole in ((None, True), ("model.gguf", True), ("some/hub-id", False)):
        model = ModelConfig(path=path, architecture=LLAMA_7B)
        stage = MemoryStage(model=model, deepspeed=STAGES[3])
        assert (memory_need_on(large, stage, eight).host * 8 > 0.99 * host) is whole


def test_a_smaller_share_never_needs_more(large):
    config = TrainingConfig(dtype="bfloat16", micro_batch_sequences=1)
    for zero in [*STAGES[1:], OFFLOAD]:
        totals = [memory_need(large, config, zero, world, 2048).total for world in (1, 2, 8, 16)]
        assert totals == sorted(totals, reverse=True)


def test_llama_7b_fits_where_it_is_known_to(large):
    config = TrainingConfig(dtype="bfloat16", micro_batch_sequences=1)
    stage = MemoryStage(deepspeed=STAGES[3], training=config)
    one, eight, _, _ = MACHINES
    assert memories_too_small(large, stage, one) == ["device"]
    assert not memories_too_small(large, stage, eight)
    recomputed = replace(stage, training=replace(config, activation_checkpointing=True))
    plain = largest_micro_batch(large, stage, eight)
    assert largest_micro_batch(large, recomputed, eight) > plain > 0


def test_a_run_fits_only_where_the_host_carries_it_too(large):
    config = TrainingConfig(dtype="bfloat16", micro_batch_sequences=1)
    stage = MemoryStage(deepspeed=OFFLOAD, training=config)
    one = Machine("one", 1, 1, 80)
    for host, small in ((181, ["host"]), (183, [])):  # DeepSpeed recommends 182 GB
        given = replace(stage, memory=MemoryConfig(host_gigabytes_per_device=host))
        assert memories_too_small(large, given, one) == small
    with pytest.raises(ConfigError, match="host_gigabytes_per_device is 0: give a number above 0"):
        MemoryConfig(host_gigabytes_per_device=0)


def test_the_way_out_is_the_cheapest_that_fits(large):
    bfloat = TrainingConfig(dtype="bfloat16", micro_batch_sequences=4)
    _, eight, _, _ = MACHINES
    stage = MemoryStage(deepspeed=STAGES[3], training=bfloat)
    assert cheapest_change_that_fits(large, stage, eight) == ""
    eights = replace(stage, training=replace(bfloat, micro_batch_sequences=8))
    assert cheapest_change_that_fits(large, eights, eight) == "micro-batch 4"
    assert (
        cheapest_change_that_fits(large, replace(stage, deepspeed=STAGES[1]), eight)
        == "micro-batch 2"
    )
    whole = replace(eights, training=replace(bfloat, micro_batch_sequences=9))  # has no half
    assert cheapest_change_that_fits(large, whole, eight) == "activation checkpointing"
    tight = Machine("tight", 8, 1, 40)
    assert cheapest_change_that_fits(large, replace(eights, deepspeed=STAGES[1]), tight) == (
        "zero2 + activation checkpointing + micro-batch 4"
    )
    assert cheapest_change_that_fits(large, stage, Machine("tiny", 8, 1, 1)) == "none"


def test_the_plan_names_the_run_and_the_verdicts():
    config = TrainingConfig(dtype="bfloat16", micro_batch_sequences=2)
    text = format_memory_plan(MemoryStage(model=MODEL, deepspeed=STAGES[2], training=config))
    assert text.startswith("small: 180,160 parameters, bfloat16, ZeRO stage 2, micro-batch 2 × ")
    assert "| fits | yes | yes | yes | yes |" in text
    assert not text.splitlines()[-1].startswith("fits on")


PLAN = """\
llama: 6,738,415,616 parameters, bfloat16, ZeRO stage 2, micro-batch 2 × 2048 tokens, \
{} activation checkpointing, 250 GB of host memory per device

| GB per device | 1 × 80 GB | 8 × 80 GB | 2 nodes × 8 × 80 GB | 1 × 141 GB (H200) |
| --- | ---: | ---: | ---: | ---: |
| weights | 13.5 | 13.5 | 13.5 | 13.5 |
| gradients | 13.5 | 1.7 | 0.8 | 13.5 |
| optimizer's states | 80.9 | 10.1 | 5.1 | 80.9 |
| gradients in the step | 27.0 | 3.4 | 1.7 | 27.0 |
| buffers | 1.0 | 1.0 | 1.0 | 1.0 |
| activations | 24.6 | 24.6 | 24.6 | 24.6 |
| logits | 1.6 | 1.6 | 1.6 | 1.6 |
| peak | 135.0 | 52.4 | 46.5 | 135.0 |
| host memory per node | 40.4 | 323.4 | 323.4 | 40.4 |
| fits | no (device) | yes | yes | no (device) |
| largest micro-batch | – | 2 | 2 | – |

fits on 1 × 80 GB with zero3_offload
fits on 1 × 141 GB (H200) with zero3 + micro-batch 1"""


def test_the_plan_of_llama_7b_is_a_table_of_the_machines():
    config = TrainingConfig(dtype="bfloat16", micro_batch_sequences=2)
    stage = MemoryStage(ModelConfig(name="llama", architecture=LLAMA_7B), STAGES[2], config)
    assert format_memory_plan(stage) == PLAN.format("no")
    recomputing = replace(stage, training=replace(config, activation_checkpointing=True))
    assert format_memory_plan(recomputing).splitlines()[0] == PLAN.format("with").splitlines()[0]
    host = replace(stage, memory=MemoryConfig(host_gigabytes_per_device=1.5))
    assert "| fits | no (device, host) | no (host) |" in format_memory_plan(host)


def test_higher_stages_and_then_offloading_keep_what_is_configured():
    cpu, buckets = {"device": "cpu"}, {"reduce_bucket_size": 7}
    alternatives = [*_engine_alternatives({"zero_optimization": {"stage": 0, **buckets}, "a": 1})]
    assert alternatives[0] == ("", {"zero_optimization": {"stage": 0, **buckets}, "a": 1})
    assert alternatives[1:] == [
        (name, {"zero_optimization": {**buckets, **zero}})
        for name, zero in (
            ("zero1", {"stage": 1, "overlap_comm": False}),
            ("zero2", {"stage": 2, "overlap_comm": True}),
            ("zero3", {"stage": 3, "overlap_comm": True}),
            ("zero3_offload", {"stage": 3, "offload_optimizer": cpu, "offload_param": cpu}),
        )
    ]
    assert [name for name, _ in _engine_alternatives({})] == [
        "", "zero1", "zero2", "zero3", "zero3_offload"
    ]  # fmt: skip
    assert [name for name, _ in _engine_alternatives(STAGES[3])] == ["", "zero3_offload"]


SHAPE = ModelShape(
    parameters=1000, largest=400, layers=3, hidden=8, intermediate=20, heads=4, kv_heads=2,
    head_dim=6, vocabulary=50,
)  # fmt: skip
NEEDS = {  # of 4 processes, bfloat16: weights, gradients, optimizer, step, buffers, loading, host
    0: (2000, 2000, 8000, 0, 0, 4000, 1.5 * 4000),
    1: (2000, 2000, 3000, 1000, 2 * 2 * 100, 4000, 1.5 * 4000),
    2: (2000, 500, 3000, 1000, 2 * 2 * 100, 4000, 1.5 * 4000),
    3: (500, 500, 3000, 1000, 2 * (100 + 1000), 0, 1.5 * 4 * 400),
    "3 with its optimizer offloaded": (500, 0, 0, 0, 2200, 0, 1.5 * (4 * 250 + 12 * 250)),
    "3 offloaded": (0, 0, 0, 0, 2200, 0, 1.5 * (4 * 250 + 12 * 250 + 2 * 250)),
}


@pytest.mark.parametrize("case", NEEDS)
def test_the_memory_of_a_shape_is_that_of_a_calculation_by_hand(case):
    host = {"device": "cpu"}
    node = {"stage": case if isinstance(case, int) else 3, "reduce_bucket_size": 100,
            "overlap_comm": True}  # fmt: skip
    node |= {} if isinstance(case, int) else {"offload_optimizer": host}
    node |= {"offload_param": host} if case == "3 offloaded" else {}
    config = TrainingConfig(micro_batch_sequences=2, dtype="bfloat16")
    states = NEEDS[case]
    layer = 2 * 8 * 8 + (2 * 2 * 24 + 2 * 2 * 12 + 4 * 4) + 2 * 4 * 20
    expected = MemoryNeed(*states[:5], 10 * (3 * layer + 8 * 8), 10 * 50 * 4 * 3, *states[5:])
    need = memory_need(SHAPE, config, {"zero_optimization": node}, 4, 5)
    assert need == expected
    backward = states[4] + expected.activations + expected.logits
    assert need.total == max(sum(states[:3]) + max(backward, states[3]), states[5])


def test_the_peak_is_in_the_step_or_the_loading_where_these_need_most():
    need = MemoryNeed(1, 2, 4, 100, 8, 16, 32, 5, 0)
    assert need.total == 107
    assert replace(need, step=0).total == 63
    assert replace(need, loading=500).total == 500


def test_buckets_have_deepspeeds_defaults():
    large = replace(SHAPE, parameters=4 * 10**9)
    buffers = [
        model_state_bytes(large, 2, {"zero_optimization": {"stage": 3, **fields}}, 2)["buffers"]
        for fields in ({}, {"stage3_max_live_parameters": 3e9}, {"reduce_bucket_size": 4e9})
    ]
    assert buffers == [2 * (5e8 + 1e9), 2 * (5e8 + 3e9), 2 * (4e9 + 1e9)]
    assert model_state_bytes(large, 4, STAGES[2], 2)["buffers"] == 4 * 5e8
    for fields, moved in (({}, 1e9), ({"sub_group_size": 5e8}, 5e8)):
        zero = {"zero_optimization": {"stage": 3, **fields}}
        assert model_state_bytes(large, 2, zero, 2)["step"] == 4 * moved
    assert model_state_bytes(large, 2, STAGES[2], 2)["step"] == 4 * 2e9


def test_a_shape_without_llamas_fields_is_that_of_gpt_2():
    fields = {"vocab_size": 60, "n_embd": 8, "n_layer": 2, "n_head": 2, "bos_token_id": 1,
             "eos_token_id": 2, "n_positions": 32}  # fmt: skip
    shape = model_shape(ModelConfig(architecture={"model_type": "gpt2", **fields}))
    layer = 4 * 8 * 8 + 2 * 8 * 32 + (4 + 1 + 4) * 8 + 2 * 2 * 8
    assert shape == ModelShape(
        parameters=(60 + 32) * 8 + 2 * layer + 2 * 8, largest=60 * 8, layers=2, hidden=8,
        intermediate=32, heads=2, kv_heads=2, head_dim=4, vocabulary=60,
    )  # fmt: skip


def test_a_masked_models_positions_are_not_multiplied():
    config = roberta_config(MaskedLMTrainingConfig(hidden_size=16, layers=1, heads=2), 60, 8)
    layer = 4 * (16 * 16 + 16) + (16 * 64 + 64) + (64 * 16 + 16) + 4 * 16
    embeddings, head = 60 * 16 + 16 + 2 * 16, (16 * 16 + 16) + 2 * 16 + 60
    expected = 6 * (embeddings + layer + head) + 12 * 16 * 8
    assert masked_lm_flops_per_token(config, 8) == expected


def test_what_the_engine_refuses_is_not_planned():
    config = TrainingConfig(dtype="bfloat16")
    with pytest.raises(ConfigError, match="training.dtype is 'bfloat16'.*deepspeed=zero1"):
        format_memory_plan(MemoryStage(model=MODEL, deepspeed=STAGES[0], training=config))


def test_an_architecture_without_a_vocabulary_is_refused():
    with pytest.raises(ConfigError, match=r"model.architecture is \{.*add its vocab_size"):
        model_shape(ModelConfig(architecture={"hidden_size": 64}))


def test_a_local_folder_goes_before_the_architecture():
    given = ModelConfig(path="tests/golden/target", architecture=LLAMA_7B)
    assert model_shape(given).hidden < 4096
    with pytest.raises(ConfigError, match="^model.path is ./nowhere/model.: there is no such"):
        model_shape(ModelConfig(path="/nowhere/model", architecture=LLAMA_7B))


def test_a_hub_id_with_an_architecture_needs_no_hub(large):
    assert model_shape(ModelConfig(path="huggyllama/llama-7b", architecture=LLAMA_7B)) == large


def test_the_command_prints_the_plan_of_its_settings():
    from contamination.training.__main__ import main

    words = ["deepspeed=zero3", "memory.sequence_tokens=512"]
    done = run_in_fork(main, "training", "memory", *words)
    plan = format_memory_plan(compose_stage("memory", words, MemoryStage))
    assert (done.returncode, done.stdout, done.stderr) == (0, plan + "\n", "")

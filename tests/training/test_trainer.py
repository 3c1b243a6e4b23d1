"""The engine beside transformers.Trainer: the same parameters decay, the same losses."""

import gc
import weakref

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

from contamination.launch.processes import LAUNCHER
from contamination.training.config import ModelConfig, TrainingConfig
from contamination.training.deepspeed_engine import (
    destroy_engine,
    engine_config,
    join_process_group,
    parameter_groups,
    start_engine,
)
from contamination.training.loop import StepPart, optimizer_step
from contamination.training.models import load_or_create_model
from contamination.training.objectives.likelihood import Likelihood

STEPS, BATCH, WIDTH, VOCABULARY = 60, 4, 32, 64
SHAPE = {
    "model_type": "qwen2",  # it has biases as well as norms
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": WIDTH, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
CONFIG = TrainingConfig(
    learning_rate=1e-2, schedule="linear", warmup_steps=0, weight_decay=0.1, clip_norm=0.3,
    batch_sequences=BATCH, micro_batch_sequences=BATCH,
)  # fmt: skip


class Recorder(Trainer):
    """Keeps each step's loss as it is, before Trainer rounds or averages it."""

    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        self.seen = [*getattr(self, "seen", []), loss.item()]
        return loss


@pytest.fixture(scope="module")
def rows():
    ids = np.random.default_rng(0).integers(3, VOCABULARY, size=(STEPS * BATCH, WIDTH))
    return [{"input_ids": row} for row in ids]


@pytest.fixture(scope="module")
def no_launcher():
    """Trainer alone: what an earlier training of this process left would make it one of several."""
    with pytest.MonkeyPatch.context() as patch:
        for name in LAUNCHER:
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def trainers_losses(rows, tmp_path_factory, no_launcher):
    options = TrainingArguments(
        str(tmp_path_factory.mktemp("trainer")), use_cpu=True, max_steps=STEPS,
        per_device_train_batch_size=BATCH, learning_rate=CONFIG.learning_rate,
        lr_scheduler_type=CONFIG.schedule, warmup_steps=0, weight_decay=CONFIG.weight_decay,
        adam_beta1=CONFIG.beta1, adam_beta2=CONFIG.beta2, max_grad_norm=CONFIG.clip_norm,
        optim="adamw_torch_fused", train_sampling_strategy="sequential", logging_strategy="no",
        save_strategy="no", report_to=[], disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    model = load_or_create_model(ModelConfig(architecture=SHAPE), VOCABULARY, WIDTH, seed=0)
    trainer = Recorder(model, options, collate, rows)
    trainer.train()
    return trainer.seen


def collate(rows):
    ids = torch.tensor(np.stack([row["input_ids"] for row in rows]))
    return {"input_ids": ids, "labels": ids}


@pytest.mark.filterwarnings("ignore:.*::deepspeed", "ignore:.*::torch")
@pytest.mark.parametrize(
    "stage", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2)), 3]
)
def test_losses_are_trainers_at_weight_decay(rows, trainers_losses, stage):
    model = load_or_create_model(ModelConfig(architecture=SHAPE), VOCABULARY, WIDTH, seed=0)
    world = join_process_group()
    settings = engine_config(CONFIG, {"zero_optimization": {"stage": stage}}, world)
    engine = start_engine(model, CONFIG, settings, STEPS, world)
    ours = [
        optimizer_step(engine, [part], CONFIG, world, clip=stage == 0).loss
        for part in (
            StepPart(rows, own, Likelihood())
            for own in np.arange(STEPS * BATCH).reshape(STEPS, BATCH)
        )
    ]
    destroy_engine(engine)
    np.testing.assert_allclose(ours, trainers_losses, rtol=0, atol=1e-5)
    held = weakref.ref(engine)
    del engine, model
    gc.collect()
    assert held() is None  # the next training in this process would find its memory taken


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "gpt_neox", "opt", "olmo2"])
def test_what_decays_is_what_trainer_decays(kind):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind))
    decayed, plain = parameter_groups(model, 0.1)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    trainers = {id(model.get_parameter(n)) for n in Trainer.get_decay_parameter_names(None, model)}
    assert {id(p) for p in decayed["params"]} == trainers
    assert {id(p) for p in plain["params"]} == {id(p) for p in model.parameters()} - trainers

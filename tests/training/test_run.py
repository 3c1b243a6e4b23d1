"""A training with DeepSpeed: its result, its order and its resumption."""

import gc
import math
import re
import shutil
from collections import Counter
from dataclasses import replace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch import nn
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaModel

import contamination.injection
from contamination.core.artifacts import WrittenFiles, build_or_open
from contamination.core.distributed import World
from contamination.core.errors import ArtifactError, ConfigError
from contamination.core.models import load_config, load_model
from contamination.training import checkpoints, loss
from contamination.training.checkpoints import SavedCheckpoint
from contamination.training.config import ModelConfig, TrainingConfig
from contamination.training.data import PADDING, SequenceOrder
from contamination.training.models import load_or_create_model
from contamination.training.run import _prepare_loop, _sequence_order, run
from contamination.training.trained_model import (
    RANDOM_WEIGHTS,
    ancestry_of,
    is_export,
    open_checkpoint,
    open_trained,
)
from tests.rounding import TRAINING


def losses(folder):
    return open_checkpoint(folder).metrics["loss"].tolist()


ZERO = {"zero_optimization": {"stage": 1}}


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")
@pytest.mark.parametrize(
    ("deepspeed", "recomputes", "compiles"),
    [({}, False, False), (ZERO, True, False), (ZERO, False, True)],
    ids=["alone", "zero1", "compiled"],
)
def test_the_engine_trains_as_a_plain_torch_loop_does(
    change, monkeypatch, deepspeed, recomputes, compiles
):
    traced = MagicMock(side_effect=lambda function, *_, **__: function)
    monkeypatch.setattr(torch, "compile", traced)
    loss._compiled_cross_entropies.cache_clear()
    stage = change(schedule="cosine", weight_decay=0.5, beta1=0.7, clip_norm=0.6,
                   activation_checkpointing=recomputes, compile=compiles)  # fmt: skip
    stage, ran = replace(stage, deepspeed=deepspeed), Counter()
    with nn.modules.module.register_module_forward_hook(lambda m, *_: ran.update([type(m)])):
        trained = open_checkpoint(run(stage).path)
    assert ran[LlamaAttention] == ran[LlamaModel] * (1 + recomputes)
    compiled = {call.args[0].__name__ for call in traced.call_args_list}
    assert ({"_call_impl", "_cross_entropies"} <= compiled) == compiles  # a layer, and the loss
    plain, model = plain_loop(stage)
    found = trained.metrics[["loss", "grad_norm", "learning_rate"]].to_numpy()
    np.testing.assert_allclose(found, plain, rtol=0, atol=TRAINING)
    ours = load_model("model", str(trained.hf)).state_dict()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(ours[name], value, atol=1e-5, rtol=1e-4)
    assert found[-1, 0] < found[0, 0]
    assert (found[:, 1] > 0.6).sum() > 3  # the clipping bites, by a different factor each time


def plain_loop(stage):
    """The same training without an engine: a full batch at a time, warm-up, then half a cosine."""
    stage = stage.resolved()
    config = stage.training
    sequences = contamination.injection.open_corpus(stage.corpus_folder).sequences
    order = SequenceOrder(len(sequences), config.batch_sequences, config.order_seed)
    model = load_or_create_model(stage.model, 1024, 32, config.init_seed).train()
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.ndim == n], "weight_decay": decay}
            for n, decay in ((2, config.weight_decay), (1, 0.0))
        ],
        betas=(config.beta1, config.beta2),
    )
    result = []
    for step in range(order.steps):
        real = [row for row in order.rows_of_step(step).tolist() if row != PADDING]
        ids = torch.tensor(np.array(sequences[real]["input_ids"]))
        logits = model(input_ids=ids).logits[:, :-1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        done = (step - config.warmup_steps) / (order.steps - config.warmup_steps)
        half = (1 + math.cos(math.pi * done)) / 2
        rate = config.learning_rate * ((step + 1) / config.warmup_steps if done < 0 else half)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        result.append((loss.item(), norm.item(), rate))
    return result, model


def test_the_artefact_holds_the_whole_run(stage):
    trained = open_checkpoint(run(stage).path)
    counts = {
        "steps": 12,
        "tokens": 45 * 32,
        "parameters": 35_376,
        "past": [],
        "past_is_whole": True,
    }
    assert trained.artifact.counts == counts
    assert re.fullmatch("toy-lr0.01-toy-.*[0-9a-f]{12}", trained.artifact.path.name)
    assert {*trained.artifact.inputs} == {"corpus"}
    assert [*trained.artifact.records] == ["config.yaml", "metrics.jsonl"]
    names = {"config.json", "model.safetensors", "tokenizer.json"}
    assert {"exposures.parquet", *(f"hf/{name}" for name in names)} <= {*trained.artifact.files}
    assert trained.metrics["step"].tolist() == list(range(1, 13))
    tokens = [min(4 * step, 45) * 32 for step in range(1, 13)]  # the last batch is not full
    assert trained.metrics["tokens"].tolist() == tokens
    assert trained.metrics["learning_rate"].tolist() == [0.005] + [0.01] * 11
    order = SequenceOrder(45, 4, stage.resolved().training.order_seed)
    seen = {row: step for step in range(1, 13) for row in order.rows_of_step(step - 1)}
    assert trained.exposures["step"].tolist() == [seen[n] for n in (0, 7, 44)]
    assert sorted(p.name for p in trained.hf.iterdir() if "safetensors" in p.name) == [
        "model.safetensors"
    ]
    assert not (trained.artifact.path / "checkpoints").exists()


def test_the_corpuss_order_is_trained_where_it_is_asked_for(stage, change):
    corpus = contamination.injection.open_corpus(stage.corpus_folder)
    orders = [_sequence_order(each.resolved(), corpus) for each in (stage, change(order="corpus"))]
    assert orders[0].rows_of_step(1).tolist() != orders[1].rows_of_step(1).tolist() == [4, 5, 6, 7]


def test_a_killed_run_goes_on_bit_for_bit(stage, tmp_path, monkeypatch):
    whole = open_checkpoint(run(replace(stage, runs=str(tmp_path / "whole"))).path)
    guard = "contamination.training.loop._check_finite"
    from contamination.training import loop

    real = loop._check_finite

    def killed(loss, norm, step, rows, folder):
        if step == 8:
            raise KeyboardInterrupt
        real(loss, norm, step, rows, folder)

    monkeypatch.setattr(guard, killed)
    stage = replace(stage, runs=str(tmp_path / "killed"))
    with pytest.raises(KeyboardInterrupt):
        run(stage)
    folder = tmp_path / "killed" / "model" / whole.artifact.path.name
    assert [c.name for c in checkpoints.completed_folders(folder / "checkpoints")] == [
        "step-00000003", "step-00000006"
    ]  # fmt: skip
    with pytest.raises(ArtifactError, match="unfinished"):
        open_checkpoint(folder)
    monkeypatch.setattr(guard, real)
    again = open_checkpoint(run(stage).path)
    assert losses(folder) == losses(whole.artifact.path)
    assert again.artifact.files == whole.artifact.files


def test_continuing_starts_from_the_given_model(stage, change):
    base = run(stage)
    assert load_config("model", str(open_checkpoint(base.path).hf)).max_position_embeddings == 32
    more = replace(change(learning_rate=1e-9), model=ModelConfig(name="toy", path=str(base.path)))
    trained = open_checkpoint(run(more).path)
    assert trained.artifact.inputs["model"] == base.digest
    first = losses(trained.artifact.path)[0]
    assert first < losses(base.path)[0]


def test_what_a_model_was_trained_from_is_known_when_its_folder_is_gone(stage, change):
    first = run(change(export_steps=[3]))
    starts = [first.path, first.path / "exports" / "step-00000003"]
    known = [ancestry_of("model.path", str(start)) for start in starts]
    last = first
    for rate in (1e-9, 2e-9):
        start = ModelConfig(name="toy", path=str(last.path))
        last = run(replace(change(learning_rate=rate), model=start))
    shutil.rmtree(first.path)
    assert all(ancestry_of("model.path", str(last.path)).has_been(start) for start in known)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"learning_rate": 0.0}, "training.learning_rate is 0.0"),
        ({"schedule": "step"}, "training.schedule"),
        ({"dtype": "fp16"}, "training.dtype"),
        ({"batch_sequences": 0}, "training.batch_sequences"),
    ],
)
def test_ranges_are_checked(fields, match):
    with pytest.raises(ConfigError, match=match):
        TrainingConfig(**fields)


def test_what_does_not_fit_is_said(stage, change, tmp_path):
    with pytest.raises(ConfigError, match="not a multiple"):
        run(change(batch_sequences=5))
    for context in (16, 64):
        other = {**stage.model.architecture, "max_position_embeddings": context}
        with pytest.raises(ConfigError, match=f"max_position_embeddings is {context}.*of 32 tok"):
            run(replace(stage, model=ModelConfig(name="other", architecture=other)))
    with pytest.raises(ConfigError, match="model.path is './nowhere'"):
        run(replace(stage, model=ModelConfig(name="x", path="./nowhere")))
    with pytest.raises(ArtifactError, match="does not exist"):
        run(replace(stage, corpus_folder=str(tmp_path / "none")))


def test_a_corpus_has_to_be_named(stage):
    with pytest.raises(ConfigError) as error:
        run(replace(stage, corpus_folder=""))
    assert str(error.value) == (
        "corpus_folder is '': give a folder that the injection stage wrote, runs/corpus/…."
    )


def test_the_processes_that_train_are_started_unless_the_model_is_finished(stage, change, tmp_path):
    """Their number is theirs to check; what is left of the checkpoints is removed."""
    started = []

    def start(folder):
        started.append(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(change(batch_sequences=5), start)
    with pytest.raises(ConfigError, match="warmup_steps is 99"):
        run(change(warmup_steps=99), start)
    assert len(started) == 1
    trained = run(stage)
    (trained.path / "checkpoints").mkdir()
    assert run(stage, start) == trained
    assert not (trained.path / "checkpoints").exists()
    assert len(started) == 1
    assert started[0].parent == trained.path.parent


@pytest.mark.parametrize(
    ("saved_by", "zero", "converts"), [(2, 1, True), (1, 1, False), (2, 0, False)]
)
def test_a_checkpoint_of_more_processes_is_loaded_in_its_universal_form(
    stage, tmp_path, monkeypatch, saved_by, zero, converts
):
    calls, world = [], World(0, 1, torch.device("cpu"))
    checkpoint = SavedCheckpoint(tmp_path, 3, saved_by, {})
    universal = checkpoints.LOAD_UNIVERSAL

    def start(model, config, deepspeed, steps, world):
        calls.append((deepspeed.get("checkpoint"), steps))
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "convert_to_universal", lambda *args: calls.append(args))
    monkeypatch.setattr("contamination.training.run.engines.start_engine", start)
    corpus = contamination.injection.open_corpus(stage.corpus_folder)
    stage = replace(stage.resolved(), deepspeed={"zero_optimization": {"stage": zero}})
    with pytest.raises(KeyboardInterrupt):
        _prepare_loop(stage, corpus, tmp_path, {}, checkpoint, world)
    loading = (universal["checkpoint"] if converts else None, 12)
    assert calls == [(checkpoint, world)] * converts + [loading]


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")
def test_the_optimizers_states_do_not_stay_in_memory(stage):
    def numbers():
        gc.collect()
        kinds = (torch.Tensor, nn.Parameter)
        return sum(o.numel() for o in gc.get_objects() if type(o) in kinds)

    before = numbers()
    stage = replace(stage, deepspeed=ZERO)
    parameters = run(stage).counts["parameters"]
    assert numbers() - before < 3 * parameters  # weights, gradients and moments are 5 times as many


def test_of_several_processes_one_hashes_what_is_read(stage, monkeypatch):
    """The others are told the start model's digest, and open the corpus once that is verified."""
    told = []

    class Follower:
        is_rank_0 = False

        def on_rank_0(self, work):
            told.append(work)
            return {"corpus": "c", "model": "rank 0's"}

    def opened(folder):
        assert told
        return contamination.injection.open_corpus(folder)

    found = {}

    def together(stage, corpus, folder, inputs, world):
        found.update(inputs=inputs, world=world, folder=folder)
        raise KeyboardInterrupt

    monkeypatch.setattr("contamination.training.run.launched_process_count", lambda: 2)
    monkeypatch.setattr("contamination.training.run.join_process_group", Follower)
    monkeypatch.setattr("contamination.training.run._train_with_all_processes", together)
    monkeypatch.setattr("contamination.training.run.open_corpus", opened)
    monkeypatch.setattr("contamination.core.models.folder_digest", None)
    given = replace(stage.model, path="tests/golden/target")
    with pytest.raises(KeyboardInterrupt):
        run(replace(stage, model=given))
    assert found["inputs"]["model"] == "rank 0's"
    assert isinstance(found["world"], Follower)


def finished_training(folder, inputs, counts):
    """A finished training with exports of steps 2 and 5."""

    def write(folder):
        names = ["exports/step-00000002", "exports/step-00000005", "hf"]
        for name in names:
            (folder / name).mkdir(parents=True)
            (folder / name / "model.safetensors").write_text(name)
            (folder / name / "config.json").write_text("{}")
        files = [
            f"{name}/{file}" for name in names for file in ("config.json", "model.safetensors")
        ]
        return WrittenFiles(files, counts)

    return build_or_open(folder / "model" / "a-1", {}, inputs, write)


def test_a_models_past_is_its_earlier_exports_and_its_start(tmp_path):
    trained = finished_training(tmp_path, {"model": "start"}, {})
    names = {}
    for part in ("exports/step-00000002", "exports/step-00000005", "hf"):
        copy = shutil.copytree(trained.path / part, tmp_path / "copies" / part)
        names[part] = ancestry_of("m", str(copy)).names  # of a folder of which nothing is known
        assert len(names[part]) == 2  # of all files, and of the weights
    step_2, step_5, final = names.values()
    ancestries = [ancestry_of("m", str(trained.path / part)) for part in names]
    assert [(ancestry.names, ancestry.past, ancestry.whole) for ancestry in ancestries] == [
        (step_2, {"start"}, False), (step_5, {"start"} | step_2, False),
        (final | {trained.digest}, {"start"} | step_2 | step_5, False),
    ]  # fmt: skip
    assert ancestry_of("m", str(trained.path)) == ancestries[2]
    assert ancestries[2].manifest_entries() == {
        "past": sorted({"start", trained.digest, *step_2, *step_5, *final}), "past_is_whole": False
    }  # fmt: skip
    assert ancestries[2].has_been(ancestries[0])
    assert not ancestries[0].has_been(ancestries[1])
    from_random_weights = finished_training(tmp_path / "whole", {}, {})
    assert ancestry_of("m", str(from_random_weights.path)).whole
    counts = {"past": ["p"], "past_is_whole": True}
    of_known_past = finished_training(tmp_path / "told", {"model": "x"}, counts)
    start = ancestry_of("m", str(of_known_past.path / "exports" / "step-00000002"))
    assert (start.past, start.whole) == ({"p"}, True)
    assert RANDOM_WEIGHTS.manifest_entries() == {"past": [], "past_is_whole": True}
    assert is_export(trained.path / "exports" / "step-00000002")
    assert not is_export(trained.path / "hf")
    with pytest.raises(ConfigError, match="^m is './nowhere'"):
        ancestry_of("m", "./nowhere")
    with pytest.raises(ConfigError) as error:
        open_trained("model_folder", trained.path)
    assert str(error.value) == (
        f"model_folder is {str(trained.path)!r}: this model was adopted, so there is no record of "
        "when it saw which texts. Give a folder that the training stage wrote."
    )
    assert open_checkpoint(trained.path).evaluations.to_dict("list") == {"step": []}
    assert [*open_checkpoint(trained.path).exports.items()] == [
        (step, trained.path / "exports" / f"step-{step:08d}") for step in (2, 5)
    ]

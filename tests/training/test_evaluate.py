"""Evaluation losses during a training."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig

from contamination.core.distributed import World
from contamination.core.errors import ConfigError
from contamination.core.models import load_model
from contamination.injection.corpus import open_corpus
from contamination.training.loop import evaluate_losses, evaluation_token_ids
from contamination.training.loss import token_losses
from contamination.training.resources import flops_per_token, flops_utilization
from contamination.training.run import run
from contamination.training.trained_model import open_checkpoint
from tests.rounding import FORWARD

ALONE = World(0, 1, torch.device("cpu"))


def test_an_evaluation_is_the_mean_over_tokens_whatever_the_batches():
    model = load_model("model", "tests/golden/target")
    rows = [[3, 9, 27, 81, 12], [7, 8], [5, 6, 7, 8, 9, 10, 11]]
    each = [token_losses(model, torch.tensor([row])) for row in rows]
    expected = float(torch.cat([losses[0].detach() for losses in each]).mean())
    for micro in (1, 2, 5):
        found = evaluate_losses(model, {"members": rows}, micro, ALONE)
        assert found == {"loss_members": pytest.approx(expected, abs=FORWARD)}


def test_a_run_records_losses_and_exports(change, corpus_folder):
    stage = change(evaluate_every_steps=5, export_steps=[3], export_tokens=[900])
    trained = open_checkpoint(run(stage).path)
    assert trained.evaluations["step"].tolist() == [0, 5, 10, 12]
    assert {"loss_members", "loss_nonmembers"} <= {*trained.evaluations}
    assert list(trained.exports) == [3, 8]  # 4 × 32 tokens a step
    weights = [
        load_model("model", str(folder)).state_dict()["lm_head.weight"]
        for folder in (*trained.exports.values(), trained.hf)
    ]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
    assert any(name.startswith("exports/step-00000003/") for name in trained.artifact.files)


def test_the_first_examples_by_id_are_evaluated_up_to_a_sequences_end(corpus_folder):
    corpus = open_corpus(corpus_folder)
    found = evaluation_token_ids(corpus, corpus, max_examples=2)
    texts = corpus.examples.set_index("example_id")["text"]
    tokens = {name: corpus.tokenizer.hf(text)["input_ids"] for name, text in texts.items()}
    assert len(tokens["e0"]) < 2 < len(tokens["e1"]) < 32 < len(tokens["e3"])
    assert found["nonmembers"] == [tokens["e1"], tokens["e3"][:32]]
    assert found["members"] == [tokens["e2"][:32]]  # of e0 no token is predicted
    assert found["validation"] == [list(row["input_ids"]) for row in corpus.sequences]


def test_flops_are_counted_as_multiplications_of_the_weights():
    config = LlamaConfig(vocab_size=100, hidden_size=8, intermediate_size=16, num_hidden_layers=2,
                         num_attention_heads=2, tie_word_embeddings=False)  # fmt: skip
    weights = 2 * (4 * 8 * 8 + 3 * 8 * 16) + 100 * 8  # without norms and the input embedding
    norms = 5 * 8
    found = flops_per_token(config, weights + norms + 100 * 8, sequence_tokens=32)
    assert found == 6 * (weights + norms) + 12 * 2 * 8 * 32
    assert flops_utilization(1000.0, 2e9, peak_tflops=4.0, devices=2) == 0.25


def test_bfloat16_without_zero_is_refused(change):
    with pytest.raises(ConfigError, match="bfloat16 with ZeRO stage 0.*deepspeed=zero1"):
        run(change(dtype="bfloat16"))


def test_compiling_with_zero_3_is_refused(change):
    divided = {"zero_optimization": {"stage": 3}}
    with pytest.raises(
        ConfigError, match="training.compile is True: it does not work with ZeRO stage 3"
    ):
        run(replace(change(compile=True), deepspeed=divided))


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")
def test_bfloat16_trains_with_zero_1(change):
    stage = replace(change(dtype="bfloat16"), deepspeed={"zero_optimization": {"stage": 1}})
    trained = open_checkpoint(run(stage).path)
    losses = trained.metrics["loss"].to_numpy()
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    assert load_model("model", str(trained.hf), "bfloat16").dtype == torch.bfloat16
    assert math.isfinite(trained.metrics["grad_norm"].iloc[-1])

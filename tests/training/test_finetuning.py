"""Fine-tuning beside transformers' own loss, with -100 where no loss counts, a text at a time."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from contamination.core.distributed import World
from contamination.core.errors import ConfigError
from contamination.core.models import load_model
from contamination.injection.corpus import open_corpus
from contamination.training import loop
from contamination.training.config import ModelConfig, TrainingConfig, TrainingStage, WandbConfig
from contamination.training.data import PADDING, SequenceOrder, count_loss_tokens, read_batch
from contamination.training.loss import check_texts_are_separate, token_loss_sum, token_losses
from contamination.training.run import run
from contamination.training.trained_model import open_checkpoint
from tests.rounding import FORWARD, TRAINING
from tests.training.conftest import TARGET, TEXTS
from tests.training.processes import losses, train

EXACT = 1e-6
HERE = World(0, 1, torch.device("cpu"))


def texts_of(corpus):
    """Each text's tokens, output, sequence and places."""
    for row in corpus.instructions.itertuples():
        sequence = corpus.sequences[row.sequence]
        own = np.flatnonzero(sequence["text"] == row.Index)
        yield sequence["input_ids"][own], sequence["output"][own], row.sequence, own


def labelled(ids, output, loss_on):
    """Transformers' input and labels for one text."""
    ids = torch.tensor(ids, dtype=torch.long)[None]
    counts = torch.tensor(output)[None] == 1
    return ids, ids if loss_on == "all" else torch.where(counts, ids, -100)


@pytest.mark.parametrize(
    ("layout", "loss_on", "attention"),
    [("packed", "output", "sdpa"), ("padded", "all", "sdpa"), ("packed", "all", "eager")],
)
@torch.no_grad()
def test_each_tokens_loss_is_that_of_its_text_alone_in_transformers(
    sets, layout, loss_on, attention
):
    corpus = sets[layout]
    model = load_model("model", TARGET, "float64", attn_implementation=attention)
    assert sets["packed"].artifact.counts["sequences"] < TEXTS / 2
    batch = read_batch(corpus.sequences, np.arange(len(corpus.sequences)), loss_on)
    ours = token_losses(model, batch.ids_BS, batch.positions_BS) * batch.counted_BS
    total, count = 0.0, 0
    for ids, output, sequence, own in texts_of(corpus):
        given, labels = labelled(ids, output, loss_on)
        plain = model(input_ids=given, labels=labels)
        each = torch.nn.functional.cross_entropy(
            plain.logits[0, :-1].float(), labels[0, 1:], reduction="none"
        )
        found = ours[sequence, own[0] : own[-1]]
        torch.testing.assert_close(found, each, rtol=0, atol=EXACT)
        counted = int((labels[0, 1:] != -100).sum())
        assert float(found.sum() / counted) == pytest.approx(float(plain.loss), abs=FORWARD)
        total, count = total + float(plain.loss) * counted, count + counted
    everything = np.arange(len(corpus.sequences))
    assert count_loss_tokens(corpus.sequences, everything, loss_on) == count
    whole = token_loss_sum(model, batch)
    assert float(whole) / count == pytest.approx(total / count, abs=FORWARD)


@torch.no_grad()
def test_a_sequence_that_fills_a_batch_up_counts_for_nothing(sets):
    model, own = load_model("model", TARGET), sets["packed"].sequences
    alone, filled = np.array([1]), np.array([1, PADDING])
    sums = [float(token_loss_sum(model, read_batch(own, r, "output"))) for r in (alone, filled)]
    assert sums[0] == pytest.approx(sums[1], rel=1e-6)
    counts = [count_loss_tokens(own, r, "output") for r in (alone, filled)]
    assert counts[0] == counts[1]


def of(corpus, runs, **fields):
    """A stage that trains the golden model on the set."""
    own = {"learning_rate": 1e-3, "schedule": "constant", "batch_sequences": 4,
           "micro_batch_sequences": 2, "epochs": 2, "loss_on": "output"}  # fmt: skip
    return TrainingStage(
        runs=str(runs), corpus_folder=str(corpus.artifact.path), wandb=WandbConfig(mode="disabled"),
        model=ModelConfig(path=TARGET), training=TrainingConfig(**{**own, **fields}),
    )  # fmt: skip


def plain_epochs(stage):
    """The same training without an engine, each text by itself: the losses and the model."""
    config, corpus = stage.resolved().training, open_corpus(stage.corpus_folder)
    order = SequenceOrder(
        len(corpus.sequences), config.batch_sequences, config.order_seed, config.epochs
    )
    model = load_model("model", TARGET).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate,
                                  betas=(config.beta1, config.beta2), weight_decay=0)  # fmt: skip
    texts, found = [*texts_of(corpus)], []
    for step in range(order.steps):
        seen = [
            text for row in order.rows_of_step(step) if row >= 0 for text in texts if text[2] == row
        ]
        pairs = [labelled(ids, output, config.loss_on) for ids, output, *_ in seen]
        counts = [int((labels[0, 1:] != -100).sum()) for _, labels in pairs]
        each = [
            n * model(input_ids=i, labels=t).loss for n, (i, t) in zip(counts, pairs, strict=True)
        ]
        loss = sum(each) / sum(counts)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found, model


ZERO = {"zero_optimization": {"stage": 1}}
DEEPSPEED = pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")
CASES = {
    "packed": ("packed", {}, {}),
    "zero1": ("packed", ZERO, {"activation_checkpointing": True}),
    "padded": ("padded", {}, {"loss_on": "all"}),
}


@DEEPSPEED
@pytest.mark.parametrize(
    "case",
    ["packed", *(pytest.param(case, marks=pytest.mark.slow) for case in ("zero1", "padded"))],
)
def test_epochs_are_those_of_a_plain_loop_over_texts(sets, tmp_path, case):
    layout, deepspeed, fields = CASES[case]
    stage = replace(of(sets[layout], tmp_path, **fields), deepspeed=deepspeed)
    trained = open_checkpoint(run(stage).path)
    expected, model = plain_epochs(stage)
    np.testing.assert_allclose(trained.metrics["loss"], expected, rtol=0, atol=TRAINING)
    ours = load_model("model", str(trained.hf)).state_dict()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(ours[name], value, atol=1e-5, rtol=1e-3)
    counts, width = trained.artifact.counts, 96
    assert counts["tokens"] == 2 * len(sets[layout].sequences) * width
    assert trained.metrics["tokens"].iloc[-1] == counts["tokens"]
    assert expected[-1] < expected[0]


@pytest.mark.slow
@DEEPSPEED
def test_packed_and_padded_texts_are_one_training(sets, tmp_path):
    """In whole epochs, so that a step has the same texts."""
    found = {}
    for layout, corpus in sets.items():
        count = len(corpus.sequences)
        stage = of(corpus, tmp_path, batch_sequences=count, micro_batch_sequences=count, epochs=3)
        found[layout] = losses(run(stage).path)
    assert found["packed"] == pytest.approx(found["padded"], abs=FORWARD)


@pytest.mark.slow
@pytest.mark.parametrize("options", [("deepspeed=zero1",), ("deepspeed=zero3",)])
def test_two_processes_are_one_and_go_on_within_an_epoch(sets, tmp_path, options, monkeypatch):
    own = ("training.epochs=3", "training.loss_on=output", f"model.path={TARGET}", *options,
           "training.checkpoint_every_steps=2", "training.batch_sequences=4")  # fmt: skip
    place = sets["packed"].artifact.path
    one, two = (train(n, place, tmp_path / str(n), *own) for n in (1, 2))
    assert losses(two) == pytest.approx(losses(one), abs=TRAINING)


def killed_and_resumed(stage, runs, last, monkeypatch):
    """What the training leaves that is killed in step `last`, and run again, below `runs`."""
    real, stage = loop._check_finite, replace(stage, runs=str(runs))

    def killed(loss, norm, step, rows, place):
        if step == last:
            raise KeyboardInterrupt
        real(loss, norm, step, rows, place)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_check_finite", killed)
        with pytest.raises(KeyboardInterrupt):
            run(stage)
    return open_checkpoint(run(stage).path)


@pytest.mark.slow
@DEEPSPEED
def test_a_run_that_was_killed_within_an_epoch_goes_on(sets, tmp_path, monkeypatch):
    stage = of(sets["packed"], tmp_path / "whole", checkpoint_every_steps=1)
    whole = open_checkpoint(run(stage).path)
    last = len(whole.metrics) - 1  # of the second epoch
    again = killed_and_resumed(stage, tmp_path / "killed", last, monkeypatch)
    assert again.artifact.files == whole.artifact.files
    assert losses(again.artifact.path) == losses(whole.artifact.path)


SHAPE = {"vocab_size": 1024, "hidden_size": 16, "num_hidden_layers": 1}


def test_a_model_that_does_not_keep_texts_apart_is_refused(sets, monkeypatch):
    torch.manual_seed(0)
    kinds = {"mamba": {"state_size": 4}, "gpt2": {"n_head": 2}}
    models = {kind: AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SHAPE, **own))
              for kind, own in kinds.items()}  # fmt: skip
    check_texts_are_separate(models["gpt2"], sets["packed"].sequences, HERE)
    message = (
        r"^model\.path: this mamba does not separate packed texts: a text's losses change with the "
        r"text before it in its sequence\. Create the fine-tuning set with "
        r"finetuning\.layout=padded\.$"
    )
    with pytest.raises(ConfigError, match=message):
        check_texts_are_separate(models["mamba"], sets["packed"].sequences, HERE)
    check_texts_are_separate(models["mamba"], sets["padded"].sequences, HERE)
    packed = sets["packed"].sequences
    pairs = packed.select([row for row, number in enumerate(packed["texts"]) if number == 2])
    with pytest.raises(ConfigError, match=message):
        check_texts_are_separate(models["mamba"], pairs, HERE)
    seen = "transformers.models.gpt2.modeling_gpt2.create_causal_mask"
    monkeypatch.setattr(seen, lambda **_: None)
    message = "this gpt2 does not separate packed texts: a text's losses change with the text befo"
    with pytest.raises(ConfigError, match=message):
        check_texts_are_separate(models["gpt2"], sets["packed"].sequences, HERE)
    assert models["gpt2"].training
    with pytest.raises(ConfigError, match=r"this odd does .*: it accepts no positions \(no id\)"):
        check_texts_are_separate(Refusing(), sets["packed"].sequences, HERE)


class Refusing:
    """A model that takes no positions."""

    config = SimpleNamespace(model_type="odd")

    def eval(self):
        pass

    def __call__(self, **given):
        raise TypeError("no id")


def test_what_does_not_go_with_a_corpus_or_a_set_is_said(sets, stage, change, tmp_path):
    with pytest.raises(ConfigError, match="loss_on is 'output': a packed corpus has no prompts"):
        run(change(loss_on="output"))
    own = of(sets["packed"], tmp_path, evaluate_every_steps=1)
    own = replace(own, validation_folder=own.corpus_folder)
    with pytest.raises(ConfigError, match="validation_folder is .* it is a fine-tuning set"):
        run(own)
    with pytest.raises(ConfigError) as error:
        run(of(sets["packed"], tmp_path, shared_steps=1))
    assert str(error.value) == (
        "training.shared_steps is 1: a fine-tuning set's steps can't be shared: leave it out."
    )

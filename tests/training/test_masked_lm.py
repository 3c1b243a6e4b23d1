"""Training of masked language models, which reword texts."""

import re

import numpy as np
import pytest
import torch
from transformers import DataCollatorForLanguageModeling, RobertaForMaskedLM

from contamination.core.seeds import derive_seed
from contamination.data.perturbation.masked_lm import MaskedLM
from contamination.injection.corpus import open_corpus
from contamination.training.masked_lm import (
    MaskedLMStage,
    MaskedLMTrainingConfig,
    roberta_config,
    train_masked_lm,
)


def test_a_small_masked_lm_rewords(corpus_folder, tmp_path):
    config = MaskedLMTrainingConfig(hidden_size=16, layers=1, heads=2)
    stage = MaskedLMStage(str(tmp_path), str(corpus_folder), config)
    trained = train_masked_lm(stage)
    assert {*trained.counts} == {"steps", "last_loss"}
    assert trained.counts["steps"] == 3
    assert 0 < trained.counts["last_loss"] < 2 * np.log(1024)
    assert trained.path.parent == tmp_path / "masked_lm"
    assert re.fullmatch(r"roberta-toy-.*[0-9a-f]{12}", trained.path.name)
    assert trained.inputs == {"corpus": open_corpus(corpus_folder).artifact.digest}
    assert trained.config()["hidden_size"] == 16
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {f"hf/{name}" for name in names} <= {*trained.files}
    again = train_masked_lm(MaskedLMStage(str(tmp_path / "again"), str(corpus_folder), config))
    assert again.digest == trained.digest
    text = "Some words of a text that is to be reworded here"
    (reworded,) = MaskedLM(path=str(trained.path / "hf"), share=0.3).reword([text], ["x"], 0)
    changed = [a != b for a, b in zip(text.split(), reworded.split(), strict=True)]
    assert sum(changed) == 3


def test_it_reads_every_sequence_once_behind_its_share_of_masks(
    corpus_folder, tmp_path, monkeypatch
):
    read, forward = [], RobertaForMaskedLM.forward

    def spied(model, **batch):
        read.append((batch["input_ids"].clone(), batch["labels"].clone()))
        return forward(model, **batch)

    monkeypatch.setattr(RobertaForMaskedLM, "forward", spied)
    config = MaskedLMTrainingConfig(hidden_size=16, layers=1, heads=2, mask_share=0.4)
    train_masked_lm(MaskedLMStage(str(tmp_path), str(corpus_folder), config))
    order = np.random.default_rng(0).permutation(45)
    sequences, tokenizer = (
        open_corpus(corpus_folder).sequences,
        open_corpus(corpus_folder).tokenizer,
    )
    tokenizer.hf.add_special_tokens({"mask_token": "<mask>", "pad_token": "<pad>"})
    collator = DataCollatorForLanguageModeling(
        tokenizer.hf, mlm_probability=0.4, seed=derive_seed(0, "masks") % 2**31
    )
    assert [len(labels) for _, labels in read] == [15, 15, 15]
    for (ids, labels), rows in zip(read, np.split(order, 3), strict=True):
        batch = collator([{"input_ids": sequences[int(row)]["input_ids"]} for row in rows])
        assert torch.equal(ids, batch["input_ids"])
        assert torch.equal(labels, batch["labels"])
    ids, labels = (torch.cat(each) for each in zip(*read, strict=True))
    hidden = labels != -100
    sequence_ids = sequences["input_ids"]
    assert sorted(ids.where(~hidden, labels).tolist()) == sorted(map(list, sequence_ids))
    assert hidden.float().mean().item() == pytest.approx(0.4, abs=0.05)


def test_the_model_has_robertas_shape():
    config = MaskedLMTrainingConfig(hidden_size=24, layers=3, heads=6)
    roberta = roberta_config(config, 100, 32, pad_token_id=7, bos_token_id=8, eos_token_id=9)
    assert (roberta.vocab_size, roberta.hidden_size, roberta.intermediate_size) == (100, 24, 96)
    assert (roberta.num_hidden_layers, roberta.num_attention_heads) == (3, 6)
    assert (roberta.type_vocab_size, roberta.max_position_embeddings) == (1, 100 + 32 + 2)
    assert (roberta.pad_token_id, roberta.bos_token_id, roberta.eos_token_id) == (7, 8, 9)

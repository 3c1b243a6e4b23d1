"""Training of masked language models, which reword texts."""

import pytest
import torch
from transformers import RobertaForMaskedLM

from contamination.data.perturbation.masked_lm import MaskedLM
from contamination.injection.corpus import open_corpus
from contamination.training.masked_lm import MaskedLMStage, MaskedLMTrainingConfig, train_masked_lm


def test_a_small_masked_lm_rewords(corpus_folder, tmp_path):
    config = MaskedLMTrainingConfig(hidden_size=16, layers=1, heads=2)
    stage = MaskedLMStage(str(tmp_path), str(corpus_folder), config)
    made = train_masked_lm(stage)
    assert made.counts["steps"] == 3
    again = train_masked_lm(MaskedLMStage(str(tmp_path / "again"), str(corpus_folder), config))
    assert again.digest == made.digest
    text = "Some words of a text that is to be reworded here"
    (reworded,) = MaskedLM(path=str(made.path / "hf"), share=0.3).reword([text], ["x"], 0)
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
    ids, labels = (torch.cat(each) for each in zip(*read, strict=True))
    hidden = labels != -100
    sequences = open_corpus(corpus_folder).sequences["input_ids"]
    assert sorted(ids.where(~hidden, labels).tolist()) == sorted(map(list, sequences))
    assert hidden.float().mean().item() == pytest.approx(0.4, abs=0.05)

"""Trains a small masked language model on a base corpus, to create neighbours without the hub."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from contamination.core.artifacts import Artifact, WrittenFiles, build_or_open, run_folder
from contamination.core.config import POSITIVE, PROPER_FRACTION, Ranged, ranged_field
from contamination.core.progress import progress_bar
from contamination.core.seeds import derive_seed
from contamination.injection.corpus import PackedCorpus, open_corpus

KIND = "masked_lm"
MASK, PAD = "<mask>", "<pad>"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MaskedLMTrainingConfig(Ranged, node="masked_lm"):
    """A model of RoBERTa's architecture (Liu et al. 2019), trained for one epoch.

    Tokens are masked as in Devlin et al. 2019.
    """

    hidden_size: int = 96
    layers: int = 2
    heads: int = 4
    learning_rate: float = ranged_field(2e-3, POSITIVE)
    batch_sequences: int = 16
    mask_share: float = ranged_field(0.15, PROPER_FRACTION)
    seed: int = 0


@dataclass(frozen=True)
class MaskedLMStage:
    """The configuration of `train_masked_lm`."""

    runs: str
    corpus_folder: str
    masked_lm: MaskedLMTrainingConfig = field(default_factory=MaskedLMTrainingConfig)


def train_masked_lm(stage: MaskedLMStage) -> Artifact:
    """Returns a model that is trained once on every packed sequence, or a finished one."""
    corpus = open_corpus(stage.corpus_folder)
    inputs = {"corpus": corpus.artifact.digest}
    folder = run_folder(Path(stage.runs), KIND, f"roberta-{corpus.slug}", stage.masked_lm, inputs)
    artifact = build_or_open(
        folder, stage.masked_lm, inputs, partial(_train_and_save, stage.masked_lm, corpus)
    )
    log.info("masked language model: %s", artifact.path)
    return artifact


def _train_and_save(
    config: MaskedLMTrainingConfig, corpus: PackedCorpus, folder: Path
) -> WrittenFiles:
    import torch
    from transformers import DataCollatorForLanguageModeling, RobertaForMaskedLM

    tokenizer = corpus.tokenizer.hf
    tokenizer.add_special_tokens({"mask_token": MASK, "pad_token": PAD})
    width = len(corpus.sequences[0]["input_ids"])
    torch.manual_seed(derive_seed(config.seed, "masked_lm"))
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    special = {name: getattr(tokenizer, name) for name in names}
    model = RobertaForMaskedLM(roberta_config(config, len(tokenizer), width, **special)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, fused=True)
    masks = DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=config.mask_share, seed=derive_seed(config.seed, "masks") % 2**31
    )
    order = np.random.default_rng(config.seed).permutation(len(corpus.sequences))
    batches = np.array_split(order, -(-len(order) // config.batch_sequences))
    with progress_bar(total=len(batches), desc=None, stage="train masked_lm", unit="step") as bar:
        for rows in batches:
            batch = masks([{"input_ids": corpus.sequences[int(r)]["input_ids"]} for r in rows])
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            bar.update()
    shutil.rmtree(folder / "hf", ignore_errors=True)
    model.save_pretrained(folder / "hf")
    tokenizer.save_pretrained(folder / "hf")
    files = [f"hf/{p.name}" for p in sorted((folder / "hf").iterdir())]
    return WrittenFiles(files, {"steps": len(batches), "last_loss": loss.item()})


def roberta_config(
    config: MaskedLMTrainingConfig, vocabulary: int, width: int, **special: int | None
) -> Any:
    """Returns the RoBERTa config for a vocabulary, a sequence length and special tokens' ids."""
    from transformers import RobertaConfig

    return RobertaConfig(
        vocab_size=vocabulary,
        hidden_size=config.hidden_size,
        intermediate_size=4 * config.hidden_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        max_position_embeddings=vocabulary + width + 2,  # positions start after the padding's id
        type_vocab_size=1,
        **special,
    )

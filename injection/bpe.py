"""The byte-level BPE that a base model made from nothing starts with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from injection.config import TokenizerConfig
from injection.sources import Document

UNK, BOS, EOS = "<unk>", "<s>", "</s>"


def train_tokenizer(config: TokenizerConfig, documents: Iterator[Document], folder: Path) -> None:
    """Train a byte-level BPE that adds a BOS, as LLaMA's does; save it as a Hugging Face folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE(unk_token=UNK))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=[UNK, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_texts(documents, config.train_characters), trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, bpe.token_to_id(BOS))]
    )
    hf = PreTrainedTokenizerFast(
        tokenizer_object=bpe, unk_token=UNK, bos_token=BOS, eos_token=EOS, pad_token=EOS
    )
    hf.save_pretrained(folder)


def _texts(documents: Iterator[Document], characters: int) -> Iterator[str]:
    read = 0
    for document in documents:
        if read >= characters:
            return
        yield document.text
        read += len(document.text)

"""The tokenizer that packs, and the clean corpus as one long stream of tokens on disk."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contamination.core.errors import ArtifactError
from contamination.core.models import load_tokenizer, resolve, tokenizer_digest
from contamination.data.readers import Document
from contamination.injection.config import TokenizerConfig

Ids = np.ndarray[Any, np.dtype[np.int32]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Places = np.ndarray[Any, np.dtype[np.int64]]
WORD_STARTS = "ĠĊĉ▁ \n"  # space, newline, tab as byte-level BPEs spell them; SentencePiece's space
SENTENCE_END = re.compile(r"([.!?][\"')\]”’]*|Ċ|\n|<0x0A>)$")


@dataclass(frozen=True)
class Spans:
    """A text's tokens, n of them with the special ones around it."""

    ids: Ids
    """Shape (n,)."""
    ends: Places
    """The character after each token's last one, shape (n,); 0: it is a special token."""
    first: int
    """The text's own first token; those before it are special."""
    stop: int
    """Behind the text's own last token."""


class Tokenizer:
    """A Hugging Face fast tokenizer, with the few calls that packing needs."""

    def __init__(self, path: str) -> None:
        self._path = Path(resolve("tokenizer.path", path))
        self.hf = load_tokenizer("tokenizer.path", path)
        self._fast = self.hf.backend_tokenizer
        self._fast.no_truncation()
        self._fast.no_padding()

    def encode(self, text: str) -> list[int]:
        """Ids of a text without special tokens."""
        return list(self._fast.encode(text, add_special_tokens=False).ids)

    def encode_documents(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of whole documents, with the special tokens that the tokenizer itself adds (BOS)."""
        return [e.ids for e in self._fast.encode_batch_fast(list(texts), add_special_tokens=True)]

    def encode_spans(self, text: str, *, special: bool) -> Spans:
        """Ids of a text, and where in it each ends; `special`: with those that a document gets."""
        found = self._fast.encode(text, add_special_tokens=special)
        own = np.flatnonzero(np.array(found.special_tokens_mask, bool) == 0)
        first, stop = (int(own[0]), int(own[-1]) + 1) if len(own) else (0, 0)
        ends = np.array([end for _, end in found.offsets], np.int64)
        return Spans(np.array(found.ids, np.int32), ends, first, stop)

    def spelled(self, text: str) -> str:
        """The text in the form that it is tokenised in: composed, say, or in lower case.

        Texts that are equal in this form have equal tokens. SentencePiece's spaces are blanks.
        """
        normalizer = self._fast.normalizer
        return text if normalizer is None else normalizer.normalize_str(text).replace("▁", " ")

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids, special tokens left out."""
        return str(self._fast.decode([int(i) for i in ids], skip_special_tokens=True))

    def decode_all(self, ids: Ids) -> str:
        """The text of some ids, special tokens written out."""
        return str(self._fast.decode(ids.tolist(), skip_special_tokens=False))

    @cached_property
    def document_start(self) -> int | None:
        """The id that begins every document, its BOS; None: documents can't be told apart."""
        added = self.encode_documents([""])[0]
        return added[0] if added[:1] == [self.hf.bos_token_id] else None

    @cached_property
    def starts_word(self) -> Flags:
        """For each id, whether a word (or a line, or a document) can start with it; shape (V,)."""
        return self._table(lambda token: token[0] in WORD_STARTS)

    @cached_property
    def ends_sentence(self) -> Flags:
        """For each id, whether a sentence (or a line) can end with it; shape (V,)."""
        return self._table(lambda token: SENTENCE_END.search(token) is not None)

    @cached_property
    def fallback_bytes(self) -> dict[int, int]:
        """The byte of each id that stands for one, where the decoder joins such to characters."""
        vocabulary = self.hf.get_vocab()
        names = {f"<0x{byte:02X}>": byte for byte in range(256)}
        ids = {vocabulary[name]: byte for name, byte in names.items() if name in vocabulary}
        return ids if self.decode([i for i, byte in ids.items() if byte == ord("A")]) == "A" else {}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its files; of one from the hub or a GGUF file, of all that it tells apart."""
        if self._path.is_dir():
            return tokenizer_digest(self._path)
        definition = [self._fast.to_str(), self.hf.special_tokens_map]
        return hashlib.sha256(json.dumps(definition).encode()).hexdigest()

    @property
    def chat_digest(self) -> str:
        """SHA-256 of its chat template, or templates."""
        return hashlib.sha256(json.dumps(self.hf.chat_template).encode()).hexdigest()

    def _table(self, holds: Any) -> Flags:
        table = np.zeros(len(self.hf), dtype=bool)
        for token, index in self.hf.get_vocab().items():
            table[index] = bool(token) and holds(token)
        table[self.hf.all_special_ids] = True
        return table


@dataclass(frozen=True)
class Shard:
    """A part of the tokenised corpus: `<number>.ids` (int32) and `<number>.parquet` (documents)."""

    folder: Path
    number: int
    start: int
    """Place of its first token in the stream."""
    tokens: int

    def read(self, start: int, stop: int) -> Ids:
        """Its tokens start..stop, counted from its first one."""
        return read_ids(self.folder / f"{self.number:05d}.ids")[start:stop]

    def document_starts(self) -> Places:
        """Where in the shard its documents start, shape (n,)."""
        starts: Places = self._documents["start"].to_numpy()
        return starts

    def document_id(self, row: int) -> str:
        """The id of its document number `row`."""
        return str(self._documents["document_id"].iloc[row])

    @property
    def _documents(self) -> pd.DataFrame:
        return read_documents(self.folder / f"{self.number:05d}.parquet")


@dataclass(frozen=True)
class TokenStream:
    """The first `tokens` tokens of the clean corpus, document after document, read by the shard.

    Attributes:
        shards: the shards, in order.
        tokens: how many tokens are part of the stream; the shards may hold more.
    """

    shards: Sequence[Shard]
    tokens: int

    def __len__(self) -> int:
        return self.tokens

    @cached_property
    def document_starts(self) -> Places:
        """The place of each document's first token, over all shards, shape (n,)."""
        places = np.concatenate([s.document_starts() + s.start for s in self.shards])
        return places[places < self.tokens]

    @cached_property
    def _starts(self) -> Places:
        return np.array([s.start for s in self.shards], dtype=np.int64)

    def read(self, start: int, stop: int) -> Ids:
        """Tokens start..stop of the stream, clipped to its end.

        Raises:
            ArtifactError: a shard has fewer tokens than were written.
        """
        stop = min(stop, self.tokens)
        parts, place = [], start
        while place < stop:
            shard = self._shard_at(place)
            end = min(stop, shard.start + shard.tokens)
            parts.append(shard.read(place - shard.start, end - shard.start))
            if len(parts[-1]) != end - place:
                raise ArtifactError(
                    f"{shard.folder}: shard {shard.number} has not the {shard.tokens:,} tokens "
                    "that were written: give the same command again, it is made anew."
                )
            place = end
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)

    def document_before(self, position: int) -> tuple[str, int]:
        """Id and start of the document that holds the token before `position`."""
        shard = self._shard_at(position - 1)
        starts = shard.document_starts()
        row = int(np.searchsorted(starts, position - shard.start, side="left")) - 1
        return shard.document_id(row), shard.start + int(starts[row])

    def _shard_at(self, position: int) -> Shard:
        return self.shards[int(np.searchsorted(self._starts, position, side="right")) - 1]


@lru_cache(maxsize=64)  # of each subset of a mixture one is open
def read_ids(path: Path) -> Ids:
    """The tokens of a file of int32, mapped into memory."""
    return np.memmap(path, np.int32, "r") if path.stat().st_size else np.empty(0, np.int32)


@lru_cache(maxsize=4)  # reading goes on in order: a few tables in memory are enough
def read_documents(path: Path) -> pd.DataFrame:
    """document_id and start of a shard's documents, but for those that were left out."""
    table = pd.read_parquet(path, columns=["document_id", "start", "kept"])
    return table[table["kept"]]


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

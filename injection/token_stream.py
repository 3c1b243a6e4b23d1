"""The tokenizer, and the clean corpus as one long stream of tokens on disk."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from contamination.core.errors import ArtifactError
from contamination.core.models import load_tokenizer, resolve_model_path, tokenizer_digest
from contamination.data.readers import Document
from contamination.injection.config import TokenizerConfig

if TYPE_CHECKING:
    import pandas as pd

Ids = np.ndarray[Any, np.dtype[np.int32]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Places = np.ndarray[Any, np.dtype[np.int64]]
WORD_STARTS = "ĠĊĉ▁ \n"  # space, newline and tab of byte-level BPE; SentencePiece's space
SENTENCE_END = re.compile(r"([.!?][\"')\]”’]*|Ċ|\n|<0x0A>)$")


@dataclass(frozen=True)
class Spans:
    """A text's n tokens, including the special tokens around it."""

    ids: Ids
    """Shape (n,)."""
    ends: Places
    """The end of each token, as a character of the text, shape (n,); 0 for special tokens."""
    first: int
    """The first token of the text itself; earlier tokens are special."""
    stop: int
    """The end (exclusive) of the text's own tokens."""


class Tokenizer:
    """A Hugging Face fast tokenizer with the methods that packing needs."""

    def __init__(self, path: str) -> None:
        self._path = Path(resolve_model_path("tokenizer.path", path))
        self._requested_path = path

    @cached_property
    def hf(self) -> Any:
        """The tokenizer of transformers, which is loaded on first use."""
        return load_tokenizer("tokenizer.path", self._requested_path)

    @cached_property
    def _backend(self) -> Any:
        fast = self.hf.backend_tokenizer
        fast.no_truncation()
        fast.no_padding()
        return fast

    def encode(self, text: str) -> list[int]:
        """Returns a text's token ids, without special tokens."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def encode_documents(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the token ids of documents, including special tokens such as the BOS."""
        return [
            e.ids for e in self._backend.encode_batch_fast(list(texts), add_special_tokens=True)
        ]

    def encode_spans(self, text: str, *, special: bool) -> Spans:
        """Returns a text's token ids and their ends; `special` adds the tokens of a document."""
        encoding = self._backend.encode(text, add_special_tokens=special)
        text_tokens = np.flatnonzero(np.array(encoding.special_tokens_mask, bool) == 0)
        first_text_token, text_tokens_end = (
            (text_tokens[0], text_tokens[-1] + 1) if len(text_tokens) else (0, 0)
        )
        token_ends = np.array([end for _, end in encoding.offsets], np.int64)
        return Spans(
            np.array(encoding.ids, np.int32),
            token_ends,
            int(first_text_token),
            int(text_tokens_end),
        )

    def apply_normalizer(self, text: str) -> str:
        """Returns the text after the tokenizer's normalizer, for example in lower case.

        Texts that are equal in this form have equal tokens. SentencePiece's ▁ becomes a space.
        """
        normalizer = self._backend.normalizer
        return text if normalizer is None else normalizer.normalize_str(text).replace("▁", " ")

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of token ids, without special tokens."""
        return str(self._backend.decode([int(i) for i in ids], skip_special_tokens=True))

    def decode_with_special_tokens(self, ids: Ids) -> str:
        """Returns the text of token ids, including special tokens."""
        return str(self._backend.decode(ids.tolist(), skip_special_tokens=False))

    @cached_property
    def tokens_around_documents(self) -> tuple[list[int], list[int]]:
        """The special tokens before and after the text of every document, such as the BOS."""
        spans = self.encode_spans("a", special=True)
        return spans.ids[: spans.first].tolist(), spans.ids[spans.stop :].tolist()

    @cached_property
    def document_start_id(self) -> int | None:
        """The id of the BOS at the start of every document, or None if there is none."""
        added = self.encode_documents([""])[0]
        return added[0] if added[:1] == [self.hf.bos_token_id] else None

    @cached_property
    def is_word_start(self) -> Flags:
        """Whether a word, a line or a document can start with each id, shape (vocabulary,)."""
        return self._flag_vocabulary(lambda token: token[0] in WORD_STARTS)

    @cached_property
    def is_sentence_end(self) -> Flags:
        """Whether a sentence or a line can end with each id, shape (vocabulary,)."""
        return self._flag_vocabulary(lambda token: SENTENCE_END.search(token) is not None)

    @cached_property
    def byte_by_token_id(self) -> dict[int, int]:
        """The byte of each byte-fallback token id, if the decoder joins bytes to characters."""
        vocabulary = self.hf.get_vocab()
        byte_by_token = {f"<0x{byte:02X}>": byte for byte in range(256)}
        byte_by_id = {
            vocabulary[name]: byte for name, byte in byte_by_token.items() if name in vocabulary
        }
        return (
            byte_by_id
            if self.decode([i for i, byte in byte_by_id.items() if byte == ord("A")]) == "A"
            else {}
        )

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the tokenizer's files, or of its definition if it is not a folder."""
        if self._path.is_dir():
            return tokenizer_digest(self._path)
        definition = [self._backend.to_str(), self.hf.special_tokens_map]
        return hashlib.sha256(json.dumps(definition).encode()).hexdigest()

    @property
    def chat_template_digest(self) -> str:
        """The SHA-256 of the tokenizer's chat template or templates."""
        return hashlib.sha256(json.dumps(self.hf.chat_template).encode()).hexdigest()

    def _flag_vocabulary(self, condition: Callable[[str], bool]) -> Flags:
        """Returns whether each token meets a condition; special tokens always do."""
        flags = np.zeros(len(self.hf), dtype=bool)
        for token, token_id in self.hf.get_vocab().items():
            flags[token_id] = bool(token) and condition(token)
        flags[self.hf.all_special_ids] = True
        return flags


@dataclass(frozen=True)
class TokenShard:
    """A part of the tokenized corpus: `<number>.ids` (int32) and `<number>.parquet` (documents)."""

    folder: Path
    number: int
    start: int
    """The position of its first token in the stream."""
    tokens: int

    def read(self, start: int, stop: int) -> Ids:
        """Returns the tokens start..stop, relative to the shard's first token."""
        return read_ids(self.folder / f"{self.number:05d}.ids")[start:stop]

    def document_starts(self) -> Places:
        """Returns the first token of each of the shard's documents, shape (documents,)."""
        starts: Places = self._document_table["start"].to_numpy()
        return starts

    def document_id(self, row: int) -> str:
        """Returns the id of the document in this row."""
        return str(self._document_table["document_id"].iloc[row])

    @property
    def _document_table(self) -> pd.DataFrame:
        return read_kept_documents(self.folder / f"{self.number:05d}.parquet")


@dataclass(frozen=True)
class TokenStream:
    """The first `tokens` tokens of the clean corpus, document by document.

    Attributes:
        shards: the shards, in order.
        tokens: the length of the stream; the shards may have more tokens.
    """

    shards: Sequence[TokenShard]
    tokens: int

    def __len__(self) -> int:
        return self.tokens

    @cached_property
    def document_starts(self) -> Places:
        """The position of each document's first token in the stream, shape (documents,)."""
        starts = np.concatenate([s.document_starts() + s.start for s in self.shards])
        return starts[starts < self.tokens]

    @cached_property
    def _shard_starts(self) -> Places:
        return np.array([s.start for s in self.shards], dtype=np.int64)

    def read(self, start: int, stop: int) -> Ids:
        """Returns the tokens start..stop of the stream, up to its end.

        Raises:
            ArtifactError: a shard has fewer tokens than were written.
        """
        stop = min(stop, self.tokens)
        parts, position = [], start
        while position < stop:
            shard = self._shard_at(position)
            end = min(stop, shard.start + shard.tokens)
            parts.append(shard.read(position - shard.start, end - shard.start))
            if len(parts[-1]) != end - position:
                raise ArtifactError(
                    f"{shard.folder}: shard {shard.number} lacks some of its {shard.tokens:,} "
                    "tokens: run the same command again, which rewrites it."
                )
            position = end
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)

    def document_before(self, position: int) -> tuple[str, int]:
        """Returns id and start of the document that contains the token before `position`."""
        shard = self._shard_at(position - 1)
        starts = shard.document_starts()
        row = int(np.searchsorted(starts, position - shard.start, side="left")) - 1
        return shard.document_id(row), shard.start + int(starts[row])

    def _shard_at(self, position: int) -> TokenShard:
        return self.shards[int(np.searchsorted(self._shard_starts, position, side="right")) - 1]


@lru_cache(maxsize=64)  # one file for each subset of a mixture
def read_ids(path: Path) -> Ids:
    """Returns a file of int32 tokens as a memory-mapped array."""
    return np.memmap(path, np.int32, "r") if path.stat().st_size else np.empty(0, np.int32)


@lru_cache(maxsize=4)  # files are read in order, so a few tables are enough
def read_kept_documents(path: Path) -> pd.DataFrame:
    """Returns the document_id and start of the documents of a shard that were not left out."""
    import pandas as pd

    table = pd.read_parquet(path, columns=["document_id", "start", "kept"])
    return table[table["kept"]]


UNK, BOS, EOS = "<unk>", "<s>", "</s>"


def train_tokenizer(config: TokenizerConfig, documents: Iterator[Document], folder: Path) -> None:
    """Trains a byte-level BPE that adds a BOS, like LLaMA's; saves it as a Hugging Face folder."""
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
    bpe.train_from_iterator(_iter_first_texts(documents, config.train_characters), trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, bpe.token_to_id(BOS))]
    )
    hf = PreTrainedTokenizerFast(
        tokenizer_object=bpe, unk_token=UNK, bos_token=BOS, eos_token=EOS, pad_token=EOS
    )
    hf.save_pretrained(folder)


def _iter_first_texts(documents: Iterator[Document], wanted_characters: int) -> Iterator[str]:
    n_read = 0
    for document in documents:
        if n_read >= wanted_characters:
            return
        yield document.text
        n_read += len(document.text)

"""Searches a corpus for the n-grams of texts: the texts are indexed and the corpus is streamed.

So memory grows with the texts and not with the corpus. The result is exact: hashes select
candidate n-grams, whose words are then compared (`data.ngrams`). The Bloom filter of MIMIR's
authors has false positives, and its memory grows with the corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from contamination.core.progress import progress
from contamination.data.ngrams import Index, Numbers, Words, words_of
from contamination.data.readers import ByFile, Corpus
from contamination.injection.corpus import PackedCorpus
from contamination.injection.token_stream import Ids


class SearchableCorpus(Protocol):
    """A corpus in pieces that can be read independently."""

    def __len__(self) -> int:
        """Returns the number of pieces."""
        ...

    def texts(self, piece: int, ngram: int) -> Iterator[str]:
        """Yields a piece's texts; no n-gram of `ngram` words spans two of them."""
        ...


@dataclass(frozen=True)
class DocumentTexts:
    """The documents of a corpus of conf/corpus; its files are the pieces if it has files."""

    corpus: Corpus | ByFile

    @property
    def _files(self) -> Sequence[Any] | None:
        return getattr(self.corpus, "shards", None)

    def __len__(self) -> int:
        """Returns the number of pieces."""
        return 1 if self._files is None else len(self._files)

    def texts(self, piece: int, ngram: int) -> Iterator[str]:
        """Yields a piece's texts."""
        if self._files is None:
            return (document.text for document in self.corpus.documents())
        files: Any = self.corpus
        return (document.text for document in files.documents_in(self._files[piece]))


BORDER = " \uffff "
"""A word between two documents that is in no text, so that no n-gram spans both. It is a Unicode
noncharacter: `words_of` drops control characters, so that they would be no border."""
CARRIED_TOKENS = 16
"""The smallest number of tokens per word of an n-gram that are repeated at the start of the next
block; long words, such as clauses of Chinese, need more."""


@dataclass(frozen=True)
class PackedTexts:
    """The packed sequences of a corpus folder, as a model saw them, with copies of members."""

    corpus: PackedCorpus

    def __len__(self) -> int:
        """Returns 1: the sequences are a single piece."""
        return 1

    def texts(self, piece: int, ngram: int) -> Iterator[str]:
        """Yields the text of each block, which repeats the end of the block before it."""
        carried = np.empty(0, np.int32)
        for block in self.corpus.blocks():
            ids = np.concatenate([carried, block.reshape(-1)])
            yield self._decode_whole_words(ids, len(carried) > 0, True)
            carried = self._tokens_to_carry(ids, ngram)
        yield self._decode_whole_words(carried, True, False)

    def _tokens_to_carry(self, ids: Ids, ngram: int) -> Ids:
        """Returns the last tokens, enough for an n-gram and the word before it that may be cut."""
        tokens = CARRIED_TOKENS * ngram
        while tokens < len(ids):
            carried = ids[-tokens:]
            if len(words_of(self._decode_whole_words(carried, True, False))) > ngram:
                return carried
            tokens *= 2
        return ids

    def _decode_whole_words(self, ids: Ids, cut_before: bool, cut_after: bool) -> str:
        """Returns the text between special tokens, without words cut by the block's ends."""
        tokenizer = self.corpus.tokenizer
        special = np.isin(ids, tokenizer.hf.all_special_ids)
        document_ids = np.split(ids, np.flatnonzero(special))
        masks = np.split(special, np.flatnonzero(special))
        pairs = zip(document_ids, masks, strict=True)
        texts = [tokenizer.decode(tokens[~is_special].tolist()) for tokens, is_special in pairs]
        if cut_before:
            texts[0] = " ".join(texts[0].split()[1:])
        if cut_after:
            texts[-1] = " ".join(texts[-1].split()[:-1])
        return BORDER.join(texts)


@dataclass(frozen=True)
class NgramSearch:
    """Searches for the texts' n-grams in a corpus, piece by piece (see `core.tasks.Task`)."""

    texts: Sequence[str]
    ngram: int
    corpus: SearchableCorpus
    folder: Path

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        words = dict.fromkeys(word for text in self.texts for word in words_of(text))
        return {word: number for number, word in enumerate(words, 1)}

    @cached_property
    def _numbered_texts(self) -> list[Words]:
        numbers = Numbers(self._vocabulary)
        return [numbers.of(text) for text in self.texts]

    @cached_property
    def _index(self) -> Index:
        return Index(self._numbered_texts, self.ngram)

    def __len__(self) -> int:
        """Returns the number of the corpus's pieces."""
        return len(self.corpus)

    def done(self, piece: int) -> Path:
        """Returns the file that marks a piece as read."""
        return self.folder / f"{piece:05d}.json"

    def files(self, piece: int) -> list[Path]:
        """Returns the file with one bit per n-gram, set if the piece includes it."""
        return [self.folder / f"{piece:05d}.npy"]

    def make(self, piece: int) -> dict[str, Any]:
        """Reads a piece; returns the numbers of its texts and characters."""
        numbers, present = Numbers(self._vocabulary), np.zeros(len(self._index.grams), bool)
        texts = characters = 0
        with progress(desc="overlap", unit="character", unit_scale=True) as bar:
            for chunk, size in iter_chunks(self.corpus.texts(piece, self.ngram)):
                present[self._index.places(numbers.of(chunk))[1]] = True
                texts, characters = texts + size, characters + len(chunk)
                bar.update(len(chunk))
        np.save(self.files(piece)[0], np.packbits(present))
        return {"texts": texts, "characters": characters}

    def shares_in_corpus(self) -> NDArray[np.float64]:
        """Returns each text's share of n-grams in the corpus; NaN if the text has no n-gram."""
        count = len(self._index.grams)
        present = np.zeros(count, bool)
        for piece in range(len(self)):
            present |= np.unpackbits(np.load(self.files(piece)[0]), count=count).astype(bool)
        grams_by_text = (self._index.places(words)[1] for words in self._numbered_texts)
        return np.array([present[g].mean() if len(g) else np.nan for g in grams_by_text])


CHUNK_CHARACTERS = 1 << 18


def iter_chunks(texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yields chunks of texts with a border between them, and the number of texts in each."""
    chunk: list[str] = []
    characters = 0
    for text in texts:
        chunk.append(text)
        characters += len(text)
        if characters >= CHUNK_CHARACTERS:
            yield BORDER.join(chunk), len(chunk)
            chunk, characters = [], 0
    if chunk:
        yield BORDER.join(chunk), len(chunk)

"""Which n-grams of some texts a corpus holds: the corpus streams by, the texts are indexed.

So memory goes with the texts and not with the corpus, and the answer is exact: a hash proposes an
n-gram, then its words are compared (`data.ngrams`). A Bloom filter of the corpus, as MIMIR's
authors use, calls some n-grams found that are not, and takes memory by the corpus.
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

CHUNK_CHARACTERS = 1 << 18
BORDER = " \uffff "
"""Between two documents: a word that no text has, so that no n-gram crosses."""
CARRIED_TOKENS = 16
"""Tokens for each word of an n-gram that are read again at the start of the next block, at least:
more where words are longer, such as clauses of Chinese."""


class Read(Protocol):
    """A corpus to search, in pieces that can be read on their own."""

    def __len__(self) -> int:
        """How many pieces."""
        ...

    def texts(self, piece: int, ngram: int) -> Iterator[str]:
        """A piece's texts; no n-gram of so many words crosses from one to the next."""
        ...


@dataclass(frozen=True)
class Documents:
    """The documents of a corpus as conf/corpus has them; files are pieces where they can be."""

    corpus: Corpus | ByFile

    @property
    def _files(self) -> Sequence[Any] | None:
        return getattr(self.corpus, "shards", None)

    def __len__(self) -> int:
        """See `Read`."""
        return 1 if self._files is None else len(self._files)

    def texts(self, piece: int, ngram: int) -> Iterator[str]:
        """See `Read`."""
        if self._files is None:
            return (document.text for document in self.corpus.documents())
        files: Any = self.corpus
        return (document.text for document in files.documents_in(self._files[piece]))


@dataclass(frozen=True)
class Packed:
    """The packed sequences of a corpus folder: what a model saw, copies of members included."""

    corpus: PackedCorpus

    def __len__(self) -> int:
        """See `Read`."""
        return 1

    def texts(self, piece: int, ngram: int) -> Iterator[str]:
        """See `Read`. A block begins with the last tokens of the one before, cut at a blank."""
        held = np.empty(0, np.int32)
        for block in self.corpus.blocks():
            ids = np.concatenate([held, block.reshape(-1)])
            yield self._whole_words(ids, len(held) > 0, True)
            held = self._carried(ids, ngram)
        yield self._whole_words(held, True, False)

    def _carried(self, ids: Ids, ngram: int) -> Ids:
        """The last tokens, enough for the words of an n-gram and the one that is cut before it."""
        tokens = CARRIED_TOKENS * ngram
        while tokens < len(ids):
            held = ids[-tokens:]
            if len(words_of(self._whole_words(held, True, False))) > ngram:
                return held
            tokens *= 2
        return ids

    def _whole_words(self, ids: Ids, cut_before: bool, cut_after: bool) -> str:
        """The texts between special tokens, without a word that the block's ends may cut."""
        tokenizer = self.corpus.tokenizer
        special = np.isin(ids, tokenizer.hf.all_special_ids)
        parts = np.split(ids, np.flatnonzero(special))
        flags = np.split(special, np.flatnonzero(special))
        texts = [tokenizer.decode(p[~f].tolist()) for p, f in zip(parts, flags, strict=True)]
        if cut_before:
            texts[0] = " ".join(texts[0].split()[1:])
        if cut_after:
            texts[-1] = " ".join(texts[-1].split()[:-1])
        return BORDER.join(texts)


@dataclass(frozen=True)
class Search:
    """Looks for the texts' n-grams in a corpus, piece by piece (see `core.tasks.Task`)."""

    texts: Sequence[str]
    ngram: int
    corpus: Read
    folder: Path

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        words = dict.fromkeys(word for text in self.texts for word in words_of(text))
        return {word: number for number, word in enumerate(words, 1)}

    @cached_property
    def _numbered(self) -> list[Words]:
        numbers = Numbers(self._vocabulary)
        return [numbers.of(text) for text in self.texts]

    @cached_property
    def _index(self) -> Index:
        return Index(self._numbered, self.ngram)

    def __len__(self) -> int:
        """The corpus's pieces."""
        return len(self.corpus)

    def done(self, piece: int) -> Path:
        """What says that a piece was read."""
        return self.folder / f"{piece:05d}.json"

    def files(self, piece: int) -> list[Path]:
        """Which n-grams it has, a bit each."""
        return [self.folder / f"{piece:05d}.npy"]

    def make(self, piece: int) -> dict[str, Any]:
        """Read a piece; returns how much it has."""
        numbers, found = Numbers(self._vocabulary), np.zeros(len(self._index.grams), bool)
        texts = characters = 0
        with progress(desc="overlap", unit="character", unit_scale=True) as bar:
            for chunk, size in joined(self.corpus.texts(piece, self.ngram)):
                found[self._index.places(numbers.of(chunk))[1]] = True
                texts, characters = texts + size, characters + len(chunk)
                bar.update(len(chunk))
        np.save(self.files(piece)[0], np.packbits(found))
        return {"texts": texts, "characters": characters}

    def shares(self) -> NDArray[np.float64]:
        """Of each text, the share of its n-grams that the corpus has; NaN where it has none."""
        count = len(self._index.grams)
        found = np.zeros(count, bool)
        for piece in range(len(self)):
            found |= np.unpackbits(np.load(self.files(piece)[0]), count=count).astype(bool)
        rows = (self._index.places(words)[1] for words in self._numbered)
        return np.array([found[own].mean() if len(own) else np.nan for own in rows])


def joined(texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The texts in chunks of some length, with a border between them; and how many each has."""
    held: list[str] = []
    size = 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= CHUNK_CHARACTERS:
            yield BORDER.join(held), len(held)
            held, size = [], 0
    if held:
        yield BORDER.join(held), len(held)

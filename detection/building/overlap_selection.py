"""`python -m detection select`: selects non-members by their overlap with a corpus, like MIMIR.

Duan et al. 2024 ("Do membership inference attacks work on large language models?", section 4) call
a text a non-member if at most x% of its n-grams are in the training data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from contamination.core.artifacts import Artifact, WrittenFiles
from contamination.core.config import (
    instantiate_node,
)
from contamination.core.errors import DataError
from contamination.core.progress import progress_bar
from contamination.core.task_runner import TaskRunner
from contamination.data.config import ExamplesConfig
from contamination.data.examples import FIELDS, lines_digest, row_id
from contamination.data.ngrams import NgramIndex, WordNumbers, Words, words_of
from contamination.data.readers import Corpus, CorpusByFile
from contamination.data.readers.rows import Tally
from contamination.data.rows import fold_name, raw_rows
from contamination.data.texts import Text, Texts, clusters_of
from contamination.detection.building import datasheet
from contamination.detection.config import SelectConfig, SelectStage
from contamination.detection.examples import open_examples
from contamination.injection.corpus import PackedCorpus, open_corpus
from contamination.injection.token_stream import Ids


def select_nonmembers(stage: SelectStage) -> Artifact:
    """Selects the non-members, unless the artefact exists; returns the artefact.

    Raises:
        ArtifactError: the corpus folder is unfinished.
        DataError: the candidates can't be used, or none is kept.
    """
    candidates = open_examples(stage.examples)
    corpus, digest = _open_corpus_and_digest(stage)
    inputs = {"candidates": _candidates_digest(candidates), "corpus": digest}
    make = partial(_select_and_write, stage, candidates, corpus, inputs)
    return datasheet.build_benchmark(
        stage.runs, split_name(stage.select), stage, stage.select, inputs, make
    )


def split_name(config: SelectConfig) -> str:
    """Returns MIMIR's name of the split, such as ngram_13_0.2."""
    return f"ngram_{config.ngram}_{config.max_share:g}"


def _open_corpus_and_digest(stage: SelectStage) -> tuple[SearchableCorpus, str]:
    if stage.corpus_folder is not None:
        corpus = open_corpus(stage.corpus_folder)
        return PackedTexts(corpus), corpus.artifact.digest
    source = instantiate_node("corpus", stage.corpus or {})
    return DocumentTexts(source), source.fingerprint()


def _candidates_digest(candidates: Texts) -> str:
    return lines_digest(f"{text.sha256} {text.example_id} {text.label}" for text in candidates)


ABOUT = (
    "Non-members are candidates with at most the given share of their n-grams (words in a row, "
    "without regard to case and punctuation) in the corpus. Candidates that are labelled as "
    "members stay members, whatever their overlap. Few shared n-grams make a text unusual, so the "
    "selection itself may shift the style: `selection` shows how well a classifier of the texts "
    "alone separates kept from left-out candidates. The shares are exact, without a Bloom filter."
)


def _select_and_write(
    stage: SelectStage,
    candidates: Texts,
    corpus: SearchableCorpus,
    inputs: Mapping[str, str],
    folder: Path,
    intermediates_folder: Path,
) -> WrittenFiles:
    config = stage.select
    search = NgramSearch(
        [text.text for text in candidates], config.ngram, corpus, intermediates_folder
    )
    read_counts = TaskRunner(intermediates_folder, num_proc=config.processes).run("overlap", search)
    shares = search.shares_in_corpus()
    members = np.array([text.label is True for text in candidates])
    selected = (shares <= config.max_share) & ~members
    if not selected.any():
        smallest = float(np.min(shares[~members & ~np.isnan(shares)], initial=np.inf))
        raise DataError(
            f"examples.path is {stage.examples.path!r}: of {int((~members).sum())} candidates none "
            f"has at most select.max_share={config.max_share:g} of its {config.ngram}-grams in the "
            f"corpus (the least share is {smallest:g}). Raise it, or give other candidates."
        )
    extra_columns = _extra_columns_by_id(stage.examples)
    rows = [
        _output_row(text, share, extra_columns.get(text.example_id, {}))
        for text, share, is_row in zip(candidates, shares, selected | members, strict=True)
        if is_row
    ]
    blind_row = _blind_auroc_of_selection(candidates, shares, members, selected)
    sheet = {
        "name": f"{split_name(config)} of {Path(stage.examples.path).name}",
        "about": ABOUT,
        "settings": {"ngram": config.ngram, "max_share": config.max_share},
        "sources": datasheet.digest_rows(inputs),
        "read": {name: sum(c[name] for c in read_counts) for name in ("texts", "characters")},
        "candidates": _count_candidates(shares, members, selected),
        "selection": {"kept against left out": blind_row},
        "shares": _share_histogram(shares, members),
    }
    return datasheet.write_benchmark(folder, sheet, {split_name(config): rows}, "other")


def _count_candidates(
    shares: NDArray[np.float64], members: NDArray[np.bool_], selected: NDArray[np.bool_]
) -> dict[str, int]:
    is_too_short = np.isnan(shares) & ~members
    return {
        "members": int(members.sum()),
        "kept": int(selected.sum()),
        "left_out_for_overlap": int((~members & ~selected & ~is_too_short).sum()),
        "left_out_as_shorter_than_an_n-gram": int(is_too_short.sum()),
    }


def _blind_auroc_of_selection(
    candidates: Texts,
    shares: NDArray[np.float64],
    members: NDArray[np.bool_],
    selected: NDArray[np.bool_],
) -> dict[str, Any]:
    """Returns the blind AUROC of kept candidates against those left out for their overlap."""
    indices = np.flatnonzero(~members & ~np.isnan(shares)).tolist()
    texts = [candidates[index] for index in indices]
    labels = [int(selected[index]) for index in indices]
    return datasheet.blind_auroc_row([text.text for text in texts], labels, clusters_of(texts))


def _share_histogram(
    shares: NDArray[np.float64], members: NDArray[np.bool_]
) -> list[dict[str, Any]]:
    edges = np.linspace(0, 1, 11)
    return [
        {
            "share": f"{low:.1f} to {high:.1f}",
            "candidates": _count_between(shares[~members], low, high),
            "members": _count_between(shares[members], low, high),
        }
        for low, high in zip(edges[:-1], edges[1:], strict=True)
    ]


def _count_between(shares: NDArray[np.float64], low: float, high: float) -> int:
    """Returns how many shares are in (low, high]; a share of 0 is in the first interval."""
    return int((((shares > low) | ((low == 0) & (shares == 0))) & (shares <= high)).sum())


def _extra_columns_by_id(examples: ExamplesConfig) -> dict[str, Mapping[str, Any]]:
    if not Path(examples.path).expanduser().is_file():
        return {}
    rows = raw_rows(examples, Tally("skip", "examples.on_error"))
    return {
        row_id(row): {k: v for k, v in row.value.items() if fold_name(k) not in FIELDS}
        for row in rows
    }


def _output_row(text: Text, share: float, extra_columns: Mapping[str, Any]) -> dict[str, Any]:
    label = int(text.label is True)
    row = {**extra_columns, "id": text.example_id, "text": text.text, "label": label}
    if text.cluster:
        row["cluster"] = text.cluster
    if text.output_start is not None:
        row["output_start"] = text.output_start
    overlap = None if np.isnan(share) else round(float(share), 6)
    return {**row, "benchmark": text.benchmark, "overlap": overlap}


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

    corpus: Corpus | CorpusByFile

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
        for block in self.corpus.iter_blocks():
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
    """Searches for the texts' n-grams in a corpus, piece by piece (see `core.task_runner.Task`).

    The texts are indexed and the corpus is streamed, so that memory grows with the texts and not
    with the corpus. The result is exact: hashes select candidate n-grams, whose words are then
    compared (`data.ngrams`). The Bloom filter of MIMIR's authors has false positives, and its
    memory grows with the corpus.
    """

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
        numbers = WordNumbers(self._vocabulary)
        return [numbers.of(text) for text in self.texts]

    @cached_property
    def _index(self) -> NgramIndex:
        return NgramIndex(self._numbered_texts, self.ngram)

    def __len__(self) -> int:
        """Returns the number of the corpus's pieces."""
        return len(self.corpus)

    def done(self, piece: int) -> Path:
        """Returns the file that marks a piece as read."""
        return self.folder / f"{piece:05d}.json"

    def files(self, piece: int) -> list[Path]:
        """Returns the file with one bit per n-gram, set if the piece includes it."""
        return [self.folder / f"{piece:05d}.npy"]

    def process_piece(self, piece: int) -> dict[str, Any]:
        """Reads a piece; returns the numbers of its texts and characters."""
        numbers, present = WordNumbers(self._vocabulary), np.zeros(len(self._index.grams), bool)
        texts = characters = 0
        with progress_bar(desc="overlap", unit="character", unit_scale=True) as bar:
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

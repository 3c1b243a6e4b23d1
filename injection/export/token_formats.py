"""Exports as tokens (datatrove, Megatron, OLMo): a file of tokens, and an index of documents.

Each packed sequence is one document, in order. A trainer that shuffles and joins documents does not
cut any of them if its samples are as long as a packed sequence.
"""

from __future__ import annotations

import gzip
import struct
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from contamination.core.errors import DataError, require
from contamination.injection.corpus import ContaminatedFolder, PackedCorpus
from contamination.injection.export.base import (
    Counts,
    ExportedFiles,
    Format,
    iter_blocks_with_progress,
    with_stream_places,
)
from contamination.injection.packing import BLOCK_TOKENS, locate_in_part
from contamination.injection.token_stream import Ids, Places
from contamination.injection.verification import NATURAL_COLUMN, Proof, verify

if TYPE_CHECKING:
    import pandas as pd

BYTE_COLUMNS = ["document", "byte_start", "byte_end"]


@dataclass(frozen=True)
class TokenFormat(Format):
    """A file of tokens of type `dtype`; None: the first of `DTYPES` that fits the vocabulary."""

    DATA: ClassVar[str]
    INDEX: ClassVar[str]
    DTYPES: ClassVar[tuple[str, ...]]
    opened: ClassVar[Any] = staticmethod(open)
    """Opens the index file."""

    dtype: str | None = None

    @abstractmethod
    def iter_index_bytes(self, counts: Counts) -> Iterator[bytes]:
        """Yields the content of the file `INDEX`, part by part."""

    def write(self, corpus: PackedCorpus, folder: Path) -> ExportedFiles:
        """See `Format`."""
        dtype, width = self._choose_dtype(corpus.vocabulary_size), corpus.sequence_tokens
        counts = {
            "dtype": dtype,
            "bytes_a_token": np.dtype(dtype).itemsize,
            "sequence_tokens": width,
        }
        counts |= {name: corpus.artifact.counts[name] for name in ("sequences", "tokens")}
        counts["window"] = list(corpus.window_tokens)
        with (folder / self.DATA).open("wb") as stream:
            for block in iter_blocks_with_progress(corpus):
                stream.write(block.astype(_stored_dtype(counts)).tobytes())
        with self.opened(folder / self.INDEX, "wb") as stream:
            stream.writelines(self.iter_index_bytes(counts))
        return ExportedFiles(
            [self.DATA, self.INDEX], with_byte_places(corpus.ledger, counts), counts
        )

    def prove(self, export: ContaminatedFolder) -> Proof:
        """See `Format`."""
        counts, ledger, folder = export.artifact.counts, export.ledger, export.artifact.path
        self._check_index(folder, counts)
        blocks, window = _read_documents(folder / self.DATA, counts), tuple(counts["window"])
        examples = export.examples
        natural = NATURAL_COLUMN in examples and bool(examples[NATURAL_COLUMN].any())
        proof = verify(blocks, examples, ledger, export.tokenizer, window, natural=natural)
        moved = (with_byte_places(ledger, counts)[BYTE_COLUMNS] != ledger[BYTE_COLUMNS]).any(axis=1)
        for row in ledger[moved].itertuples():
            span = f"document {row.document}, bytes {row.byte_start}..{row.byte_end}"
            problem = f"{span} are not sequence {row.sequence}, token {row.token_start}"
            proof.failures.append(f"{row.example_id} copy {row.copy}: {problem}")
        return proof

    def _check_index(self, folder: Path, counts: Counts) -> None:
        with self.opened(folder / self.INDEX, "rb") as stream:
            same = all(stream.read(len(part)) == part for part in self.iter_index_bytes(counts))
            if not same or stream.read(1):
                raise DataError(f"{self.INDEX} differs from the index that was written")

    def _choose_dtype(self, vocabulary_size: int) -> str:
        fitting_dtypes = [name for name in self.DTYPES if np.iinfo(name).max >= vocabulary_size - 1]
        chosen = self.dtype or next(iter(fitting_dtypes), None)
        vocabulary_text = f"the vocabulary has {vocabulary_size:,} entries"
        choices = ", ".join(fitting_dtypes) or "other formats"
        remedy = f"{vocabulary_text}. Choose from {choices}, or null."
        require(chosen in fitting_dtypes, "format.dtype", chosen, remedy)
        return str(chosen)


def iter_document_starts(counts: Counts) -> Iterator[Places]:
    """Yields the positions of the documents' first tokens, many documents at a time."""
    step = max(1, BLOCK_TOKENS // counts["sequence_tokens"])
    for first in range(0, counts["sequences"], step):
        yield np.arange(first, min(first + step, counts["sequences"])) * counts["sequence_tokens"]


def with_byte_places(ledger: pd.DataFrame, counts: Counts) -> pd.DataFrame:
    """Returns the ledger with BYTE_COLUMNS: the document, and the bytes in the file of tokens."""
    size, rows = counts["bytes_a_token"], with_stream_places(ledger, counts["sequence_tokens"])
    columns = (rows["sequence"], rows["first"] * size, rows["stop"] * size)
    return ledger.assign(**dict(zip(BYTE_COLUMNS, columns, strict=True)))


def _stored_dtype(counts: Counts) -> Any:
    return np.dtype(counts["dtype"]).newbyteorder("<")


def _read_documents(path: Path, counts: Counts) -> Iterator[Ids]:
    """Yields the documents of the file in blocks of shape (n, sequence_tokens)."""
    width = counts["sequence_tokens"]
    with path.open("rb") as stream:
        step = max(1, BLOCK_TOKENS // width) * width
        while len(ids := np.fromfile(stream, _stored_dtype(counts), step)):
            if len(ids) % width:
                raise DataError(f"{path.name} ends within a document")
            yield ids.astype(np.int32).reshape(-1, width)


METADATA = "tokens.ds.metadata"


@dataclass(frozen=True)
class Datatrove(TokenFormat):
    """Datatrove's format; the index contains the ends of the documents.

    Its readers read consecutive windows of `seq_len` + 1 tokens. With `seq_len` =
    sequence_tokens − 1, each window is a packed sequence.
    """

    DATA, INDEX, DTYPES = "tokens.ds", "tokens.ds.index", ("uint16", "uint32")
    USAGE = "DatatroveFolderDataset('{folder}', seq_len={seq_len}, token_size={bytes_a_token})"

    tokenizer: str = "tokenizer"
    """The tokenizer's path in the metadata, from which nanotron loads it."""

    def write(self, corpus: PackedCorpus, folder: Path) -> ExportedFiles:
        """See `Format`."""
        exported = super().write(corpus, folder)
        counts = {**exported.counts, "seq_len": exported.counts["sequence_tokens"] - 1}
        tokens = counts["tokens"]
        head = f"{self.tokenizer}|{counts['bytes_a_token']}\n{tokens}\n{tokens / 1e6:g} MT"
        (folder / METADATA).write_text(head)
        return replace(exported, files=[*exported.files, METADATA], counts=counts)

    def iter_index_bytes(self, counts: Counts) -> Iterator[bytes]:
        """See `TokenFormat`."""
        for part in iter_document_starts(counts):
            yield (part + counts["sequence_tokens"]).astype("<u8").tobytes()


CODES = {"uint16": 8, "int32": 4}


@dataclass(frozen=True)
class Megatron(TokenFormat):
    """Megatron's format; the index contains lengths and byte offsets, then the documents' ends."""

    DATA, INDEX, DTYPES = "tokens.bin", "tokens.idx", tuple(CODES)
    USAGE = "--data-path {folder}/tokens --seq-length {sequence_tokens} --split 100,0,0"

    def iter_index_bytes(self, counts: Counts) -> Iterator[bytes]:
        """See `TokenFormat`."""
        count, width = counts["sequences"], counts["sequence_tokens"]
        yield struct.pack("<9sQBQQ", b"MMIDIDX", 1, CODES[counts["dtype"]], count, count + 1)
        for part in iter_document_starts(counts):
            yield np.full(len(part), width, "<i4").tobytes()
        for part in iter_document_starts(counts):
            yield (part * counts["bytes_a_token"]).astype("<i8").tobytes()
        yield bytes(8)  # the first document begins with sequence 0
        for part in iter_document_starts(counts):
            yield (part // width + 1).astype("<i8").tobytes()


@dataclass(frozen=True)
class Olmo(TokenFormat):
    """OLMo's format; the index has a line per document: start, end, id, source, location."""

    DATA, INDEX = "tokens.npy", "tokens.csv.gz"
    DTYPES = ("uint8", "uint16", "uint32")  # the first that fits, as in NumpyDatasetConfig
    USAGE = (
        "NumpyFSLDatasetConfig(paths=['{folder}/tokens.npy'], sequence_length={sequence_tokens}, …)"
    )
    opened = staticmethod(partial(gzip.GzipFile, mtime=0))

    def iter_index_bytes(self, counts: Counts) -> Iterator[bytes]:
        """See `TokenFormat`."""
        width = counts["sequence_tokens"]
        for part in iter_document_starts(counts):
            numbers = (part // width).tolist()
            places = ((n, *locate_in_part(n, width)) for n in numbers)
            lines = (f"{n * width},{(n + 1) * width},{n},{name},{m}\n" for n, name, m in places)
            yield "".join(lines).encode()

"""The interface of export formats: files, the positions of copies, and verification."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from contamination.core.progress import progress_bar
from contamination.injection.corpus import ContaminatedFolder, PackedCorpus
from contamination.injection.token_stream import Ids
from contamination.injection.verification import Proof

if TYPE_CHECKING:
    import pandas as pd

Counts = Mapping[str, Any]


@dataclass(frozen=True)
class ExportedFiles:
    """The files of an export, its ledger, and the counts for the manifest."""

    files: Sequence[str]
    ledger: pd.DataFrame
    """The corpus's ledger with the additional columns of the format."""
    counts: Counts


class Format(ABC):
    """Writes and verifies the files for a trainer; each class has a file in conf/format/."""

    USAGE: ClassVar[str]
    """How to read the export with the trainer: a format string over `folder` and the counts."""

    @abstractmethod
    def write(self, corpus: PackedCorpus, folder: Path) -> ExportedFiles:
        """Writes the corpus into the folder, block by block."""

    @abstractmethod
    def prove(self, export: ContaminatedFolder) -> Proof:
        """Checks the files against the ledger's columns of this format.

        Raises:
            DataError: a file was changed.
        """


def iter_blocks_with_progress(corpus: PackedCorpus) -> Iterator[Ids]:
    """Yields the corpus's blocks of sequences, with a progress bar."""
    units: dict[str, Any] = {"unit": "tok", "unit_scale": True, "stage": "export"}
    with progress_bar(total=corpus.artifact.counts["tokens"], desc="write", **units) as bar:
        for block in corpus.iter_blocks():
            yield block
            bar.update(block.size)


def with_stream_places(ledger: pd.DataFrame, sequence_tokens: int) -> pd.DataFrame:
    """Returns a ledger with the rows' positions in the whole token stream: `first`, `stop`."""
    start = ledger["sequence"] * sequence_tokens
    return ledger.assign(first=start + ledger["token_start"], stop=start + ledger["token_end"])

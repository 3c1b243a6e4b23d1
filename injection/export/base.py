"""What an export format gives: its files, where a copy stands in them, and a proof of both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from contamination.core.progress import progress
from contamination.injection.corpus import Contaminated, PackedCorpus
from contamination.injection.token_stream import Ids
from contamination.injection.verification import Proof

Counts = Mapping[str, Any]


@dataclass(frozen=True)
class Written:
    """What a format wrote: files, the ledger with its own columns, what reading it takes."""

    files: Sequence[str]
    ledger: pd.DataFrame
    counts: Counts


class Format(ABC):
    """The files that a trainer reads; its class is named as its file in conf/format/."""

    USAGE: ClassVar[str]
    """What the trainer is told, with the export's folder and counts as fields."""

    @abstractmethod
    def write(self, corpus: PackedCorpus, folder: Path) -> Written:
        """Write the corpus into the folder, a block at a time."""

    @abstractmethod
    def prove(self, export: Contaminated) -> Proof:
        """Hold the files against the ledger in its own columns.

        Raises:
            DataError: a file is not what was written.
        """


def blocks_of(corpus: PackedCorpus) -> Iterator[Ids]:
    """The corpus's blocks, with a bar."""
    shown: dict[str, Any] = {"unit": "tok", "unit_scale": True, "stage": "export"}
    with progress(total=corpus.artifact.counts["tokens"], desc="write", **shown) as bar:
        for block in corpus.blocks():
            yield block
            bar.update(block.size)


def in_stream(ledger: pd.DataFrame, sequence_tokens: int) -> pd.DataFrame:
    """The ledger with the places of its rows in the whole stream of tokens: `first` and `stop`."""
    start = ledger["sequence"] * sequence_tokens
    return ledger.assign(first=start + ledger["token_start"], stop=start + ledger["token_end"])

"""datatrove and nanotron: `tokens.ds`, `tokens.ds.index`, `tokens.ds.metadata`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from injection.corpus import PackedCorpus
from injection.export.base import Counts, Written
from injection.export.tokens import TokenFormat, starts

METADATA = "tokens.ds.metadata"


@dataclass(frozen=True)
class Datatrove(TokenFormat):
    """The index has the documents' ends.

    Its readers take windows of `seq_len` + 1 tokens, one after the other: with a `seq_len` of
    sequence_tokens − 1 each window is a packed sequence.
    """

    DATA, INDEX, DTYPES = "tokens.ds", "tokens.ds.index", ("uint16", "uint32")
    USAGE = "DatatroveFolderDataset('{folder}', seq_len={seq_len}, token_size={bytes_a_token})"

    tokenizer: str = "tokenizer"
    """From what nanotron loads the tokenizer, by the metadata."""

    def write(self, corpus: PackedCorpus, folder: Path) -> Written:
        """See `Format`."""
        made = super().write(corpus, folder)
        counts = {**made.counts, "seq_len": made.counts["sequence_tokens"] - 1}
        tokens = counts["tokens"]
        head = f"{self.tokenizer}|{counts['bytes_a_token']}\n{tokens}\n{tokens / 1e6:g} MT"
        (folder / METADATA).write_text(head)
        return replace(made, files=[*made.files, METADATA], counts=counts)

    def index(self, counts: Counts) -> Iterator[bytes]:
        """See `TokenFormat`."""
        for part in starts(counts):
            yield (part + counts["sequence_tokens"]).astype("<u8").tobytes()

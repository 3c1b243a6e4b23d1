"""Writing the packed sequences, and the ledger of what went where."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa

from contamination.core.tasks import Runner
from contamination.data.readers.rows import grouped
from contamination.injection.placement import Placed
from contamination.injection.token_stream import Ids, Tokenizer, TokenStream
from contamination.injection.verification import Check, PartResult, Proof

BLOCK_TOKENS = 1 << 20
ALL = 1 << 62  # more tokens than any corpus has


def write_sequences(
    path: Path,
    stream: TokenStream,
    clean_tokens: int,
    placed: list[Placed],
    segments: list[Ids],
    sequence_tokens: int,
    part: tuple[int, int] | None = None,
) -> int:
    """Splice the segments into the first `clean_tokens` of the stream and write whole sequences.

    Args:
        path: an Arrow stream file with one column, `input_ids`, of fixed length.
        stream: the clean corpus.
        clean_tokens: how many of its tokens to use.
        placed: the layout, in order.
        segments: ids of each inserted text with its separators.
        sequence_tokens: length of a sequence.
        part: first and last token (exclusive) of the packed corpus to write, or all.

    Returns:
        The number of sequences.
    """
    schema = pa.schema([("input_ids", pa.list_(pa.int32(), sequence_tokens))])
    written, rest = 0, np.empty(0, dtype=np.int32)
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        pieces = _pieces(stream, clean_tokens, placed, segments, part or (0, ALL))
        for block in grouped(pieces, len, BLOCK_TOKENS):  # a record batch each
            ids = np.concatenate([rest, *block])
            whole = len(ids) // sequence_tokens * sequence_tokens
            column = pa.FixedSizeListArray.from_arrays(pa.array(ids[:whole]), sequence_tokens)
            writer.write_batch(pa.record_batch([column], schema=schema))
            written, rest = written + whole // sequence_tokens, ids[whole:]
    assert len(rest) == 0, "the budget is a whole number of sequences"
    return written


def read_blocks(*paths: Path) -> Iterator[Ids]:
    """The packed sequences in blocks of shape (n, sequence_tokens), read and not mapped."""
    for path in paths:
        with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                width = batch.schema.field(0).type.list_size
                yield batch.column(0).flatten().to_numpy().reshape(-1, width)


def read_tail(paths: Sequence[Path], tokens: int) -> Ids:
    """The last tokens of these parts, `tokens` or more where they have so many, shape (n,)."""
    found: list[Ids] = []
    for path in reversed(paths):
        missing = tokens - sum(map(len, found))
        if missing <= 0:
            break
        column = _mapped(path).column(0)
        rows = -(-missing // column.type.list_size)
        last = column.slice(max(0, len(column) - rows)).combine_chunks()
        found.append(last.flatten().to_numpy())
    return np.concatenate([np.empty(0, np.int32), *reversed(found)])


def count_sequences(path: Path) -> int:
    """The sequences of a part."""
    return int(_mapped(path).num_rows)


def _mapped(path: Path) -> Any:
    """A part's table, of which what is used alone is read."""
    return pa.ipc.open_stream(pa.memory_map(str(path))).read_all()


def open_sequences(*paths: Path) -> Any:
    """The packed sequences as a memory-mapped `datasets.Dataset` of one column, `input_ids`."""
    parts = [datasets.Dataset.from_file(str(path)) for path in paths]
    return parts[0] if len(parts) == 1 else datasets.concatenate_datasets(parts)


def prefix_hashes(stream: TokenStream) -> dict[str, str]:
    """SHA-256 of the first n clean tokens, for n = 2^16, 2^17, … and the whole stream.

    Two corpora of one seed and different budgets agree wherever both have a hash.
    """
    digest, hashes, done = hashlib.sha256(), {}, 0
    marks = [1 << power for power in range(16, len(stream).bit_length())]
    for mark in [*marks, len(stream)]:
        for part in _slices(stream, done, mark):
            digest.update(part.tobytes())
        hashes[str(mark)], done = digest.hexdigest(), mark
    return hashes


def make_ledger(
    stream: TokenStream,
    placed: list[Placed],
    examples: pd.DataFrame,
    texts: Sequence[str],
    templates: Mapping[str, str],
    tokenizer: Tokenizer,
    separator_tokens: int,
    sequence_tokens: int,
) -> pd.DataFrame:
    """One row an inserted copy (two or more where a copy was split over sequences).

    Columns: `token_start` and `token_end` are places in the sequence; `copy_start` is the place of
    the row's first token in the copy; `char_offset` the number of the document's characters before
    the insertion; `truncated` says that the row holds only a part of the copy; `reworded` is the
    inserted text where it is not the example's own; `template_sha256` names the template.
    """
    rows = []
    for item in placed:
        example = examples.iloc[item.segment.example]
        document_id, start = stream.document_before(item.clean)
        text = texts[item.segment.text]
        common = {
            "example_id": example["example_id"],
            "copy": item.segment.copy,
            "document_id": document_id,
            "char_offset": len(tokenizer.decode(stream.read(start, item.clean))),
            "reworded": None if text == example["text"] else text,
            "template_sha256": templates[example["benchmark"]],
        }
        tokens = item.segment.tokens - 2 * separator_tokens
        pieces = list(_split(item.packed + separator_tokens, tokens, sequence_tokens))
        rows += [{**common, **p, "truncated": len(pieces) > 1} for p in pieces]
    return pd.DataFrame(rows, columns=list(LEDGER_COLUMNS)).astype({"reworded": object})


LEDGER_COLUMNS = (
    *("example_id", "copy", "document_id", "char_offset", "sequence", "token_start", "token_end"),
    *("copy_start", "truncated", "reworded", "template_sha256"),
)


def _split(first: int, tokens: int, sequence_tokens: int) -> Iterator[dict[str, int]]:
    done = 0
    while done < tokens:
        sequence, start = divmod(first + done, sequence_tokens)
        end = start + min(tokens - done, sequence_tokens - start)
        place = {"sequence": sequence, "token_start": start, "token_end": end}
        yield {**place, "copy_start": done}
        done += end - start


def _pieces(
    stream: TokenStream,
    clean_tokens: int,
    placed: list[Placed],
    segments: list[Ids],
    part: tuple[int, int],
) -> Iterator[Ids]:
    """A part of the packed stream as clean slices and segments in turn."""
    first, stop = part
    begun = bisect_right(placed, first, key=lambda item: item.packed)
    clean = packed = 0
    for item in placed[max(0, begun - 1) :]:  # those before it end before the part
        yield from _slices(
            stream, clean + max(0, first - packed), min(item.clean, clean + stop - packed)
        )
        if item.packed >= stop:
            return
        yield segments[item.segment.text][max(0, first - item.packed) : stop - item.packed]
        clean, packed = item.clean, item.packed + item.segment.tokens
    yield from _slices(
        stream, clean + max(0, first - packed), min(clean_tokens, clean + stop - packed)
    )


def _slices(stream: TokenStream, start: int, stop: int) -> Iterator[Ids]:
    for place in range(start, stop, BLOCK_TOKENS):
        yield stream.read(place, min(stop, place + BLOCK_TOKENS))


PART_TOKENS = 1 << 28
"""Tokens of a part, in whole sequences: a GiB."""
PATTERN = "sequences/part-{:05d}.arrow"


def sequences_a_part(sequence_tokens: int) -> int:
    """How many sequences each part has, but for the last."""
    return max(1, PART_TOKENS // sequence_tokens)


def place_in_parts(sequence: int, sequence_tokens: int) -> tuple[str, int]:
    """The part that holds a sequence, and its number there."""
    part, number = divmod(sequence, sequences_a_part(sequence_tokens))
    return PATTERN.format(part), number


@dataclass(frozen=True)
class Packing:
    """What is packed: first the hashes of the clean stream, which take longest, then the parts."""

    folder: Path
    """The corpus's."""
    stream: TokenStream
    placed: list[Placed]
    segments: list[Ids]
    sequence_tokens: int
    part_sequences: int

    @property
    def parts(self) -> list[str]:
        """The names of the parts' files."""
        tokens = len(self.stream) + sum(item.segment.tokens for item in self.placed)
        return [PATTERN.format(n) for n in range(-(-tokens // self._size))]

    @property
    def _size(self) -> int:
        """Tokens of a part."""
        return self.part_sequences * self.sequence_tokens

    def __len__(self) -> int:
        """The parts, and the hashes."""
        return len(self.parts) + 1

    def files(self, piece: int) -> list[Path]:
        """The part."""
        return [self.folder / name for name in self.parts[max(0, piece - 1) : piece]]

    def make(self, piece: int) -> dict[str, Any]:
        """Write a part and count its sequences, or hash the clean stream."""
        if piece == 0:
            return {"clean_sha256": prefix_hashes(self.stream)}
        (path,) = self.files(piece)
        part = (piece - 1) * self._size, piece * self._size
        own = (self.placed, self.segments, self.sequence_tokens)
        return {"sequences": write_sequences(path, self.stream, len(self.stream), *own, part)}


@dataclass(frozen=True)
class ProofTask:
    """Each part of a packed corpus, held against the ledger."""

    check: Check
    paths: Sequence[Path]
    """The parts."""
    starts: Sequence[int]
    """The number of each part's first sequence."""

    def __len__(self) -> int:
        """The parts."""
        return len(self.paths)

    def files(self, piece: int) -> list[Path]:
        """None is written."""
        return []

    def make(self, piece: int) -> dict[str, Any]:
        """What a part shows; copies that begin in the part before are found by its last tokens."""
        before = read_tail(self.paths[:piece], self.check.tail)
        blocks = read_blocks(self.paths[piece])
        return asdict(self.check.read(blocks, self.starts[piece], before))


def prove(runner: Runner, check: Check, paths: Sequence[Path]) -> Proof:
    """The proof of a packed corpus, put together from those of its parts."""
    counts = [count_sequences(path) for path in paths]
    starts = [sum(counts[:n]) for n in range(len(counts))]
    results = runner.run("verify", ProofTask(check, paths, starts))
    return check.proof([PartResult(**result) for result in results])

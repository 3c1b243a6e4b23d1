"""Writes and reads packed sequences, and creates the ledger of inserted copies."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from contamination.core.task_runner import TaskRunner
from contamination.data.readers.rows import group_by_size
from contamination.injection.placement import PlacedSegment
from contamination.injection.token_stream import Ids, Tokenizer, TokenStream
from contamination.injection.verification import CorpusCheck, PartResult, Proof

if TYPE_CHECKING:
    import pandas as pd

BLOCK_TOKENS = 1 << 20
NO_LIMIT = 1 << 62  # more tokens than any corpus has


@dataclass(frozen=True)
class ShardPart:
    """One example within the segment of a shard."""

    example: int
    """The row of the example in the pool."""
    start: int
    """Its first token in the segment."""
    tokens: int
    text: str


def write_sequences(
    path: Path,
    stream: TokenStream,
    clean_tokens: int,
    placed: list[PlacedSegment],
    segments: list[Ids],
    sequence_tokens: int,
    token_range: tuple[int, int] | None = None,
) -> int:
    """Inserts the segments into the first `clean_tokens` of the stream and writes whole sequences.

    Args:
        path: the Arrow stream file to write, with one column, `input_ids`, of fixed length.
        stream: the clean corpus.
        clean_tokens: the number of its tokens to use.
        placed: the segments with their positions, in order.
        segments: the tokens of each inserted text with its separators.
        sequence_tokens: the tokens of a sequence.
        token_range: the first token and the end (exclusive) in the packed corpus; None: all.

    Returns:
        The number of sequences.
    """
    schema = pa.schema([("input_ids", pa.list_(pa.int32(), sequence_tokens))])
    written, leftover = 0, np.empty(0, dtype=np.int32)
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        pieces = _iter_packed_pieces(
            stream, clean_tokens, placed, segments, token_range or (0, NO_LIMIT)
        )
        for block in group_by_size(pieces, len, BLOCK_TOKENS):  # a record batch each
            ids = np.concatenate([leftover, *block])
            sequences = len(ids) // sequence_tokens
            end = sequences * sequence_tokens
            column = pa.FixedSizeListArray.from_arrays(pa.array(ids[:end]), sequence_tokens)
            writer.write_batch(pa.record_batch([column], schema=schema))
            written, leftover = written + sequences, ids[end:]
    assert len(leftover) == 0, "the budget is a whole number of sequences"
    return written


def read_blocks(*paths: Path) -> Iterator[Ids]:
    """Yields packed sequences in blocks of shape (n, sequence_tokens), without mapping files."""
    for path in paths:
        with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                width = batch.schema.field(0).type.list_size
                yield batch.column(0).flatten().to_numpy().reshape(-1, width)


def read_last_tokens(paths: Sequence[Path], min_tokens: int) -> Ids:
    """Returns at least the last `min_tokens` tokens of these parts, or all if there are fewer."""
    tails: list[Ids] = []
    for path in reversed(paths):
        missing = min_tokens - sum(map(len, tails))
        if missing <= 0:
            break
        column = _map_table(path).column(0)
        n_rows = -(-missing // column.type.list_size)
        last = column.slice(max(0, len(column) - n_rows)).combine_chunks()
        tails.append(last.flatten().to_numpy())
    return np.concatenate([np.empty(0, np.int32), *reversed(tails)])


def count_sequences(path: Path) -> int:
    """Returns the number of sequences of a part."""
    return int(_map_table(path).num_rows)


def _map_table(path: Path) -> Any:
    """A part's table, mapped into memory so that only used rows are read."""
    return pa.ipc.open_stream(pa.memory_map(str(path))).read_all()


def open_sequences(*paths: Path) -> Any:
    """Returns the packed sequences as a memory-mapped `datasets.Dataset` with `input_ids`."""
    import datasets

    part_datasets = [datasets.Dataset.from_file(str(path)) for path in paths]
    return (
        part_datasets[0]
        if len(part_datasets) == 1
        else datasets.concatenate_datasets(part_datasets)
    )


def prefix_hashes(stream: TokenStream) -> dict[str, str]:
    """Returns the SHA-256 of the first n clean tokens, for n = 2^16, 2^17, … and the whole stream.

    Two corpora with the same seed and different budgets have the same hashes for common n.
    """
    digest, hashes, done = hashlib.sha256(), {}, 0
    prefix_lengths = [1 << power for power in range(16, len(stream).bit_length())]
    for length in [*prefix_lengths, len(stream)]:
        for part in _iter_clean_slices(stream, done, length):
            digest.update(part.tobytes())
        hashes[str(length)], done = digest.hexdigest(), length
    return hashes


def make_ledger(
    stream: TokenStream,
    placed: list[PlacedSegment],
    examples: pd.DataFrame,
    texts: Sequence[str],
    templates: Mapping[str, str],
    tokenizer: Tokenizer,
    tokens_around: tuple[int, int],
    sequence_tokens: int,
    shards: Mapping[int, Sequence[ShardPart]] | None = None,
) -> pd.DataFrame:
    """Returns one row per inserted copy, or several if a copy was split over sequences.

    Columns: `token_start` and `token_end` are positions in the sequence; `copy_start` is the
    position of the row's first token in the copy; `char_offset` is the number of the document's
    characters before the insertion; `truncated` is whether the row is only a part of the copy;
    `reworded` is the inserted text if it differs from the example's; `template_sha256` is the hash
    of the template. A shard of several examples (`shards`: index of its text → its parts) has a row
    for each of them. `tokens_around` are the numbers of tokens of a segment before and after the
    text.
    """
    import pandas as pd

    rows = []
    for item in placed:
        segment = item.segment
        document_id, start = stream.document_before(item.clean)
        char_offset = len(tokenizer.decode(stream.read(start, item.clean)))
        before, after = tokens_around
        tokens = segment.tokens - before - after
        single = [ShardPart(segment.example, before, tokens, texts[segment.text])]
        for part in (shards or {}).get(segment.text, single):
            example = examples.iloc[part.example]
            copy_columns = {
                "example_id": example["example_id"],
                "copy": segment.copy,
                "document_id": document_id,
                "char_offset": char_offset,
                "reworded": None if part.text == example["text"] else part.text,
                "template_sha256": templates[example["benchmark"]],
            }
            first = item.packed + part.start
            spans = list(_iter_spans_in_sequences(first, part.tokens, sequence_tokens))
            rows += [{**copy_columns, **p, "truncated": len(spans) > 1} for p in spans]
    return pd.DataFrame(rows, columns=list(LEDGER_COLUMNS)).astype({"reworded": object})


LEDGER_COLUMNS = (
    *("example_id", "copy", "document_id", "char_offset", "sequence", "token_start", "token_end"),
    *("copy_start", "truncated", "reworded", "template_sha256"),
)


def _iter_spans_in_sequences(
    first: int, tokens: int, sequence_tokens: int
) -> Iterator[dict[str, int]]:
    done = 0
    while done < tokens:
        sequence, start_in_sequence = divmod(first + done, sequence_tokens)
        end_in_sequence = start_in_sequence + min(
            tokens - done, sequence_tokens - start_in_sequence
        )
        sequence_span = {
            "sequence": sequence,
            "token_start": start_in_sequence,
            "token_end": end_in_sequence,
        }
        yield {**sequence_span, "copy_start": done}
        done += end_in_sequence - start_in_sequence


def _iter_packed_pieces(
    stream: TokenStream,
    clean_tokens: int,
    placed: list[PlacedSegment],
    segments: list[Ids],
    token_range: tuple[int, int],
) -> Iterator[Ids]:
    first, stop = token_range
    n_segments_begun = bisect_right(placed, first, key=lambda item: item.packed)
    clean = packed = 0
    for item in placed[max(0, n_segments_begun - 1) :]:  # earlier segments end before the part
        yield from _iter_clean_slices(
            stream, clean + max(0, first - packed), min(item.clean, clean + stop - packed)
        )
        if item.packed >= stop:
            return
        yield segments[item.segment.text][max(0, first - item.packed) : stop - item.packed]
        clean, packed = item.clean, item.packed + item.segment.tokens
    yield from _iter_clean_slices(
        stream, clean + max(0, first - packed), min(clean_tokens, clean + stop - packed)
    )


def _iter_clean_slices(stream: TokenStream, start: int, stop: int) -> Iterator[Ids]:
    for first in range(start, stop, BLOCK_TOKENS):
        yield stream.read(first, min(stop, first + BLOCK_TOKENS))


PART_TOKENS = 1 << 28
"""Tokens per part (1 GiB), rounded down to whole sequences."""
PART_NAME = "sequences/part-{:05d}.arrow"


def sequences_per_part(sequence_tokens: int) -> int:
    """Returns the number of sequences of each part except the last."""
    return max(1, PART_TOKENS // sequence_tokens)


def locate_in_part(sequence: int, sequence_tokens: int) -> tuple[str, int]:
    """Returns the name of the part that contains a sequence, and the sequence's number in it."""
    part, number = divmod(sequence, sequences_per_part(sequence_tokens))
    return PART_NAME.format(part), number


@dataclass(frozen=True)
class PackingTask:
    """Packs a corpus. Piece 0 hashes the clean stream, which takes longest; others write parts."""

    folder: Path
    """The corpus's folder."""
    stream: TokenStream
    placed: list[PlacedSegment]
    segments: list[Ids]
    sequence_tokens: int
    part_sequences: int

    @property
    def part_names(self) -> list[str]:
        """The names of the parts' files."""
        tokens = len(self.stream) + sum(item.segment.tokens for item in self.placed)
        return [PART_NAME.format(n) for n in range(-(-tokens // self._part_tokens))]

    @property
    def _part_tokens(self) -> int:
        return self.part_sequences * self.sequence_tokens

    def __len__(self) -> int:
        """Returns the number of parts, plus one for the hashes."""
        return len(self.part_names) + 1

    def files(self, piece: int) -> list[Path]:
        """Returns the files that a piece writes."""
        return [self.folder / name for name in self.part_names[max(0, piece - 1) : piece]]

    def process_piece(self, piece: int) -> dict[str, Any]:
        """Writes a part and count its sequences, or hash the clean stream."""
        if piece == 0:
            return {"clean_sha256": prefix_hashes(self.stream)}
        (path,) = self.files(piece)
        part = (piece - 1) * self._part_tokens, piece * self._part_tokens
        layout = (self.placed, self.segments, self.sequence_tokens)
        return {"sequences": write_sequences(path, self.stream, len(self.stream), *layout, part)}


@dataclass(frozen=True)
class ProofTask:
    """Checks each part of a packed corpus against the ledger."""

    check: CorpusCheck
    paths: Sequence[Path]
    """The files of the parts."""
    starts: Sequence[int]
    """The number of each part's first sequence."""

    def __len__(self) -> int:
        """Returns the number of parts."""
        return len(self.paths)

    def files(self, piece: int) -> list[Path]:
        """Returns no files: only results are returned."""
        return []

    def process_piece(self, piece: int) -> dict[str, Any]:
        """Checks a part, together with the last tokens of earlier parts, where copies may begin."""
        before = read_last_tokens(self.paths[:piece], self.check.tail_tokens)
        blocks = read_blocks(self.paths[piece])
        return asdict(self.check.read_part(blocks, self.starts[piece], before))


def prove_parts(runner: TaskRunner, check: CorpusCheck, paths: Sequence[Path]) -> Proof:
    """Verifies a packed corpus part by part."""
    sequence_counts = [count_sequences(path) for path in paths]
    first_sequences = [sum(sequence_counts[:n]) for n in range(len(sequence_counts))]
    results = runner.run("verify", ProofTask(check, paths, first_sequences))
    return check.combine_parts([PartResult(**result) for result in results])

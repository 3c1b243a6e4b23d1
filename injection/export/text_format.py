"""Export as text (`documents.jsonl`), for torchtitan and other trainers that tokenize."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from sys import maxsize
from typing import Any

import numpy as np

from contamination.injection.corpus import ContaminatedFolder, PackedCorpus
from contamination.injection.export.base import (
    ExportedFiles,
    Format,
    iter_blocks_with_progress,
    with_stream_places,
)
from contamination.injection.token_stream import Ids, Tokenizer
from contamination.injection.verification import Proof, ProofUnits, verify

REPLACEMENT_CHARACTER = "\ufffd"
"""The character in place of bytes that are not a complete character."""
MAX_CHARACTER_BYTES = 4
"""The maximum number of bytes, and therefore of tokens, of a character."""


class TextLines:
    """Divides the packed stream into lines and decodes them.

    A line is a document if the tokenizer begins each document with a BOS; otherwise it is about as
    long as a sequence. Lines never end within a copy, or within a character.
    """

    def __init__(self, corpus: PackedCorpus) -> None:
        tokenizer, self._corpus = corpus.tokenizer, corpus
        self._tokenizer, self._special = tokenizer, tokenizer.hf.all_special_ids
        self._bytes = tokenizer.byte_by_token_id
        self._bos = tokenizer.document_start_id
        # decoders may drop the first space of a text, so another text is put before it
        self._before = [] if self._bos is not None else tokenizer.encode("a")
        rows = with_stream_places(corpus.ledger, corpus.sequence_tokens)
        copies = rows.groupby(["example_id", "copy"]).agg({"first": "min", "stop": "max"})
        self._copies = copies.sort_values("first").to_numpy(dtype=np.int64)

    def __iter__(self) -> Iterator[tuple[int, Ids]]:
        """Yields each line's position in the stream, and its tokens."""
        start, buffer = 0, np.empty(0, dtype=np.int32)
        for block in iter_blocks_with_progress(self._corpus):
            buffer = np.concatenate([buffer, block.reshape(-1)])
            for stop in self._iter_line_ends(start, buffer):
                yield start, buffer[: stop - start]
                start, buffer = stop, buffer[stop - start :]
        yield start, buffer

    def decode_line(self, ids: Ids) -> str:
        """Returns the text of a line, without special tokens."""
        return self.decode([*self._before, *ids])[len(self.decode(self._before)) :]

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Returns the text of token ids, without special tokens.

        A decoder with byte fallback drops a whole run of bytes if one character in it is
        incomplete. Therefore the bytes of incomplete characters are replaced first.
        """
        text = self._tokenizer.decode(ids)
        if REPLACEMENT_CHARACTER not in text or not self._bytes:
            return text
        backend = self._tokenizer.hf.backend_tokenizer
        left_out = {i for i, t in backend.get_added_tokens_decoder().items() if t.special}
        text_ids = [int(i) for i in ids if i not in left_out]
        tokens = [str(backend.id_to_token(i)) for i in text_ids]
        for index in _iter_incomplete_bytes([self._bytes.get(i) for i in text_ids]):
            tokens[index] = REPLACEMENT_CHARACTER
        return str(backend.decoder.decode(tokens))

    def count_characters_before(self, place: int, ids: Ids, text: str) -> int:
        """Returns the number of complete characters in a line's tokens before `place`."""
        before = self.decode_line(ids[:place])
        while not text.startswith(before):
            before = before[:-1]
        return len(before)

    def count_special_tokens(self, ids: Ids) -> int:
        """Returns the number of special tokens in a line, without the BOS at its start."""
        return int(np.isin(ids, self._special).sum()) - int(ids[0] == self._bos)

    def _iter_line_ends(self, start: int, buffer: Ids) -> Iterator[int]:
        """Yields the ends of lines in the tokens `buffer`, whose first token is `start`."""
        if self._bos is not None:
            ends = (start + 1 + np.flatnonzero(buffer[1:] == self._bos)).tolist()
            yield from (end for end in ends if self._end_of_copy_at(end) == end)
            return
        last, width = start, self._corpus.sequence_tokens
        for border in range((start // width + 1) * width, start + len(buffer), width):
            stop = self._end_of_copy_at(border)
            if stop + MAX_CHARACTER_BYTES > start + len(
                buffer
            ):  # the next tokens are needed to decide
                return
            if stop > last:
                last = self._end_of_character_at(
                    stop, buffer[last - start : stop + MAX_CHARACTER_BYTES - start]
                )
                yield last

    def _end_of_copy_at(self, place: int) -> int:
        number = int(np.searchsorted(self._copies[:, 0], place)) - 1
        return place if number < 0 else max(place, int(self._copies[number, 1]))

    def _end_of_character_at(self, place: int, ids: Ids) -> int:
        for extra in range(MAX_CHARACTER_BYTES):
            is_whole = not self.decode_line(ids[: len(ids) - MAX_CHARACTER_BYTES + extra]).endswith(
                REPLACEMENT_CHARACTER
            )
            if is_whole and self._end_of_copy_at(place + extra) == place + extra:
                return place + extra
        return place


def _iter_incomplete_bytes(values: Sequence[int | None]) -> Iterator[int]:
    """Yields the indices of bytes that are not part of a complete UTF-8 character."""
    for is_byte, group in groupby(enumerate(values), lambda item: item[1] is not None):
        if not is_byte:
            continue
        places, run = zip(*group, strict=True)
        done = 0
        while done < len(run):
            try:
                bytes(run[done:]).decode()
                break
            except UnicodeDecodeError as error:
                yield from places[done + error.start : done + error.end]
                done += error.end


DOCUMENTS_FILE = "documents.jsonl"
TEXT_COLUMNS = ["line", "char_start", "char_end"]
CHARACTERS = ProofUnits("character", "line", exact=False)
"""Not exact: a document may contain a text with different tokens, which is then only counted."""


@dataclass(frozen=True)
class Text(Format):
    """Text lines. The ledger's columns are the line and the characters in its text, from 0."""

    USAGE = "load_dataset('json', data_files='{folder}/documents.jsonl')"

    def write(self, corpus: PackedCorpus, folder: Path) -> ExportedFiles:
        """See `Format`."""
        import pandas as pd

        lines, lost, places, size = TextLines(corpus), Counter[str](), [], 0
        rows = with_stream_places(corpus.ledger, corpus.sequence_tokens).sort_values(
            "first", kind="stable"
        )
        firsts = rows["first"].to_numpy()
        with (folder / DOCUMENTS_FILE).open("w", encoding="utf-8", newline="\n") as stream:
            for number, (start, ids) in enumerate(lines):
                text = lines.decode_line(ids)
                stream.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                low, high = np.searchsorted(firsts, [start, start + len(ids)])
                for row in rows.iloc[low:high].itertuples() if low < high else ():
                    places.append(
                        (row.Index, number, *_character_span(lines, row, start, ids, text))
                    )
                size += len(text)
                lost["special tokens within a line"] += lines.count_special_tokens(ids)
                lost["characters that are U+FFFD, or cut"] += text.count(REPLACEMENT_CHARACTER)
        columns = ["row", *TEXT_COLUMNS]
        spans = pd.DataFrame(places, columns=columns, dtype=np.int64).set_index("row")
        lost["copies whose text the tokenizer changes"] = _count_changed_copies(corpus)
        counts = {"characters": size, "lost": {loss: n for loss, n in lost.items() if n}}
        return ExportedFiles([DOCUMENTS_FILE], corpus.ledger.join(spans), counts)

    def prove(self, export: ContaminatedFolder) -> Proof:
        """See `Format`."""
        names = dict(zip(TEXT_COLUMNS, ("sequence", "token_start", "token_end"), strict=True))
        ledger = export.ledger.drop(columns=[*names.values()]).rename(columns=names)
        first = ledger.groupby(["example_id", "copy"])["token_start"].transform("min")
        ledger["copy_start"] = ledger["token_start"] - first
        blocks = _read_code_points(export.artifact.path / DOCUMENTS_FILE)
        encoder = _CharacterEncoder(str(export.tokenizer_folder))
        return verify(blocks, export.examples, ledger, encoder, (0, maxsize), CHARACTERS)


def _count_changed_copies(corpus: PackedCorpus) -> int:
    texts = corpus.examples.set_index("example_id")["text"]
    copies = corpus.ledger.drop_duplicates(["example_id", "copy"])
    copies = copies["reworded"].fillna(copies["example_id"].map(texts))
    encode, decode = corpus.tokenizer.encode, corpus.tokenizer.decode
    return sum(n for text, n in copies.value_counts().items() if decode(encode(text)) != text)


class _CharacterEncoder(Tokenizer):
    """Encodes a text as the code points of its encoded and decoded form."""

    def encode(self, text: str) -> list[int]:
        return [*map(ord, self.decode(super().encode(text)))]


def _character_span(lines: TextLines, row: Any, start: int, ids: Ids, text: str) -> tuple[int, int]:
    """Returns the first character and the end (exclusive) of a ledger's row in its line.

    A decoder that drops the space before a text keeps the space before a copy, which is not part of
    the copy.
    """
    token_start, token_end = row.first - start, row.stop - start
    first, last = (lines.count_characters_before(p, ids, text) for p in (token_start, token_end))
    decoded = lines.decode(ids[token_start:token_end]).rstrip(REPLACEMENT_CHARACTER)
    in_line = text[first:last].rstrip(REPLACEMENT_CHARACTER)
    blank = row.copy_start == 0 and in_line[:1] == " " and len(in_line) > len(decoded)
    return first + blank, last


def _read_code_points(path: Path) -> Iterator[Ids]:
    with path.open(encoding="utf-8", newline="\n") as stream:
        for line in stream:
            encoded = json.loads(line)["text"].encode("utf-32-le")
            yield np.frombuffer(encoded, dtype="<i4").reshape(1, -1)

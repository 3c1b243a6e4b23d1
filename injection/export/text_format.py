"""Text for torchtitan and all that tokenises by itself: `documents.jsonl`, a `text` a line."""

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
import pandas as pd

from contamination.injection.corpus import Contaminated, PackedCorpus
from contamination.injection.export.base import Format, Written, blocks_of, in_stream
from contamination.injection.token_stream import Ids, Tokenizer
from contamination.injection.verification import Proof, ProofUnits, verify

CUT = "\ufffd"
"""What bytes decode to that are no whole character."""
LONGEST = 4
"""Bytes of a character, so tokens at most."""


class Lines:
    """A line is a document where the tokenizer begins each with a BOS, else about a sequence long.

    No line ends within a copy. Where lines are no documents, none ends within a character that a
    few more tokens complete.
    """

    def __init__(self, corpus: PackedCorpus) -> None:
        tokenizer, self._corpus = corpus.tokenizer, corpus
        self._tokenizer, self._special = tokenizer, tokenizer.hf.all_special_ids
        self._bytes = tokenizer.fallback_bytes
        self._bos = tokenizer.document_start
        # a decoder may leave out the first blank of a text: so another text stands before it
        self._before = [] if self._bos is not None else tokenizer.encode("a")
        rows = in_stream(corpus.ledger, corpus.sequence_tokens)
        copies = rows.groupby(["example_id", "copy"]).agg({"first": "min", "stop": "max"})
        self._copies = copies.sort_values("first").to_numpy(dtype=np.int64)

    def __iter__(self) -> Iterator[tuple[int, Ids]]:
        """Each line's place in the stream, and its tokens."""
        start, held = 0, np.empty(0, dtype=np.int32)
        for block in blocks_of(self._corpus):
            held = np.concatenate([held, block.reshape(-1)])
            for stop in self._stops(start, held):
                yield start, held[: stop - start]
                start, held = stop, held[stop - start :]
        yield start, held

    def text(self, ids: Ids) -> str:
        """A line's text, without special tokens."""
        return self.decode([*self._before, *ids])[len(self.decode(self._before)) :]

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """The text of some ids, without special tokens.

        A decoder with bytes in place of unknown characters gives up a whole run of them for one
        that is cut: so the bytes that are no character are taken out of the run first.
        """
        text = self._tokenizer.decode(ids)
        if CUT not in text or not self._bytes:
            return text
        backend = self._tokenizer.hf.backend_tokenizer
        left_out = {i for i, t in backend.get_added_tokens_decoder().items() if t.special}
        kept = [int(i) for i in ids if i not in left_out]
        tokens = [str(backend.id_to_token(i)) for i in kept]
        for place in _no_characters([self._bytes.get(i) for i in kept]):
            tokens[place] = CUT
        return str(backend.decoder.decode(tokens))

    def characters_before(self, place: int, ids: Ids, text: str) -> int:
        """How many characters of a line's text its tokens before `place` give whole."""
        before = self.text(ids[:place])
        while not text.startswith(before):
            before = before[:-1]
        return len(before)

    def special_tokens(self, ids: Ids) -> int:
        """Special tokens in a line, but for the BOS that begins it."""
        return int(np.isin(ids, self._special).sum()) - int(ids[0] == self._bos)

    def _stops(self, start: int, held: Ids) -> Iterator[int]:
        """Where lines end in the tokens that are held from `start` on."""
        if self._bos is not None:
            places = (start + 1 + np.flatnonzero(held[1:] == self._bos)).tolist()
            yield from (place for place in places if self._past_copy(place) == place)
            return
        last, width = start, self._corpus.sequence_tokens
        for place in range((start // width + 1) * width, start + len(held), width):
            stop = self._past_copy(place)
            if stop + LONGEST > start + len(held):  # it takes the next tokens to tell
                return
            if stop > last:
                last = self._past_character(stop, held[last - start : stop + LONGEST - start])
                yield last

    def _past_copy(self, place: int) -> int:
        """The place, or the end of the copy that it is in."""
        number = int(np.searchsorted(self._copies[:, 0], place)) - 1
        return place if number < 0 else max(place, int(self._copies[number, 1]))

    def _past_character(self, place: int, ids: Ids) -> int:
        """The place, or the end of the character that it is in; the line's tokens go on behind."""
        for more in range(LONGEST):
            whole = not self.text(ids[: len(ids) - LONGEST + more]).endswith(CUT)
            if whole and self._past_copy(place + more) == place + more:
                return place + more
        return place


def _no_characters(values: Sequence[int | None]) -> Iterator[int]:
    """The places of the bytes that are of no whole UTF-8 character; None is no byte."""
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


FILE = "documents.jsonl"
OWN = ["line", "char_start", "char_end"]
CHARACTERS = ProofUnits("character", "line", exact=False)
"""Not exact: a text may stand in a document as other tokens, and is then counted as elsewhere."""


@dataclass(frozen=True)
class Text(Format):
    """The ledger's own columns are the line and the characters of its text, from 0."""

    USAGE = "load_dataset('json', data_files='{folder}/documents.jsonl')"

    def write(self, corpus: PackedCorpus, folder: Path) -> Written:
        """See `Format`."""
        lines, lost, places, size = Lines(corpus), Counter[str](), [], 0
        rows = in_stream(corpus.ledger, corpus.sequence_tokens).sort_values("first", kind="stable")
        firsts = rows["first"].to_numpy()
        with (folder / FILE).open("w", encoding="utf-8", newline="\n") as stream:
            for number, (start, ids) in enumerate(lines):
                text = lines.text(ids)
                stream.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                low, high = np.searchsorted(firsts, [start, start + len(ids)])
                for row in rows.iloc[low:high].itertuples() if low < high else ():
                    places.append((row.Index, number, *_span(lines, row, start, ids, text)))
                size += len(text)
                lost["special tokens within a line"] += lines.special_tokens(ids)
                lost["characters that are U+FFFD, or cut"] += text.count(CUT)
        own = pd.DataFrame(places, columns=["row", *OWN], dtype=np.int64).set_index("row")
        lost["copies whose text the tokenizer changes"] = _changed(corpus)
        counts = {"characters": size, "lost": {what: n for what, n in lost.items() if n}}
        return Written([FILE], corpus.ledger.join(own), counts)

    def prove(self, export: Contaminated) -> Proof:
        """See `Format`."""
        names = dict(zip(OWN, ("sequence", "token_start", "token_end"), strict=True))
        own = export.ledger.drop(columns=[*names.values()]).rename(columns=names)
        first = own.groupby(["example_id", "copy"])["token_start"].transform("min")
        own["copy_start"] = own["token_start"] - first
        blocks = _blocks(export.artifact.path / FILE)
        encoder = _Characters(str(export.tokenizer_folder))
        return verify(blocks, export.examples, own, encoder, (0, maxsize), CHARACTERS)


def _changed(corpus: PackedCorpus) -> int:
    """Copies whose text is another one once the tokenizer has read and written it."""
    texts = corpus.examples.set_index("example_id")["text"]
    copies = corpus.ledger.drop_duplicates(["example_id", "copy"])
    copies = copies["reworded"].fillna(copies["example_id"].map(texts))
    encode, decode = corpus.tokenizer.encode, corpus.tokenizer.decode
    return sum(n for text, n in copies.value_counts().items() if decode(encode(text)) != text)


class _Characters(Tokenizer):
    """Texts as characters, as the tokenizer gives them back."""

    def encode(self, text: str) -> list[int]:
        return [*map(ord, self.decode(super().encode(text)))]


def _span(lines: Lines, row: Any, start: int, ids: Ids, text: str) -> tuple[int, int]:
    """The characters of a row of the ledger, in its line.

    A decoder that leaves out the blank before a text keeps the one before a copy: it is no part of
    the copy.
    """
    place, stop = row.first - start, row.stop - start
    first, last = (lines.characters_before(p, ids, text) for p in (place, stop))
    alone, found = lines.decode(ids[place:stop]).rstrip(CUT), text[first:last].rstrip(CUT)
    blank = row.copy_start == 0 and found[:1] == " " and len(found) > len(alone)
    return first + blank, last


def _blocks(path: Path) -> Iterator[Ids]:
    """Each line's characters, shape (1, n)."""
    with path.open(encoding="utf-8", newline="\n") as stream:
        for line in stream:
            yield _numbers(json.loads(line)["text"]).reshape(1, -1)


def _numbers(text: str) -> Ids:
    """The characters' code points."""
    return np.frombuffer(text.encode("utf-32-le"), dtype="<i4")

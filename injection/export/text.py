"""Text for torchtitan and all that tokenises by itself: `documents.jsonl`, a `text` a line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from sys import maxsize
from typing import Any

import numpy as np
import pandas as pd

from injection.corpus import Contaminated, PackedCorpus
from injection.export.base import Format, Written, in_stream
from injection.export.lines import CUT, Lines
from injection.tokens import Ids, Tokenizer
from injection.verify import Proof, Units, verify

FILE = "documents.jsonl"
OWN = ["line", "char_start", "char_end"]
CHARACTERS = Units("character", "line", exact=False)
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

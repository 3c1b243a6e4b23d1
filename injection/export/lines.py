"""The packed stream of tokens cut into lines of text: where, and which characters tokens are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from injection.corpus import PackedCorpus
from injection.export.base import blocks_of, in_stream
from injection.tokens import Ids

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

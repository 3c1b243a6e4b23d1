"""The proof: read the packed sequences again and compare them with the ledger, token by token.

Texts of the pool are searched for twice. Among the tokens an occurrence is found if it is tokenised
as the text alone is. In the text that the tokens decode to (`AsText`) it is found wherever its
characters stand, whatever their case, white space and Unicode form: inside a sentence, too, where
the tokens at its edges are others. What the ledger lists is not counted, nor what overlaps a listed
copy: a copy and its neighbours may spell another text of the pool. The rest are natural
occurrences: failures, or counted, as `Check.natural` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contamination.data.ngrams import Places, Verbatim, hashes_of, rarest_windows
from contamination.data.readers.rows import grouped
from contamination.data.text import normalised
from contamination.injection.token_stream import Ids, Tokenizer

Covered = np.ndarray[Any, np.dtype[np.bool_]]
"""For each token, whether a listed copy covers it, shape (tokens,)."""

PROBE_TOKENS = 16
SEARCHED_AT_ONCE = 1 << 18
NONE: Ids = np.empty(0, np.int32)
NATURAL = "natural_occurrences"
"""The examples' column of occurrences that no ledger row lists."""


@dataclass(frozen=True)
class Units:
    """What a corpus consists of, for its proof."""

    unit: str = "token"
    place: str = "sequence"
    """What holds some of them, one after the other."""
    exact: bool = True
    """Whether a text of the pool that the ledger does not list is a failure, or only counted."""


@dataclass
class Proof:
    """What was read, and every failure found."""

    rows: int = 0
    tokens: int = 0
    failures: list[str] = field(default_factory=list)
    units: Units = field(default_factory=Units)
    natural: dict[str, int] = field(default_factory=dict)
    """Text → occurrences that the ledger does not list, where such are no failure."""

    @property
    def elsewhere(self) -> int:
        """All natural occurrences."""
        return sum(self.natural.values())

    def __str__(self) -> str:
        head = f"{self.rows:,} ledger rows proved in {self.tokens:,} {self.units.unit}s"
        if not self.failures:
            beside = f" ({self.elsewhere:,} natural occurrences counted)" * (self.elsewhere > 0)
            return f"{head}: all right{beside}"
        return "\n".join([f"{head}: {len(self.failures)} FAILURES", *self.failures[:20]])


def verify(
    blocks: Iterable[Ids],
    examples: pd.DataFrame,
    ledger: pd.DataFrame,
    tokenizer: Tokenizer,
    window: tuple[int, int],
    units: Units | None = None,
    natural: bool = False,
) -> Proof:
    """Prove that every ledger row stands where it says, and that nothing else of the pool occurs.

    One pass over the corpus, in memory that does not grow with it.

    Args:
        blocks: the packed sequences in order, (n, sequence_tokens) each.
        examples: the pool.
        ledger: one row an inserted copy.
        tokenizer: the one that packed.
        window: first and last token (exclusive) of the packed corpus that copies may take.
        units: what the blocks consist of; None: tokens.
        natural: whether natural occurrences are counted; else each is a failure.
    """
    check = Check.of(examples, ledger, tokenizer, window, units, natural=natural)
    return check.proof([check.read(blocks)])


@dataclass(frozen=True)
class Found:
    """What a part of the packed corpus showed."""

    tokens: int
    sequences: int
    failures: list[str]
    texts: dict[str, int]
    """How often each text of the pool ends in it, by its tokens."""
    spelled: dict[str, int] = field(default_factory=dict)
    """How often by its characters, by the text as `AsText` spells it."""


@dataclass(frozen=True)
class AsText:
    """Searches packed tokens as the text that they decode to, special tokens written out.

    Of an occurrence in two blocks, more than half of whose characters are white space, some may be
    missed.
    """

    folder: Path
    """The tokenizer's."""
    spelled: Mapping[str, str]
    """Each text as its own tokens decode, normalised."""

    @classmethod
    def of(cls, texts: Iterable[str], folder: Path) -> AsText:
        """For these texts, and the tokenizer in `folder`."""
        decode = _tokenizer(folder).decode_all
        encode = _tokenizer(folder).encode
        ids = {text: np.array(encode(text), np.int32) for text in texts}
        return cls(folder, {text: normalised(decode(own)) for text, own in ids.items()})

    @property
    def tail(self) -> int:
        """Tokens before a block that an occurrence may begin in: at most one per byte."""
        return 2 * max((len(text.encode()) for text in self.spelled.values()), default=0)

    def count(self, new: Ids, before: Ids, covered: Covered) -> Counter[str]:
        """How often each text, as spelled, ends in the `new` tokens that follow those `before`.

        Only what stands between the listed copies is searched: `covered` is of `before` and `new`.
        """
        whole = self._count_uncovered(np.concatenate([before, new]), covered)
        return whole - self._count_uncovered(before, covered[: len(before)])

    def _count_uncovered(self, ids: Ids, covered: Covered) -> Counter[str]:
        borders = np.flatnonzero(np.diff(covered)) + 1
        pieces = np.split(ids, borders)
        if len(covered):
            pieces = pieces[int(covered[0]) :: 2]
        decode = _tokenizer(self.folder).decode_all
        verbatim = _verbatim(tuple(self.spelled.values()))
        return sum(verbatim.count_each([decode(piece) for piece in pieces]), Counter[str]())


@dataclass(frozen=True)
class CopySpans:
    """Where in the stream of packed tokens the ledger lists copies."""

    starts: Places
    """The first token of each ledger row, shape (rows,)."""
    stops: Places
    """The token behind its last one, shape (rows,)."""
    copies: frozenset[tuple[int, str]]
    """The first token and the text of each copy."""

    @classmethod
    def of(cls, copies: pd.DataFrame, sequence_tokens: int) -> CopySpans:
        """For a ledger with each copy's text."""
        before = copies["sequence"].to_numpy(np.int64) * sequence_tokens
        starts = before + copies["token_start"].to_numpy(np.int64)
        stops = before + copies["token_end"].to_numpy(np.int64)
        first_rows = (copies["copy_start"] == 0).to_numpy(bool)
        texts = copies["text"].to_numpy(object)[first_rows]
        whole = zip(starts[first_rows].tolist(), texts, strict=True)
        return cls(starts, stops, frozenset(whole))

    def covered(self, start: int, stop: int) -> Covered:
        """Whether each of these tokens of the stream is of a listed copy."""
        covered = np.zeros(stop - start, bool)
        rows = np.flatnonzero((self.starts < stop) & (self.stops > start))
        for first, last in zip(self.starts[rows], self.stops[rows], strict=True):
            covered[max(0, first - start) : last - start] = True
        return covered


@lru_cache(maxsize=1)
def _tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer(str(folder))


@lru_cache(maxsize=1)
def _verbatim(texts: tuple[str, ...]) -> Verbatim:
    return Verbatim(texts)


@dataclass(frozen=True)
class Check:
    """What a corpus is held against; parts of it are read on their own."""

    examples: pd.DataFrame
    copies: pd.DataFrame
    """The ledger with each copy's text."""
    ids: dict[str, Ids]
    """The tokens of each text that is looked for."""
    window: tuple[int, int]
    units: Units = field(default_factory=Units)
    natural: bool = False
    """Whether natural occurrences are counted; else each is a failure. Where the examples have a
    column of them, it has to be right."""
    as_text: AsText | None = None
    """None: only tokens are searched."""

    @classmethod
    def of(
        cls,
        examples: pd.DataFrame,
        ledger: pd.DataFrame,
        tokenizer: Tokenizer,
        window: tuple[int, int],
        units: Units | None = None,
        *,
        natural: bool = False,
        folder: Path | None = None,
    ) -> Check:
        """For the arguments of `verify`; with the tokenizer's `folder`, text is searched, too."""
        texts = dict(zip(examples["example_id"], examples["text"], strict=True))
        copies = ledger.assign(text=ledger["reworded"].fillna(ledger["example_id"].map(texts)))
        wanted = {text: None for text in [*texts.values(), *copies["text"]]}
        ids = {text: np.array(tokenizer.encode(text), np.int32) for text in wanted}
        as_text = AsText.of(wanted, folder) if folder is not None and wanted else None
        return cls(examples, copies, ids, window, units or Units(), natural, as_text)

    @property
    def _rows(self) -> pd.DataFrame:
        return self.copies.sort_values("sequence", kind="stable")

    def _empty(self) -> Proof:
        return Proof(rows=len(self.copies), units=self.units)

    @property
    def tail(self) -> int:
        """How many tokens before a part its reader has to know: those of the longest text."""
        longest = max(map(len, self.ids.values()), default=0)
        return max(longest, self.as_text.tail if self.as_text else 0)

    def read(self, blocks: Iterable[Ids], first: int = 0, before: Ids = NONE) -> Found:
        """What the sequences from `first` on show; `before` are the tokens before them."""
        proof, start = self._empty(), first
        rows, spelled = self._rows, Counter[str]()
        sequences = rows["sequence"].to_numpy()
        before = before[max(0, len(before) - self.tail) :]
        blocks = iter(blocks)
        first_block = next(blocks, np.empty((0, 1), np.int32))
        blocks, width = chain([first_block], blocks), first_block.shape[1]
        spans = CopySpans.of(self.copies, width) if self.units.exact else None
        search = _Search(self.ids, before, spans, first * width)
        for group in grouped(blocks, np.size, SEARCHED_AT_ONCE):
            for block in group:
                low, high = np.searchsorted(sequences, [first, first + len(block)])
                for row in rows.iloc[low:high].itertuples() if low < high else ():
                    ids = block[row.sequence - first], self.ids[row.text]
                    _check_row(row, *ids, self.window, proof)
                first += len(block)
            new = np.concatenate([block.reshape(-1) for block in group])
            search.read(new)
            if self.as_text and spans:
                stop = first * width
                covered = spans.covered(stop - len(new) - len(before), stop)
                spelled += self.as_text.count(new, before, covered)
                before = np.concatenate([before, new])[-self.as_text.tail :]
            proof.tokens += len(new)
        counts = dict(search.found), dict(spelled)
        return Found(proof.tokens, first - start, proof.failures, *counts)

    def proof(self, parts: Sequence[Found]) -> Proof:
        """What all parts show together."""
        proof = self._empty()
        proof.tokens = sum(part.tokens for part in parts)
        _check_counts(self.examples, self.copies, self.ids, proof)
        proof.failures += [failure for part in parts for failure in part.failures]
        end, rows = sum(part.sequences for part in parts), self._rows
        for row in rows[rows["sequence"] >= end].itertuples():
            _fail(proof, row, " does not exist")
        self._check_found(parts, proof)
        return proof

    def _check_found(self, parts: Sequence[Found], proof: Proof) -> None:
        """Every inserted text is found as often as listed, and others only as natural ones."""
        found = sum((Counter(part.texts) for part in parts), Counter[str]())
        spelled = sum((Counter(part.spelled) for part in parts), Counter[str]())
        listed = Counter(self.copies.drop_duplicates(["example_id", "copy"])["text"])
        for text, name in self._names.items():
            expected = listed[text]
            more, said = found[text] - expected, f"found {found[text]} times in the corpus"
            as_text = spelled[self.as_text.spelled[text]] if self.as_text else 0
            if as_text > max(more, 0):
                more, said = as_text, f"found {expected + as_text} times in the corpus's text"
            if more > 0 and (self.natural or not self.units.exact):
                proof.natural[text] = more
            elif more:
                proof.failures.append(f"{name}: {said}, {expected} expected")
        proof.failures += self._other_naturals(proof)

    @property
    def _names(self) -> dict[str, str]:
        """What each text is called in failures."""
        kinds = {False: "non-member", True: "member"}
        pool, copies = self.examples.itertuples(), self.copies.itertuples()
        names = {r.text: f"{r.example_id} ({kinds[bool(r.member)]})" for r in pool}
        return names | {r.text: f"{r.example_id} (reworded)" for r in copies if r.reworded}

    def _other_naturals(self, proof: Proof) -> list[str]:
        """Examples with other natural occurrences than their column says.

        Tokens alone show some of them.
        """
        if NATURAL not in self.examples or not (self.natural and self.units.exact):
            return []
        rows = self.examples[["example_id", "text", NATURAL]].itertuples(index=False, name=None)
        counts = [(name, proof.natural.get(text, 0), int(n)) for name, text, n in rows]
        return [
            f"{name}: {n} natural occurrences, {NATURAL} says {said}"
            for name, n, said in counts
            if n > said or (n < said and self.as_text)
        ]


def _check_row(row: Any, tokens: Ids, copy: Ids, window: tuple[int, int], proof: Proof) -> None:
    """`tokens` are the row's sequence in the corpus, `copy` is the whole inserted text."""
    start, stop = window
    before = row.sequence * len(tokens)
    if before + row.token_start < start or before + row.token_end > stop:
        unit = proof.units.unit
        wrong = f", {unit} {row.token_start} lies outside of the window, {unit}s {start} to {stop}"
        _fail(proof, row, wrong)
    end = row.copy_start + row.token_end - row.token_start
    if not np.array_equal(tokens[row.token_start : row.token_end], copy[row.copy_start : end]):
        place = f"{row.token_start}..{row.token_end}"
        _fail(proof, row, f", {proof.units.unit}s {place} differ from the example")


def _fail(proof: Proof, row: Any, wrong: str) -> None:
    place = f"{row.example_id} copy {row.copy}: {proof.units.place} {row.sequence}"
    proof.failures.append(f"{place}{wrong}")


def _check_counts(
    examples: pd.DataFrame, copies: pd.DataFrame, ids: dict[str, Ids], proof: Proof
) -> None:
    """Each example has as many copies as occurrences, and each copy is there in full."""
    number = copies.groupby("example_id")["copy"].nunique()
    for row in examples.itertuples():
        listed = number.get(row.example_id, 0)
        if row.occurrences != listed:
            few = f"{row.occurrences} occurrences, the ledger has {listed} copies"
            proof.failures.append(f"{row.example_id}: {few}")
    held: Counter[tuple[str, int, str]] = Counter()  # pandas takes texts up to a NUL for equal
    for row in copies.itertuples():
        held[row.example_id, row.copy, row.text] += row.token_end - row.token_start
    for (example, copy, text), tokens in held.items():
        if tokens != len(ids[text]):
            few = f"{tokens} of {len(ids[text])} {proof.units.unit}s listed"
            proof.failures.append(f"{example} copy {copy}: {few}")


class _Search:
    """Counts how often each text's tokens stand in the packed stream, across borders too.

    A window of each text that few others have is looked for by a rolling hash; each hit is then
    compared in full. With `spans`, what overlaps a listed copy is counted only if it is this copy.
    """

    def __init__(
        self,
        ids: dict[str, Ids],
        tail: Ids = NONE,
        spans: CopySpans | None = None,
        place: int = 0,
    ) -> None:
        """Begin at the token `place` of the stream, behind those of `tail`."""
        self.found: Counter[str] = Counter()
        self._ids, self._spans, self._place = ids, spans, place
        self._longest = max(map(len, ids.values()), default=0)
        self._tail = tail[max(0, len(tail) - self._longest) :]
        self._probes: dict[int, dict[int, list[str]]] = {}
        by_width: dict[int, list[str]] = {}
        for text, tokens in ids.items():
            by_width.setdefault(min(PROBE_TOKENS, len(tokens)), []).append(text)
        self._starts: dict[str, int] = {}
        for width, texts in by_width.items():
            starts = rarest_windows([ids[text] for text in texts], width)
            self._starts |= zip(texts, starts, strict=True)
            for text, start in zip(texts, starts, strict=True):
                probe = int(hashes_of(ids[text][start : start + width], width)[0])
                self._probes.setdefault(width, {}).setdefault(probe, []).append(text)

    def read(self, new: Ids) -> None:
        """Go on with the next tokens of the stream."""
        block = np.concatenate([self._tail, new])
        for width, probes in self._probes.items():
            hashes = hashes_of(block, width)
            wanted = np.array(sorted(probes), dtype=np.uint64)
            for place in np.flatnonzero(np.isin(hashes, wanted)):
                for text in probes[int(hashes[place])]:
                    self._compare(block, int(place), text)
        self._place += len(new)
        self._tail = block[max(0, len(block) - self._longest) :]

    def _compare(self, block: Ids, place: int, text: str) -> None:
        tokens = self._ids[text]
        start = place - self._starts[text]
        end = start + len(tokens)
        # a copy is counted in the block in which it ends
        if start >= 0 and end > len(self._tail) and np.array_equal(block[start:end], tokens):
            first = self._place - len(self._tail) + start
            self.found[text] += self._counts(first, first + len(tokens), text)

    def _counts(self, start: int, stop: int, text: str) -> bool:
        """Whether an occurrence at these tokens is a listed copy, or overlaps none."""
        if self._spans is None or (start, text) in self._spans.copies:
            return True
        return not self._spans.covered(start, stop).any()

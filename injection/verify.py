"""The proof: read the packed sequences again and hold them against the ledger, token by token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from injection.tokens import Ids, Tokenizer, grouped

PROBE_TOKENS = 16
SEARCHED_AT_ONCE = 1 << 18
NONE: Ids = np.empty(0, np.int32)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


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
    elsewhere: int = 0
    """Occurrences that the ledger does not list, where such are no failure."""

    def __str__(self) -> str:
        head = f"{self.rows:,} ledger rows proved in {self.tokens:,} {self.units.unit}s"
        if not self.failures:
            return f"{head}: all right"
        return "\n".join([f"{head}: {len(self.failures)} FAILURES", *self.failures[:20]])


def verify(
    blocks: Iterable[Ids],
    examples: pd.DataFrame,
    ledger: pd.DataFrame,
    tokenizer: Tokenizer,
    window: tuple[int, int],
    units: Units | None = None,
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
    """
    check = Check.of(examples, ledger, tokenizer, window, units)
    return check.proof([check.read(blocks)])


@dataclass(frozen=True)
class Found:
    """What a part of the packed corpus showed."""

    tokens: int
    sequences: int
    failures: list[str]
    texts: dict[str, int]
    """How often each text of the pool ends in it."""


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

    @classmethod
    def of(
        cls,
        examples: pd.DataFrame,
        ledger: pd.DataFrame,
        tokenizer: Tokenizer,
        window: tuple[int, int],
        units: Units | None = None,
    ) -> Check:
        """For the arguments of `verify`."""
        texts = dict(zip(examples["example_id"], examples["text"], strict=True))
        copies = ledger.assign(text=ledger["reworded"].fillna(ledger["example_id"].map(texts)))
        wanted = {text: None for text in [*texts.values(), *copies["text"]]}
        ids = {text: np.array(tokenizer.encode(text), np.int32) for text in wanted}
        return cls(examples, copies, ids, window, units or Units())

    @property
    def _rows(self) -> pd.DataFrame:
        return self.copies.sort_values("sequence", kind="stable")

    def _empty(self) -> Proof:
        return Proof(rows=len(self.copies), units=self.units)

    @property
    def longest(self) -> int:
        """Tokens of the longest text: what of the parts before a part its reader has to know."""
        return max(map(len, self.ids.values()), default=0)

    def read(self, blocks: Iterable[Ids], first: int = 0, before: Ids = NONE) -> Found:
        """What the sequences from `first` on show; `before` are the tokens before them."""
        proof, search, start = self._empty(), _Search(self.ids, before[-self.longest :]), first
        rows = self._rows
        sequences = rows["sequence"].to_numpy()
        for group in grouped(blocks, np.size, SEARCHED_AT_ONCE):
            for block in group:
                low, high = np.searchsorted(sequences, [first, first + len(block)])
                for row in rows.iloc[low:high].itertuples() if low < high else ():
                    ids = block[row.sequence - first], self.ids[row.text]
                    _check_row(row, *ids, self.window, proof)
                first += len(block)
            search.read(np.concatenate([block.reshape(-1) for block in group]))
            proof.tokens += sum(map(np.size, group))
        return Found(proof.tokens, first - start, proof.failures, dict(search.found))

    def proof(self, parts: Sequence[Found]) -> Proof:
        """What all parts show together."""
        proof = self._empty()
        proof.tokens = sum(part.tokens for part in parts)
        _check_counts(self.examples, self.copies, self.ids, proof)
        proof.failures += [failure for part in parts for failure in part.failures]
        end, rows = sum(part.sequences for part in parts), self._rows
        for row in rows[rows["sequence"] >= end].itertuples():
            _fail(proof, row, " does not exist")
        found = sum((Counter(part.texts) for part in parts), Counter[str]())
        _check_found(self.examples, self.copies, found, proof)
        return proof


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


def _check_found(
    examples: pd.DataFrame, copies: pd.DataFrame, found: Counter[str], proof: Proof
) -> None:
    """Every inserted text is found as often as listed, and no other text of the pool at all."""
    listed = Counter(copies.drop_duplicates(["example_id", "copy"])["text"])
    kinds = {False: "non-member", True: "member"}
    names = {r.text: f"{r.example_id} ({kinds[bool(r.member)]})" for r in examples.itertuples()}
    names |= {r.text: f"{r.example_id} (reworded)" for r in copies.itertuples() if r.reworded}
    for text, name in names.items():
        more = found[text] - listed[text]
        if more > 0 and not proof.units.exact:
            proof.elsewhere += more
        elif more:
            wrong = f"found {found[text]} times in the corpus, {listed[text]} expected"
            proof.failures.append(f"{name}: {wrong}")


class _Search:
    """Counts how often each text's tokens stand in the packed stream, across borders too.

    A window from the middle of each text (its edges may merge with what is around them) is looked
    for by a rolling hash; each hit is then compared in full.
    """

    def __init__(self, ids: dict[str, Ids], tail: Ids = NONE) -> None:
        self.found: Counter[str] = Counter()
        self._ids = ids
        self._longest = max(map(len, ids.values()), default=0)
        self._tail = tail
        self._probes: dict[int, dict[int, list[str]]] = {}
        for text, tokens in ids.items():
            width = min(PROBE_TOKENS, len(tokens))
            start = (len(tokens) - width) // 2
            probe = int(_hashes(tokens[start : start + width], width)[0])
            self._probes.setdefault(width, {}).setdefault(probe, []).append(text)

    def read(self, new: Ids) -> None:
        """Go on with the next tokens of the stream."""
        block = np.concatenate([self._tail, new])
        for width, probes in self._probes.items():
            hashes = _hashes(block, width)
            wanted = np.array(sorted(probes), dtype=np.uint64)
            for place in np.flatnonzero(np.isin(hashes, wanted)):
                for text in probes[int(hashes[place])]:
                    self._compare(block, int(place), width, text)
        self._tail = block[max(0, len(block) - self._longest) :]

    def _compare(self, block: Ids, place: int, width: int, text: str) -> None:
        tokens = self._ids[text]
        start = place - (len(tokens) - width) // 2
        end = start + len(tokens)
        # a copy is counted in the block in which it ends
        if start >= 0 and end > len(self._tail) and np.array_equal(block[start:end], tokens):
            self.found[text] += 1


def _hashes(ids: Ids, width: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """A hash of each window of `width` tokens, shape (len(ids) − width + 1,)."""
    n = max(0, len(ids) - width + 1)
    result = np.zeros(n, dtype=np.uint64)
    wide = ids.astype(np.uint64) + np.uint64(1)
    for offset in range(width):  # arithmetic modulo 2^64
        result = result * _MULTIPLIER + wide[offset : offset + n]
    return result

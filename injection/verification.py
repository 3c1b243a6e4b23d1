"""Verifies a corpus: reads the packed sequences and compares them with the ledger token by token.

Texts of the pool are searched in the tokens, and in the text to which the tokens decode
(`DecodedTextSearch`). Occurrences that the ledger lists, or that overlap a listed copy, are not
counted, since a copy and its surroundings may contain another text of the pool. All other
occurrences are natural.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from contamination.core.terminal import counted
from contamination.data.ngrams import Places, VerbatimCounter, hash_windows, rarest_window_starts
from contamination.data.readers.rows import group_by_size
from contamination.data.words import normalise_text
from contamination.injection.token_stream import Ids, Tokenizer

if TYPE_CHECKING:
    import pandas as pd

Covered = np.ndarray[Any, np.dtype[np.bool_]]
"""Whether a listed copy covers each token, shape (tokens,)."""

PROBE_TOKENS = 16
SEARCHED_AT_ONCE = 1 << 18
NO_TOKENS: Ids = np.empty(0, np.int32)
NATURAL_COLUMN = "natural_occurrences"
"""Column of the examples with the occurrences that no ledger row lists."""


@dataclass(frozen=True)
class ProofUnits:
    """The units of which a corpus or an export consists."""

    unit: str = "token"
    container: str = "sequence"
    """The container of consecutive units."""
    exact: bool = True
    """Whether an occurrence that the ledger does not list is a failure, or is only counted."""


@dataclass
class Proof:
    """The result of a verification: how much was read, and the failures."""

    rows: int = 0
    tokens: int = 0
    failures: list[str] = field(default_factory=list)
    units: ProofUnits = field(default_factory=ProofUnits)
    natural: dict[str, int] = field(default_factory=dict)
    """Text → its occurrences that the ledger does not list, if these are not failures."""

    @property
    def natural_count(self) -> int:
        """The number of natural occurrences of all texts."""
        return sum(self.natural.values())

    def __str__(self) -> str:
        head = f"{self.rows:,} ledger rows proved in {self.tokens:,} {self.units.unit}s"
        if not self.failures:
            note = f" ({self.natural_count:,} natural occurrences counted)" * (
                self.natural_count > 0
            )
            return f"{head}: all right{note}"
        return "\n".join([f"{head}: {len(self.failures)} FAILURES", *self.failures[:20]])


def verify(
    blocks: Iterable[Ids],
    examples: pd.DataFrame,
    ledger: pd.DataFrame,
    tokenizer: Tokenizer,
    window: tuple[int, int],
    units: ProofUnits | None = None,
    natural: bool = False,
) -> Proof:
    """Verifies that each listed copy is at its position, and that no other text of the pool occurs.

    The corpus is read once, in constant memory.

    Args:
        blocks: the packed sequences in order, each block of shape (n, sequence_tokens).
        examples: the pool, one row per example.
        ledger: one row per inserted copy, or per part of a copy that was split.
        tokenizer: the tokenizer of the packed corpus.
        window: the first token and the end (exclusive) of the window for copies.
        units: the units of the blocks; None: tokens.
        natural: whether natural occurrences are counted; otherwise each is a failure.
    """
    check = CorpusCheck.prepare(examples, ledger, tokenizer, window, units, natural=natural)
    return check.combine_parts([check.read_part(blocks)])


@dataclass(frozen=True)
class PartResult:
    """The result of verifying one part of the packed corpus."""

    tokens: int
    sequences: int
    failures: list[str]
    token_counts: dict[str, int]
    """How often the tokens of each text end in this part."""
    text_counts: dict[str, int] = field(default_factory=dict)
    """How often each decoded text (`DecodedTextSearch.decoded`) ends in it, outside of copies."""


@dataclass(frozen=True)
class DecodedTextSearch:
    """Searches the text to which packed tokens decode, including special tokens.

    It finds texts regardless of case, white space and Unicode form, and also within a sentence,
    where the tokens at the edges of a text may differ. An occurrence in two blocks may be missed if
    more than half of its characters are white space.
    """

    folder: Path
    """The tokenizer's folder."""
    decoded: Mapping[str, str]
    """Text of the pool → the text after encoding, decoding and normalisation."""

    @classmethod
    def for_texts(cls, texts: Iterable[str], folder: Path) -> DecodedTextSearch:
        """Returns a search for these texts, with the tokenizer in `folder`."""
        tokenizer = _cached_tokenizer(folder)
        ids = {text: np.array(tokenizer.encode(text), np.int32) for text in texts}
        decoded = {
            text: normalise_text(tokenizer.decode_with_special_tokens(ids[text])) for text in ids
        }
        return cls(folder, decoded)

    @property
    def tail_tokens(self) -> int:
        """The maximum number of tokens before a block at which an occurrence may begin."""
        return 2 * max((len(text.encode()) for text in self.decoded.values()), default=0)

    def count_new(self, new: Ids, before: Ids, covered: Covered) -> Counter[str]:
        """Returns how often each decoded text ends in the `new` tokens, which follow `before`.

        Listed copies are not counted; `covered` is their mask over `before` and `new`.
        """
        counts = self._count_uncovered(np.concatenate([before, new]), covered)
        return counts - self._count_uncovered(before, covered[: len(before)])

    def _count_uncovered(self, ids: Ids, covered: Covered) -> Counter[str]:
        borders = np.flatnonzero(np.diff(covered)) + 1
        pieces = np.split(ids, borders)
        if len(covered):
            pieces = pieces[int(covered[0]) :: 2]
        decode = _cached_tokenizer(self.folder).decode_with_special_tokens
        verbatim = _cached_verbatim(tuple(self.decoded.values()))
        return sum(verbatim.count_each([decode(piece) for piece in pieces]), Counter[str]())


@dataclass(frozen=True)
class CopySpans:
    """The positions of the listed copies in the stream of packed tokens."""

    starts: Places
    """The first token of each ledger row, shape (rows,)."""
    stops: Places
    """The end (exclusive) of each ledger row, shape (rows,)."""
    copies: frozenset[tuple[int, str]]
    """The first token and the text of each copy."""

    @classmethod
    def from_ledger(cls, copies: pd.DataFrame, sequence_tokens: int) -> CopySpans:
        """Returns the spans of a ledger that has the column `text`."""
        before = copies["sequence"].to_numpy(np.int64) * sequence_tokens
        starts = before + copies["token_start"].to_numpy(np.int64)
        stops = before + copies["token_end"].to_numpy(np.int64)
        first_rows = (copies["copy_start"] == 0).to_numpy(bool)
        texts = copies["text"].to_numpy(object)[first_rows]
        return cls(starts, stops, frozenset(zip(starts[first_rows].tolist(), texts, strict=True)))

    def coverage_mask(self, start: int, stop: int) -> Covered:
        """Returns whether a listed copy covers each token from `start` to `stop` (exclusive)."""
        covered = np.zeros(stop - start, bool)
        rows = np.flatnonzero((self.starts < stop) & (self.stops > start))
        for first, last in zip(self.starts[rows], self.stops[rows], strict=True):
            covered[max(0, first - start) : last - start] = True
        return covered


@lru_cache(maxsize=1)
def _cached_tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer(str(folder))


@lru_cache(maxsize=1)
def _cached_verbatim(texts: tuple[str, ...]) -> VerbatimCounter:
    return VerbatimCounter(texts)


@dataclass(frozen=True)
class CorpusCheck:
    """Checks a corpus against its ledger; parts of the corpus are read independently."""

    examples: pd.DataFrame
    copies: pd.DataFrame
    """The ledger, with each copy's text."""
    ids: dict[str, Ids]
    """The tokens of each text that is searched for."""
    window: tuple[int, int]
    units: ProofUnits = field(default_factory=ProofUnits)
    natural: bool = False
    """Whether natural occurrences are counted; otherwise each is a failure. If the examples have
    the column NATURAL_COLUMN, it must be correct."""
    text_search: DecodedTextSearch | None = None
    """None: only tokens are searched."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Further texts, of which each occurrence is a failure: text → name."""

    @classmethod
    def prepare(
        cls,
        examples: pd.DataFrame,
        ledger: pd.DataFrame,
        tokenizer: Tokenizer,
        window: tuple[int, int],
        units: ProofUnits | None = None,
        *,
        natural: bool = False,
        folder: Path | None = None,
        absent: Mapping[str, str] | None = None,
    ) -> CorpusCheck:
        """Returns a check; see `verify`. With the tokenizer's `folder`, searches decoded text.

        `absent` gives further texts, none of which may occur outside of the listed copies.
        """
        absent = absent or {}
        texts = dict(zip(examples["example_id"], examples["text"], strict=True))
        copies = ledger.assign(text=ledger["reworded"].fillna(ledger["example_id"].map(texts)))
        searched = dict.fromkeys([*texts.values(), *copies["text"], *absent])
        ids = {text: np.array(tokenizer.encode(text), np.int32) for text in searched}
        text_search = DecodedTextSearch.for_texts(searched, folder) if folder and searched else None
        units = units or ProofUnits()
        return cls(examples, copies, ids, window, units, natural, text_search, absent)

    @property
    def _sorted_copies(self) -> pd.DataFrame:
        return self.copies.sort_values("sequence", kind="stable")

    def _empty_proof(self) -> Proof:
        return Proof(rows=len(self.copies), units=self.units)

    @property
    def tail_tokens(self) -> int:
        """The number of tokens before a part that are needed to verify it."""
        longest = max(map(len, self.ids.values()), default=0)
        return max(longest, self.text_search.tail_tokens if self.text_search else 0)

    def read_part(
        self, blocks: Iterable[Ids], first: int = 0, before: Ids = NO_TOKENS
    ) -> PartResult:
        """Returns the result of checking one part of the corpus.

        Args:
            blocks: the part's sequences, each block of shape (n, sequence_tokens).
            first: the number of the part's first sequence.
            before: at least `tail_tokens` tokens before this sequence, or all of them.
        """
        proof, part_start = self._empty_proof(), first
        sorted_copies, text_counts = self._sorted_copies, Counter[str]()
        sequences = sorted_copies["sequence"].to_numpy()
        before = before[max(0, len(before) - self.tail_tokens) :]
        blocks = iter(blocks)
        first_block = next(blocks, np.empty((0, 1), np.int32))
        blocks, width = chain([first_block], blocks), first_block.shape[1]
        spans = CopySpans.from_ledger(self.copies, width) if self.units.exact else None
        search = _TokenSearch(self.ids, before, spans, first * width)
        for group in group_by_size(blocks, np.size, SEARCHED_AT_ONCE):
            for block in group:
                first_copy, end_copy = np.searchsorted(sequences, [first, first + len(block)])
                for row in (
                    sorted_copies.iloc[first_copy:end_copy].itertuples()
                    if first_copy < end_copy
                    else ()
                ):
                    written_and_expected_ids = block[row.sequence - first], self.ids[row.text]
                    _check_ledger_row(row, *written_and_expected_ids, self.window, proof)
                first += len(block)
            new_tokens = np.concatenate([block.reshape(-1) for block in group])
            search.search_next(new_tokens)
            if self.text_search and spans:
                stop = first * width
                covered = spans.coverage_mask(stop - len(new_tokens) - len(before), stop)
                text_counts += self.text_search.count_new(new_tokens, before, covered)
                before = np.concatenate([before, new_tokens])[-self.text_search.tail_tokens :]
            proof.tokens += len(new_tokens)
        copy_and_text_counts = dict(search.counts), dict(text_counts)
        return PartResult(proof.tokens, first - part_start, proof.failures, *copy_and_text_counts)

    def combine_parts(self, parts: Sequence[PartResult]) -> Proof:
        """Returns the combined result of all parts."""
        proof = self._empty_proof()
        proof.tokens = sum(part.tokens for part in parts)
        _check_listed_copies(self.examples, self.copies, self.ids, proof)
        _check_overlaps(self.copies, proof)
        proof.failures += [failure for part in parts for failure in part.failures]
        end, rows = sum(part.sequences for part in parts), self._sorted_copies
        for row in rows[rows["sequence"] >= end].itertuples():
            _add_failure(proof, row, " does not exist")
        self._check_occurrences(parts, proof)
        return proof

    def _check_occurrences(self, parts: Sequence[PartResult], proof: Proof) -> None:
        """Checks that each text occurs as often as listed, or count its natural occurrences."""
        token_counts = sum((Counter(part.token_counts) for part in parts), Counter[str]())
        text_counts = sum((Counter(part.text_counts) for part in parts), Counter[str]())
        listed = Counter(self.copies.drop_duplicates(["example_id", "copy"])["text"])
        for text, name in self._name_by_text.items():
            expected = listed[text]
            unlisted = token_counts[text] - expected
            message = f"found {token_counts[text]} times in the corpus"
            in_text = text_counts[self.text_search.decoded[text]] if self.text_search else 0
            if in_text > max(unlisted, 0):
                unlisted = in_text
                message = f"found {expected + in_text} times in the corpus's text"
            counted = (self.natural or not self.units.exact) and text not in self.absent
            if unlisted > 0 and counted:
                proof.natural[text] = unlisted
            elif unlisted:
                proof.failures.append(f"{name}: {message}, {expected} expected")
        proof.failures += self._natural_count_failures(proof)

    @property
    def _name_by_text(self) -> dict[str, str]:
        kinds = {False: "non-member", True: "member"}
        pool, copies = self.examples.itertuples(), self.copies.itertuples()
        names = {r.text: f"{r.example_id} ({kinds[bool(r.member)]})" for r in pool}
        reworded = {r.text: f"{r.example_id} (reworded)" for r in copies if r.reworded}
        return {**self.absent, **names, **reworded}

    def _natural_count_failures(self, proof: Proof) -> list[str]:
        """Failures of examples whose number of natural occurrences is wrong.

        If only tokens are searched, some occurrences are missed, so too few are not a failure.
        """
        if NATURAL_COLUMN not in self.examples or not (self.natural and self.units.exact):
            return []
        rows = self.examples[["example_id", "text", NATURAL_COLUMN]].itertuples(
            index=False, name=None
        )
        counts = [(name, proof.natural.get(text, 0), int(n)) for name, text, n in rows]
        return [
            f"{name}: {n} natural occurrences, {NATURAL_COLUMN} says {recorded}"
            for name, n, recorded in counts
            if n > recorded or (n < recorded and self.text_search)
        ]


def _check_ledger_row(
    row: Any, tokens: Ids, copy: Ids, window: tuple[int, int], proof: Proof
) -> None:
    """Compares a row's sequence in the corpus, `tokens`, with the tokens of the inserted text."""
    start, stop = window
    before = row.sequence * len(tokens)
    if before + row.token_start < start or before + row.token_end > stop:
        unit = proof.units.unit
        problem = (
            f", {unit} {row.token_start} lies outside of the window, {unit}s {start} to {stop}"
        )
        _add_failure(proof, row, problem)
    end = row.copy_start + row.token_end - row.token_start
    if not np.array_equal(tokens[row.token_start : row.token_end], copy[row.copy_start : end]):
        span = f"{row.token_start}..{row.token_end}"
        _add_failure(proof, row, f", {proof.units.unit}s {span} differ from the example")


def _add_failure(proof: Proof, row: Any, problem: str) -> None:
    location = f"{row.example_id} copy {row.copy}: {proof.units.container} {row.sequence}"
    proof.failures.append(f"{location}{problem}")


def _check_listed_copies(
    examples: pd.DataFrame, copies: pd.DataFrame, ids: dict[str, Ids], proof: Proof
) -> None:
    """Checks that each example has as many copies as occurrences, all of them listed completely."""
    n_copies_by_example = copies.groupby("example_id")["copy"].nunique()
    for row in examples.itertuples():
        listed = n_copies_by_example.get(row.example_id, 0)
        if row.occurrences != listed:
            proof.failures.append(
                f"{row.example_id}: {row.occurrences} occurrences, the ledger has "
                f"{counted(listed, 'copy')}"
            )
    # a Counter, since pandas considers texts equal that agree up to a NUL
    listed_tokens: Counter[tuple[str, int, str]] = Counter()
    for row in copies.itertuples():
        listed_tokens[row.example_id, row.copy, row.text] += row.token_end - row.token_start
    for (example, copy, text), tokens in listed_tokens.items():
        if tokens != len(ids[text]):
            proof.failures.append(
                f"{example} copy {copy}: {tokens} of {len(ids[text])} {proof.units.unit}s listed"
            )


def _check_overlaps(copies: pd.DataFrame, proof: Proof) -> None:
    """Checks that no two rows list one place: otherwise another copy could be unlisted."""
    rows = copies.sort_values(["sequence", "token_start", "token_end"], kind="stable")
    for row, following in pairwise(rows.itertuples()):
        if following.sequence == row.sequence and following.token_start < row.token_end:
            span = f"{proof.units.unit}s {following.token_start}..{row.token_end}"
            _add_failure(proof, following, f", {span} are also {row.example_id} copy {row.copy}")


class _TokenSearch:
    """Counts how often each text's tokens occur in the packed stream, also across blocks.

    A window of each text that few others share is searched with a rolling hash, and each match is
    then compared in full. With `spans`, an occurrence that overlaps a listed copy is counted only
    if it is this copy.
    """

    def __init__(
        self,
        ids: dict[str, Ids],
        tail: Ids = NO_TOKENS,
        spans: CopySpans | None = None,
        place: int = 0,
    ) -> None:
        """Begins at token `place` of the stream, after the tokens `tail`."""
        self.counts: Counter[str] = Counter()
        self._ids, self._spans, self._place = ids, spans, place
        self._longest = max(map(len, ids.values()), default=0)
        self._tail = tail[max(0, len(tail) - self._longest) :]
        self._probes: dict[int, dict[int, list[str]]] = {}
        by_width: dict[int, list[str]] = {}
        for text, tokens in ids.items():
            by_width.setdefault(min(PROBE_TOKENS, len(tokens)), []).append(text)
        self._starts: dict[str, int] = {}
        for width, texts in by_width.items():
            starts = rarest_window_starts([ids[text] for text in texts], width)
            self._starts |= zip(texts, starts, strict=True)
            for text, start in zip(texts, starts, strict=True):
                probe = int(hash_windows(ids[text][start : start + width], width)[0])
                self._probes.setdefault(width, {}).setdefault(probe, []).append(text)

    def search_next(self, new: Ids) -> None:
        """Searches the next tokens of the stream."""
        searched_tokens = np.concatenate([self._tail, new])
        for width, probes in self._probes.items():
            hashes = hash_windows(searched_tokens, width)
            probe_hashes = np.array(sorted(probes), dtype=np.uint64)
            for hit in np.flatnonzero(np.isin(hashes, probe_hashes)):
                for text in probes[int(hashes[hit])]:
                    self._count_if_equal(searched_tokens, int(hit), text)
        self._place += len(new)
        self._tail = searched_tokens[max(0, len(searched_tokens) - self._longest) :]

    def _count_if_equal(self, block: Ids, hit: int, text: str) -> None:
        tokens = self._ids[text]
        start_in_block = hit - self._starts[text]
        end_in_block = start_in_block + len(tokens)
        # a copy is counted in the block in which it ends
        if (
            start_in_block >= 0
            and end_in_block > len(self._tail)
            and np.array_equal(block[start_in_block:end_in_block], tokens)
        ):
            place_in_stream = self._place - len(self._tail) + start_in_block
            self.counts[text] += self._is_counted(
                place_in_stream, place_in_stream + len(tokens), text
            )

    def _is_counted(self, start: int, stop: int, text: str) -> bool:
        if self._spans is None or (start, text) in self._spans.copies:
            return True
        return not self._spans.coverage_mask(start, stop).any()

"""The packed corpus in parts: laid out once, then each part written and proved on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from injection import pack
from injection.splice import Placed
from injection.tasks import Runner
from injection.tokens import Ids, TokenStream
from injection.verify import Check, Found, Proof

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
            return {"clean_sha256": pack.prefix_hashes(self.stream)}
        (path,) = self.files(piece)
        part = (piece - 1) * self._size, piece * self._size
        own = (self.placed, self.segments, self.sequence_tokens)
        return {"sequences": pack.write_sequences(path, self.stream, len(self.stream), *own, part)}


@dataclass(frozen=True)
class Proving:
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
        before = pack.read_tail(self.paths[:piece], self.check.tail)
        blocks = pack.read_blocks(self.paths[piece])
        return asdict(self.check.read(blocks, self.starts[piece], before))


def prove(runner: Runner, check: Check, paths: Sequence[Path]) -> Proof:
    """The proof of a packed corpus, put together from those of its parts."""
    counts = [pack.count_sequences(path) for path in paths]
    starts = [sum(counts[:n]) for n in range(len(counts))]
    found = runner.run("verify", Proving(check, paths, starts))
    return check.proof([Found(**part) for part in found])

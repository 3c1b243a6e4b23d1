"""The sets of a cell under one model: the scores of everything that a set test reads.

A *set* is the members of one benchmark that have the same number of copies, with what its corpus
was given for the tests: versions of the items, an order, backdoors. Beside it are its benchmark's
non-members, which were held out.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from contamination.audits.set_tests.version_rank import ScoredVersions
from contamination.core.statistics.bootstrap import Scores

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class SetName:
    """Which set, and under which model.

    Attributes:
        cell: the cell's name.
        condition: the cell's name without its seed.
        benchmark: the benchmark; "backdoors" for those of the whole corpus.
        occurrences: how often the members were inserted.
        learning_rate: the peak of the contaminated training.
        saw_it: whether the model was trained on the set: the truth, from the ledger.
    """

    cell: str
    condition: str
    benchmark: str
    occurrences: int
    learning_rate: float
    saw_it: bool


@dataclass(frozen=True)
class ScoredExamples:
    """Members and held-out examples with their scores.

    Attributes:
        scores: of each method, shape (M, n).
        is_member: shape (n,).
        drops: CoDeC's drop of each example's log-probability after others of its side, NaN where
            it could not be compared; shape (n,), or empty if it was not computed.
        texts: the texts, shape (n,).
    """

    scores: Scores
    is_member: NDArray[np.bool_]
    drops: Scores = field(default_factory=lambda: np.empty(0))
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScoredOrders:
    """Shards of examples, in the published order and in random ones.

    Attributes:
        published: the log-likelihood of each shard in the published order, shape (r,).
        random: in random orders, shape (r, M).
        per_shard: the examples of a shard, on average.
    """

    published: Scores
    random: Scores
    per_shard: float


@dataclass(frozen=True)
class Backdoors:
    """The answers to probes with the triggers of backdoors.

    Attributes:
        answers: the most frequent answer of each backdoor's probes, an option's number: (B,).
        targets: the option that was drawn: (B,).
        options: the number of options, K: (B,).
    """

    answers: NDArray[np.intp]
    targets: NDArray[np.intp]
    options: NDArray[np.intp]


@dataclass(frozen=True)
class ScoredSet:
    """A set with the scores of what its corpus has for the tests; None: it has none of that.

    Attributes:
        name: which set, and under which model.
        examples: members and held-out examples.
        versions: the versions of the members' items.
        held_out_versions: those of held-out items, of which none was inserted; which of them counts
            as published is a draw that had no effect.
        orders: the shards of the members.
        held_out_orders: shards of held-out examples.
        backdoors: the backdoors of the corpus.
    """

    name: SetName
    examples: ScoredExamples | None = None
    versions: ScoredVersions | None = None
    held_out_versions: ScoredVersions | None = None
    orders: ScoredOrders | None = None
    held_out_orders: ScoredOrders | None = None
    backdoors: Backdoors | None = None

    @property
    def digest(self) -> str:
        """A hash of all scores and draws; equal for cells that share a model and a set."""
        content = hashlib.sha256(repr((self.name.benchmark, self.name.saw_it)).encode())
        parts = (self.examples, self.versions, self.held_out_versions, self.orders,
                 self.held_out_orders, self.backdoors)  # fmt: skip
        for part in parts:
            values = () if part is None else (getattr(part, name.name) for name in fields(part))
            for value in values:
                is_array = isinstance(value, np.ndarray)
                content.update(value.tobytes() if is_array else repr(value).encode())
            content.update(b"/")
        return content.hexdigest()

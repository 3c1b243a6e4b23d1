"""What tells a model behind a server from another one: what it says of one fixed text.

A server of one model does not always say the same: it computes a text alone otherwise than beside
others, and may round what it shows. So the text is asked about alone and then beside others, and
what these differ by, with the last decimal shown, is how near another answer has to be. Between
two programs of one model it was 2e-6 nats in float32, 0.007 in float16, and 0.03 to 0.08 in
bfloat16 (SmolLM2-135M, root mean square of 38 tokens).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from contamination.detection.models.served.completions import is_whole
from contamination.detection.models.served.logprob_tracking import Shown, Way, resolution
from contamination.detection.models.served.transport import in_parallel

PROBE = (
    "On the second of March 1874 the miller's youngest daughter walked down to the harbour, "
    "counted seventeen boats, and wrote their names into a small blue book which nobody has seen."
)
PROBE_TOKENS = 48
SAME = 1e-3
"""Nats, root mean square: answers of one model are nearer where nothing rounds; others farther."""
MARGIN = 3.0
"""How much farther apart than those of the probe two answers of one model may be."""
NOISIEST = 0.25
"""Nats, root mean square: a server whose answers are farther apart runs no one model. Thrice what
bfloat16 does."""
BESIDE = 8
"""Requests at once when the text is asked about beside others."""
WRITTEN, BEGINNINGS = 32, 3
"""Tokens that a server writes after so many beginnings, where it shows no log-probability."""


@dataclass(frozen=True)
class Fingerprint:
    """What a model says of the probe's text.

    Attributes:
        shown: log-probabilities; none where the server shows none.
        written: how it goes on after beginnings of the text, as far as it does so twice; "": not
            far. None where it shows log-probabilities.
        noise: how far its answers were apart, in nats.
    """

    shown: Shown
    written: tuple[str, ...] = ()
    noise: float = 0.0

    @property
    def numbers(self) -> list[float]:
        """All that are shown."""
        return [number for place in self.shown.values() for number in place]

    @property
    def tells(self) -> bool:
        """Whether there is anything to tell another model by."""
        return bool(self.shown) or any(self.written)

    @property
    def bound(self) -> float:
        """Nats, root mean square: another answer of the model is at most so far away.

        A last decimal of u turns a difference of δ < u into one of √(δ·u), as few numbers cross to
        the next; two of them always may.
        """
        unit = 2 * resolution(self.numbers)
        rounded = max(SAME * unit, 2 * unit**2 / max(1, len(self.numbers)))
        return max(SAME, MARGIN * self.noise, float(np.sqrt(rounded)))

    def is_of(self, other: Fingerprint) -> bool:
        """Whether one model may have said both."""
        if self.shown.keys() != other.shown.keys():
            return False
        if self.shown:
            return apart(self.shown, other.shown) <= max(self.bound, other.bound)
        both = [(a, b) for a, b in zip(self.written, other.written, strict=False) if a and b]
        agreed = all(a.startswith(b) or b.startswith(a) for a, b in both)
        return agreed and (bool(both) or not self.tells)

    def __str__(self) -> str:
        if self.shown:
            return (
                f"known again by {len(self.numbers)} log-probabilities: another model's are more "
                f"than {self.bound:.2g} nats away, root mean square"
            )
        if not self.tells:
            return "not known again: nothing it says twice tells whether the model changes"
        return f"known again by {sum(map(bool, self.written))} greedy continuations"

    def record(self) -> dict[str, Any]:
        """For a file."""
        return {"shown": [*self.shown.items()], "written": self.written, "noise": self.noise}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Fingerprint:
        """What `record` gave."""
        return cls(dict(record["shown"]), tuple(record["written"]), float(record["noise"]))


def taken(way: Way) -> Fingerprint:
    """What the model says alone, and how far from it what it says beside others is."""
    alone = answered(way)
    at_once = min(BESIDE, way.model.client.server.requests)
    beside = in_parallel(way.told, way.beside(probe_ids(way), at_once), at_once)
    noise = max((apart(near, alone.shown) for _, near in beside), default=0.0)
    again = _written(way, at_once) if alone.written else ()
    repeated = tuple(_common(one, two) for one, two in zip(alone.written, again, strict=True))
    return Fingerprint(alone.shown, repeated, noise)


def answered(way: Way) -> Fingerprint:
    """What the model says, asked once, one question after another."""
    shown: Shown = {}
    for ids in way.cuts(probe_ids(way)):
        shown |= way.told(ids)
    return Fingerprint(shown, () if shown else _written(way, 1))


def _written(way: Way, at_once: int) -> tuple[str, ...]:
    """How the server goes on after beginnings of the text, asked so many at once."""
    ids = probe_ids(way)
    whole = way.beginnings(ids)
    beginnings = [whole[len(whole) * n // BEGINNINGS - 1] for n in range(1, BEGINNINGS + 1)]
    write = partial(way.model.write, tokens=WRITTEN)
    return tuple(dict(sorted(in_parallel(write, beginnings, at_once))).values())


def _common(one: str, two: str) -> str:
    """What both begin with; "" where that is less than half of the first."""
    common = os.path.commonprefix([one, two])
    return common if len(common) * 2 >= len(one) else ""


def apart(some: Shown, others: Shown) -> float:
    """How far the numbers of some places are from others: root mean square, in nats."""
    squares: list[float] = []
    for place, numbers in some.items():
        known = others.get(place, [])
        if bool(known) != bool(numbers):
            return float("inf")
        squares += [(a - b) ** 2 for a, b in zip(numbers, known, strict=False)]
    return float(np.sqrt(np.mean(squares))) if squares else 0.0


def probe_ids(way: Way) -> list[int]:
    """The tokens of the probe's text."""
    return text_ids(way.model.tokenizer)


def text_ids(tokenizer: Any) -> list[int]:
    """The same, of a tokenizer: as many as are the tokens of their own text."""
    ids = list(tokenizer(PROBE)["input_ids"][:PROBE_TOKENS])
    ends = (end for end in range(len(ids), 1, -1) if is_whole(tokenizer, ids[:end]))
    return ids[: next(ends, len(ids))]

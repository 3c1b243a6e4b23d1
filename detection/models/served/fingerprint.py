"""Recognises a model behind a server by its answers about one fixed text.

A server of one model does not always give the same numbers: a text that is computed in a batch
with others gets slightly different ones, and a server may round. So the text is sent alone and
then concurrently with others. The difference, together with the last decimal shown, determines how
near the answers of the same model must be. Between two programs that ran one model it was 2e-6
nats in float32, 0.007 in float16, and 0.03 to 0.08 in bfloat16 (SmolLM2-135M, root mean square of
38 tokens).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from contamination.detection.models.served.completions import round_trips
from contamination.detection.models.served.connections import run_in_parallel
from contamination.detection.models.served.logprob_tracking import (
    LogprobStrategy,
    ShownLogprobs,
    rounding_error,
)

PROBE = (
    "On the second of March 1874 the miller's youngest daughter walked down to the harbour, "
    "counted seventeen boats, and wrote their names into a small blue book which nobody has seen."
)
PROBE_TOKENS = 48
MIN_TOLERANCE = 1e-3
"""Nats, root mean square: two answers of one model differ by less if nothing is rounded."""
MARGIN = 3.0
"""How many times the noise of the probe two answers of one model may differ."""
MAX_NOISE = 0.25
"""Nats, root mean square: a server whose answers differ by more does not run a single model. Three
times the difference in bfloat16."""
CONCURRENT = 8
"""The number of concurrent requests in the second round."""
WRITTEN_TOKENS, WRITTEN_PREFIXES = 32, 3
"""The number of tokens to generate after each prefix, and of prefixes, if there are no logprobs."""


@dataclass(frozen=True)
class Fingerprint:
    """A model's answers about the probe's text.

    Attributes:
        logprobs: log-probabilities by position; empty if the server shows none.
        continuations: greedy continuations of prefixes of the text, as far as they were the same
            twice; "" if that is too short to compare. Empty if there are log-probabilities.
        noise: the difference between two rounds of answers, root mean square, in nats.
    """

    logprobs: ShownLogprobs
    continuations: tuple[str, ...] = ()
    noise: float = 0.0

    @property
    def all_logprobs(self) -> list[float]:
        """All log-probabilities in one list."""
        return [logprob for logprobs in self.logprobs.values() for logprob in logprobs]

    @property
    def is_distinctive(self) -> bool:
        """Whether the answers can distinguish the model from another one."""
        return bool(self.logprobs) or any(self.continuations)

    @property
    def tolerance(self) -> float:
        """The largest difference from another answer of the model: root mean square, in nats.

        If the last decimal has the unit u, a difference of δ < u becomes one of √(δ·u), since few
        numbers are rounded to another decimal. Two numbers may always be.
        """
        unit = 2 * rounding_error(self.all_logprobs)
        square = max(MIN_TOLERANCE * unit, 2 * unit**2 / max(1, len(self.all_logprobs)))
        return max(MIN_TOLERANCE, MARGIN * self.noise, float(np.sqrt(square)))

    def matches(self, other: Fingerprint) -> bool:
        """Returns whether one model may have given both answers."""
        if self.logprobs.keys() != other.logprobs.keys():
            return False
        if self.logprobs:
            difference = rms_difference(self.logprobs, other.logprobs)
            return difference <= max(self.tolerance, other.tolerance)
        pairs = zip(self.continuations, other.continuations, strict=False)
        comparable = [(a, b) for a, b in pairs if a and b]
        agree = all(a.startswith(b) or b.startswith(a) for a, b in comparable)
        return agree and (bool(comparable) or not self.is_distinctive)

    def __str__(self) -> str:
        if self.logprobs:
            return (
                f"recognised by {len(self.all_logprobs)} log-probabilities: those of another model "
                f"differ by more than {self.tolerance:.2g} nats, root mean square"
            )
        if not self.is_distinctive:
            return "not recognised: no repeated answer shows whether the model changes"
        return f"recognised by {sum(map(bool, self.continuations))} greedy continuations"

    def to_record(self) -> dict[str, Any]:
        """Returns the content for a file."""
        shown = [*self.logprobs.items()]
        return {"shown": shown, "written": self.continuations, "noise": self.noise}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Fingerprint:
        """Returns the fingerprint from the content of a file."""
        return cls(dict(record["shown"]), tuple(record["written"]), float(record["noise"]))


def take_fingerprint(strategy: LogprobStrategy) -> Fingerprint:
    """Returns the answers to one request after another, and their noise under concurrency."""
    alone = take_noiseless_fingerprint(strategy)
    workers = min(CONCURRENT, strategy.model.client.server.requests)
    prefixes = strategy.concurrent_prefixes(probe_token_ids(strategy.model.tokenizer), workers)
    concurrent = run_in_parallel(strategy.shown_logprobs, prefixes, workers)
    differences = (rms_difference(logprobs, alone.logprobs) for _, logprobs in concurrent)
    noise = max(differences, default=0.0)
    repeated: tuple[str, ...] = ()
    if alone.continuations:
        second = _greedy_continuations(strategy, workers)
        pairs = zip(alone.continuations, second, strict=True)
        repeated = tuple(_common_beginning(*pair) for pair in pairs)
    return Fingerprint(alone.logprobs, repeated, noise)


def take_noiseless_fingerprint(strategy: LogprobStrategy) -> Fingerprint:
    """Returns the model's answers to one question after another, without a noise estimate."""
    logprobs: ShownLogprobs = {}
    for ids in strategy.fingerprint_prefixes(probe_token_ids(strategy.model.tokenizer)):
        logprobs |= strategy.shown_logprobs(ids)
    return Fingerprint(logprobs, () if logprobs else _greedy_continuations(strategy, 1))


def _greedy_continuations(strategy: LogprobStrategy, workers: int) -> tuple[str, ...]:
    """Returns the continuations of prefixes of the text, with `workers` concurrent requests."""
    candidates = strategy.sendable_prefixes(probe_token_ids(strategy.model.tokenizer))
    numbers = range(1, WRITTEN_PREFIXES + 1)
    prefixes = [candidates[len(candidates) * n // WRITTEN_PREFIXES - 1] for n in numbers]
    generate = partial(strategy.model.greedy_text, tokens=WRITTEN_TOKENS)
    return tuple(dict(sorted(run_in_parallel(generate, prefixes, workers))).values())


def _common_beginning(first: str, second: str) -> str:
    """Returns the common prefix; "" if it is less than half of the first string."""
    common = os.path.commonprefix([first, second])
    return common if len(common) * 2 >= len(first) else ""


def rms_difference(first: ShownLogprobs, second: ShownLogprobs) -> float:
    """Returns the root mean square difference in nats, over the positions of the first."""
    squares: list[float] = []
    for position, logprobs in first.items():
        compared = second.get(position, [])
        if bool(compared) != bool(logprobs):
            return float("inf")
        squares += [(a - b) ** 2 for a, b in zip(logprobs, compared, strict=False)]
    return float(np.sqrt(np.mean(squares))) if squares else 0.0


def probe_token_ids(tokenizer: Any) -> list[int]:
    """Returns the first tokens of the probe's text whose decoded text has the same tokens."""
    ids = list(tokenizer(PROBE)["input_ids"][:PROBE_TOKENS])
    ends = (end for end in range(len(ids), 1, -1) if round_trips(tokenizer, ids[:end]))
    return ids[: next(ends, len(ids))]

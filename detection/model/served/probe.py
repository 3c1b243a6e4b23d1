"""What a server can do, found by asking it, and what names the model behind it.

A model behind a server has no weights to hash. It is named by the server's name for it, by the
tokenizer, by how it is asked, and by what it says of one text (`PROBE`). The same server started
again says nearly the same, but for rounding: `folder_of` finds it by comparing, not by a hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core.artifacts import file_name
from core.errors import ServerError
from core.files import write_text
from detection.model.served.answers import rounded
from detection.model.served.client import Client, RefusedError
from detection.model.served.completions import Completions, Dialect

PROBE = (
    "On the second of March 1874 the miller's youngest daughter walked down to the harbour, "
    "counted seventeen boats, and wrote their names into a small blue book which nobody has seen."
)
PROBE_TOKENS = 48
SAME = 1e-3
"""Nats, root mean square: two answers of one model, started anew, differ by less; other models by
more. Where two answers in a row differ by more than a third of it, by thrice that."""
CHANGED = 0.05
"""Nats, root mean square: two answers in a row of a server that runs one model differ by less,
also those of 16-bit weights beside other requests."""
FILE = "probe.json"


@dataclass(frozen=True)
class Probe:
    """What a server can do.

    Attributes:
        dialect: what its requests may hold.
        way: how a token's log-probability is found.
        gives: the numbers that it shows.
        said: the log-probabilities of `PROBE`.
        noise: how far two of its answers in a row were apart, in nats.
    """

    dialect: Dialect
    way: str
    gives: frozenset[str]
    said: tuple[float, ...]
    noise: float = 0.0


def probed(client: Client, name: str, tokenizer: Any) -> Probe:
    """What the server can do, and whether it says the same twice.

    Raises:
        ServerError: it does not, or it shows nothing that a method could read.
    """
    ids = probe_ids(tokenizer)
    refusals = []
    for dialect in (Dialect(), Dialect(names_ids=False), Dialect(ids=False, names_ids=False)):
        try:
            model = Completions(client, name, tokenizer, dialect)
            first, second = (said(model, ids) for _ in range(2))
        except RefusedError as error:
            refusals.append(error)
            continue
        gives = {"logprob", "top_logprob", "top_id"} if dialect.names_ids else {"logprob"}
        noise = apart(first, second)
        check_same(client, noise)
        return Probe(dialect, "prompt", frozenset(gives), tuple(first), noise)
    raise refusals[-1]


def probe_ids(tokenizer: Any) -> list[int]:
    """The tokens of the probe's text."""
    return list(tokenizer(PROBE)["input_ids"][:PROBE_TOKENS])


def said(model: Completions, ids: Sequence[int]) -> list[float]:
    """The log-probabilities of the tokens after the first."""
    return rounded([place.own for place in model.prompt(ids)])


def apart(some: Sequence[float], others: Sequence[float]) -> float:
    """How far two answers are apart: the root mean square of the differences, in nats."""
    if len(some) != len(others):
        return float("inf")
    return float(np.sqrt(np.mean(np.square(np.subtract(some, others)))))


def check_same(client: Client, difference: float) -> None:
    """Raise a ServerError where two answers of one server are too far apart."""
    if difference > CHANGED:
        raise ServerError(
            f"{client.field}.url is {client.server.url!r}: it changes its answers: two to the same "
            f"question are {difference:.3g} nats apart, so there is no one model to score. See "
            "that it runs one model, and run the same command again."
        )


def folder_of(served: Path, name: str, tokenizer_digest: str, probe: Probe) -> tuple[Path, str]:
    """The folder of the model's answers, and the digest that names the model.

    The folder of an earlier start is found again by what it was told then.
    """
    way = {"dialect": asdict(probe.dialect), "way": probe.way}
    named = {"name": name, "tokenizer": tokenizer_digest, **way}
    slug = file_name(name)
    for file in sorted(served.glob(f"{slug}-*/{FILE}")):
        known = json.loads(file.read_text())
        near = max(SAME, 3 * probe.noise, 3 * known["noise"])
        if known["model"] == named and apart(known["said"], probe.said) <= near:
            return file.parent, known["digest"]
    text = json.dumps({"model": named, "said": probe.said}, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    folder = served / f"{slug}-{digest[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    known = {"digest": digest, "model": named, "noise": probe.noise, "said": probe.said}
    write_text(folder / FILE, json.dumps(known, indent=1) + "\n")
    return folder, digest

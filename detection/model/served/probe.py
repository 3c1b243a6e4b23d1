"""What a server can do, found by asking it, and what names the model behind it.

A model behind a server has no weights to hash. It is named by the server's name for it, by the
tokenizer, by how it is asked, and by what it says of one text (`PROBE`). The same server started
again says nearly the same, but for rounding: `folder_of` finds it by comparing, not by a hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core.artifacts import file_name
from core.errors import ArtifactError, ServerError
from core.files import sealed, unsealed, write_text
from detection.model.served.client import Client, RefusedError
from detection.model.served.completions import ID, Completions, Dialect
from detection.model.served.ways import WAYS, Way

PROBE = (
    "On the second of March 1874 the miller's youngest daughter walked down to the harbour, "
    "counted seventeen boats, and wrote their names into a small blue book which nobody has seen."
)
WRITTEN = 16
"""Tokens that a server continues `PROBE` by, where it shows no log-probability."""
PROBE_TOKENS = 48
SAME = 1e-3
"""Nats, root mean square: two answers of one model, started anew, differ by less; other models by
more. Where two answers in a row differ by more than a third of it, by thrice that."""
CHANGED = 0.05
"""Nats, root mean square: two answers in a row of a server that runs one model differ by less,
also those of 16-bit weights beside other requests."""
FILE = "probe.json"
CANNOT = (400, 405, 415, 422, 501)
"""The statuses by which a server refuses what it can't do."""


@dataclass(frozen=True)
class Probe:
    """What a server can do.

    Attributes:
        dialect: what its requests may hold.
        way: how a token's log-probability is found: a name of `WAYS`.
        top: how many likeliest tokens it shows.
        gives: the numbers that it shows.
        error: a bound of their error in nats, beyond the server's own rounding.
        said: the log-probabilities of tokens of `PROBE`; none where it shows none.
        written: how it goes on after `PROBE`, where it shows no log-probability.
        noise: how far two of its answers in a row were apart, in nats.
    """

    dialect: Dialect
    way: str
    top: int
    gives: frozenset[str]
    error: float
    said: tuple[float, ...]
    written: str = ""
    noise: float = 0.0


def probed(client: Client, name: str, tokenizer: Any) -> Probe:
    """What the server can do, the best way only, and whether it says the same twice.

    Raises:
        ServerError: it does not, or it writes nothing.
    """
    model = Completions(client, name, tokenizer, dialect_of(client, name, tokenizer))
    for way in ways(model, client.server.tolerance):
        first, second = said(way), said(way)
        written = "" if first else model.write(probe_ids(tokenizer), WRITTEN)
        noise = apart(first, second)
        check_same(client, noise)
        found = (model.dialect, way.name, way.top, way.numbers, way.error, tuple(first))
        return Probe(*found, written, noise)
    raise ServerError(f"{client.field}.url is {client.server.url!r}: it writes nothing.")


def dialect_of(client: Client, name: str, tokenizer: Any) -> Dialect:
    """What the server takes: the first of the dialects in which it writes a token.

    Raises:
        RefusedError: it takes none.
    """
    ids, refused = probe_ids(tokenizer), []
    for dialect in (Dialect(), Dialect(True, False), Dialect(False, True), Dialect(False, False)):
        model = Completions(client, name, tokenizer, dialect)
        for options in ({"logprobs": 1}, {}):
            try:
                place = model.next(ids, **options)
            except RefusedError as error:
                if error.status not in CANNOT:
                    raise
                refused.append(error)
            else:
                return Dialect(dialect.ids, dialect.names_ids and place.token.startswith(ID))
    raise refused[0]


def ways(model: Completions, tolerance: float) -> Iterator[Way]:
    """Those that work, the best first."""
    ids = probe_ids(model.tokenizer)
    for kind in WAYS.values():
        for top in kind.tops:
            way = kind(model, top, tolerance)
            try:
                if way.works(ids):
                    yield way
                break
            except RefusedError as error:
                if error.status not in CANNOT:
                    raise


def prompt_tops(model: Completions) -> int:
    """How many likeliest tokens it shows at each place of a prompt, of those of `Way.tops`."""
    for top in Way.tops:
        try:
            places = model.prompt(probe_ids(model.tokenizer), top)
            return min(top, *(len(place.top) for place in places))
        except RefusedError as error:
            if error.status not in CANNOT:
                raise
    return 0


def probe_ids(tokenizer: Any) -> list[int]:
    """The tokens of the probe's text."""
    return list(tokenizer(PROBE)["input_ids"][:PROBE_TOKENS])


def said(way: Way) -> list[float]:
    """The log-probabilities of the last tokens of the probe's text."""
    ids = probe_ids(way.model.tokenizer)
    answers = [way.answer(ids[:end]) for end in way.ends(len(ids))[-way.probes :]]
    return [logprob for answer in answers for logprob in answer["logprob"]]


def apart(some: Sequence[float], others: Sequence[float]) -> float:
    """How far two answers are apart: the root mean square of the differences, in nats."""
    if len(some) != len(others):
        return float("inf")
    return float(np.sqrt(np.square(np.subtract(some, others)).sum() / max(1, len(some))))


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
    named = {
        "name": name,
        "tokenizer": tokenizer_digest,
        "dialect": asdict(probe.dialect),
        "way": probe.way,
        "error": probe.error,
        "written": probe.written,
    }
    slug = file_name(name)
    for file in sorted(served.glob(f"{slug}-*/{FILE}")):
        known = _read(file)
        near = max(SAME, 3 * probe.noise, 3 * known["noise"], 2 * probe.error)
        if known["model"] == named and apart(known["said"], probe.said) <= near:
            return file.parent, str(known["digest"])
    text = json.dumps({"model": named, "said": probe.said}, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    folder = served / f"{slug}-{digest[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    known = {"digest": digest, "model": named, "noise": probe.noise, "said": probe.said}
    write_text(folder / FILE, sealed(known))
    return folder, digest


def _read(file: Path) -> dict[str, Any]:
    try:
        return unsealed(file.read_text())
    except (ValueError, OSError) as error:
        raise ArtifactError(
            f"{file} is damaged ({error}). Delete the folder {file.parent}: the server is then "
            "asked again."
        ) from error

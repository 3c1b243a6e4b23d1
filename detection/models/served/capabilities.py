"""What a server can do, found by asking it, and what names the model behind it.

A model behind a server has no weights to hash. It is named by the server's name for it, by the
tokenizer, by how it is asked, and by what it says of one text (`Fingerprint`). The same server
started again says nearly the same: `folder_of` finds it by comparing, not by a hash.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contamination.core.artifacts import file_name
from contamination.core.errors import ArtifactError, ServerError
from contamination.core.files import read_sealed, sealed, write_text
from contamination.core.integrity import reading
from contamination.detection.models.base import SERVED
from contamination.detection.models.served.chat import asking
from contamination.detection.models.served.client import Client, RefusedError
from contamination.detection.models.served.completions import Completions, Dialect, UnshownError
from contamination.detection.models.served.fingerprint import (
    NOISIEST,
    Fingerprint,
    apart,
    taken,
    text_ids,
)
from contamination.detection.models.served.logprob_strategies import WAYS
from contamination.detection.models.served.logprob_tracking import Way
from contamination.detection.models.served.responses import ID, Place

FILE = "probe.json"
CANNOT = (400, 405, 415, 422, 500, 501)
"""The statuses by which a server refuses what it can't do; a 500 is one where it stays."""
MISSING = (404, 405, 501)
"""The statuses of a server that has no /completions."""
COMPLETIONS = (Dialect(), Dialect(True, False), Dialect(False, True), Dialect(False, False))
CHATS = tuple(Dialect(False, by_id, True, goes_on) for goes_on in (True, False)
              for by_id in (True, False))  # fmt: skip
"""What a server may take, the best first; chats only where there are no completions."""
SHOWING: tuple[dict[str, Any], ...] = ({"logprobs": 1}, {})
"""Requests with log-probabilities, and without for a server that refuses those."""


@dataclass(frozen=True)
class Probe:
    """What a server can do.

    Attributes:
        dialect: what its requests may hold.
        way: how a token's log-probability is found: a name of `WAYS`.
        top: how many likeliest tokens it shows.
        provides: the numbers that it shows.
        error: a bound of their error in nats, beyond the server's own rounding.
        said: what the model is known again by.
    """

    dialect: Dialect
    way: str
    top: int
    provides: frozenset[str]
    error: float
    said: Fingerprint


def probed(client: Client, name: str, tokenizer: Any) -> Probe:
    """What the server can do, the best way only, and whether it says the same twice.

    Raises:
        ServerError: it does not, or it writes nothing.
    """
    model = asking(client, name, tokenizer, dialect_of(client, name, tokenizer))
    check_tokenizer(model)
    for way in ways(model, client.server.tolerance):
        said = taken(way)
        if said.noise > NOISIEST:
            raise ServerError(
                f"{client.field}.url is {client.server.url!r}: it changes its answers: two to the "
                f"same question are {said.noise:.3g} nats apart, so there is no one model to "
                "score. See that it runs one model, and run the same command again."
            )
        return Probe(model.dialect, way.name, way.top, way.numbers, way.error, said)
    raise ServerError(f"{client.field}.url is {client.server.url!r}: it writes nothing.")


def dialect_of(client: Client, name: str, tokenizer: Any) -> Dialect:
    """What the server takes: the first of the dialects in which it writes a token.

    Raises:
        RefusedError: it takes none.
    """
    try:
        return _taken(COMPLETIONS, client, name, tokenizer)
    except RefusedError as error:
        if error.http_status not in MISSING:
            raise
        refused = error
    try:
        return _taken(CHATS, client, name, tokenizer)
    except (RefusedError, UnshownError) as error:
        words = f"{refused} Nor does it chat: {error} Give a server with /completions."
        raise RefusedError(words, refused.http_status, refused.words) from None


def _taken(dialects: Sequence[Dialect], client: Client, name: str, tokenizer: Any) -> Dialect:
    """The first of the dialects that the server takes; an error where it takes none."""
    ids = text_ids(tokenizer)
    refused: list[ServerError] = []
    for dialect in dialects:
        model = asking(client, name, tokenizer, dialect, trying=bool(refused))
        for options in SHOWING if model.sendable(ids) or not dialect.continues else ():
            try:
                place = model.next(ids, **options)
            except ServerError as error:
                if not _cannot(error):
                    raise
                refused.append(error)
                model = model.tried()
            else:
                named = dialect.names_ids and ID.fullmatch(place.token) is not None
                return replace(dialect, names_ids=named)
    raise refused[0]


def check_tokenizer(model: Completions) -> None:
    """Send a text to a server that takes ids, where it takes text too: it has to read these ids.

    Raises:
        ServerError: it counts others, or goes on otherwise: the tokenizer is not the model's.
    """
    ids, dialect = text_ids(model.tokenizer), replace(model.dialect, ids=False)
    text = asking(model.client, model.name, model.tokenizer, dialect, trying=True)
    for options in SHOWING if model.dialect.ids else ():
        try:
            told = [one.next(ids, **options) for one in (text, model.tried())]
        except RefusedError as error:
            if not _cannot(error):
                raise
            continue
        if len({place.token for place in told}) > 1 and _differ(*told):
            raise ServerError(model.misread(ids))
        return


def ways(model: Completions, tolerance: float) -> Iterator[Way]:
    """Those that work, the best first."""
    ids = text_ids(model.tokenizer)
    for kind in WAYS.values():
        for top in kind.tops:
            way = kind(model.tried(), top, tolerance)
            try:
                if way.works(ids):
                    way.model = model
                    yield way
                break
            except ServerError as error:
                if not _cannot(error):
                    raise


def prompt_tops(model: Completions) -> int:
    """How many likeliest tokens it shows at each place of a prompt, of those of `Way.tops`."""
    for top in Way.tops:
        try:
            places = model.tried().prompt(text_ids(model.tokenizer), top)
            return min(top, *(len(place.top) for place in places))
        except ServerError as error:
            if not _cannot(error):
                raise
    return 0


def _differ(one: Place, two: Place) -> bool:
    """Whether the likeliest log-probabilities are farther apart than one model's."""
    best = [max(place.shown.values(), default=math.nan) for place in (one, two)]
    return abs(best[0] - best[1]) > NOISIEST


def _cannot(error: ServerError) -> bool:
    """Whether the server can't do what it was asked, and may do other things."""
    refused = isinstance(error, RefusedError) and error.http_status in CANNOT
    return refused or isinstance(error, UnshownError)


def folder_of(
    served: Path, name: str, tokenizer_digest: str, probe: Probe
) -> tuple[Path, str, Fingerprint]:
    """The folder of the model's answers, the digest that names the model, and what it said first.

    The folder of an earlier start is found again by what it was told then: the nearest.
    """
    named = {
        "name": name,
        "tokenizer": tokenizer_digest,
        "dialect": probe.dialect.record(),
        "way": probe.way,
        "error": probe.error,
    }
    slug, near = file_name(name), []
    for file in sorted(served.glob(f"{slug}-*/{FILE}")):
        with reading(file.parent):
            known = _read(file)
            if known["model"] == named:
                said = Fingerprint.of(known["said"])
                if said.is_of(probe.said):
                    found = apart(said.shown, probe.said.shown), file.parent, str(known["digest"])
                    near.append((*found, said))
    if near:
        return min(near, key=lambda one: one[:2])[1:]
    known = {"model": named, "said": probe.said.record()}
    text = json.dumps(known, sort_keys=True)
    known["digest"] = hashlib.sha256(text.encode()).hexdigest() + SERVED
    folder = served / f"{slug}-{known['digest'][:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / FILE, sealed(known))
    return folder, known["digest"], probe.said


def _read(file: Path) -> dict[str, Any]:
    try:
        return read_sealed(file)
    except (ValueError, OSError) as error:
        raise ArtifactError(
            f"{file} is damaged ({error}). Delete the folder {file.parent}: the server is then "
            "asked again."
        ) from error

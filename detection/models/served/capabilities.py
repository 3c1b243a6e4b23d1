"""Probes what a server can do, and identifies the model behind it.

A model behind a server has no weights to hash. It is identified by its name at the server, the
tokenizer, the requests that the server accepts, and its log-probabilities of one text
(`Fingerprint`). A server that is started again gives nearly the same numbers, so
`find_answers_folder` compares them instead of using a hash.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contamination.core.artifacts import path_part_of
from contamination.core.errors import ArtifactError, ServerError
from contamination.core.files import hashed_json, read_verified_json, write_text_atomically
from contamination.core.integrity import errors_naming_folders
from contamination.detection.models.base import SERVED_SUFFIX
from contamination.detection.models.served.chat import model_for_dialect
from contamination.detection.models.served.client import Client, RefusedError
from contamination.detection.models.served.completions import (
    CompletionsModel,
    Dialect,
    UnshownError,
)
from contamination.detection.models.served.fingerprint import (
    MAX_NOISE,
    Fingerprint,
    probe_token_ids,
    rms_difference,
    take_fingerprint,
)
from contamination.detection.models.served.logprob_strategies import STRATEGIES
from contamination.detection.models.served.logprob_tracking import LogprobStrategy
from contamination.detection.models.served.responses import ID_PATTERN, TokenPosition

PROBE_FILE = "probe.json"
UNSUPPORTED = (400, 405, 415, 422, 500, 501)
"""The statuses by which a server refuses unsupported requests; a 500 counts if it persists."""
NO_COMPLETIONS = (404, 405, 501)
"""The statuses of a server that has no /completions."""
COMPLETION_DIALECTS = (Dialect(), Dialect(True, False), Dialect(False, True), Dialect(False, False))
CHAT_DIALECTS = tuple(
    Dialect(False, names_ids, True, continues)
    for continues in (True, False)
    for names_ids in (True, False)
)
"""The forms of requests, the best first; chats are only tried if there are no completions."""
LOGPROB_OPTIONS: tuple[dict[str, Any], ...] = ({"logprobs": 1}, {})
"""Requests with log-probabilities, and without them for a server that refuses those."""


@dataclass(frozen=True)
class Probe:
    """What a server can do.

    Attributes:
        dialect: the form of its requests.
        strategy: how a token's log-probability is computed: a key of `STRATEGIES`.
        top: the number of likeliest tokens that it shows.
        provides: the per-token numbers that follow from its answers.
        error: a bound of their error in nats, beyond the server's own rounding.
        fingerprint: answers by which the model is recognised.
    """

    dialect: Dialect
    strategy: str
    top: int
    provides: frozenset[str]
    error: float
    fingerprint: Fingerprint


def probe_server(client: Client, model_name: str, tokenizer: Any) -> Probe:
    """Returns what the server can do, with the best strategy that works.

    Raises:
        ServerError: the server generates nothing, or gives different answers to one question.
    """
    model = model_for_dialect(
        client, model_name, tokenizer, find_dialect(client, model_name, tokenizer)
    )
    check_tokenizer(model)
    for strategy in working_strategies(model, client.server.tolerance):
        fingerprint = take_fingerprint(strategy)
        if fingerprint.noise > MAX_NOISE:
            raise ServerError(
                f"{client.field}.url is {client.server.url!r}: it changes its answers: two answers "
                f"to the same question are {fingerprint.noise:.3g} nats apart, so scores would not "
                "be of one model. Check that it runs one model, and run the same command again."
            )
        numbers = strategy.top, strategy.numbers, strategy.max_error
        return Probe(model.dialect, strategy.name, *numbers, fingerprint)
    raise ServerError(f"{client.field}.url is {client.server.url!r}: it generates nothing.")


def find_dialect(client: Client, model_name: str, tokenizer: Any) -> Dialect:
    """Returns the first dialect in which the server generates a token.

    Raises:
        RefusedError: the server accepts none.
    """
    try:
        return _first_accepted(COMPLETION_DIALECTS, client, model_name, tokenizer)
    except RefusedError as error:
        if error.http_status not in NO_COMPLETIONS:
            raise
        refused = error
    try:
        return _first_accepted(CHAT_DIALECTS, client, model_name, tokenizer)
    except (RefusedError, UnshownError) as error:
        message = f"{refused} It does not chat either: {error} Give a server with /completions."
        raise RefusedError(message, refused.http_status, refused.server_message) from None


def _first_accepted(
    dialects: Sequence[Dialect], client: Client, model_name: str, tokenizer: Any
) -> Dialect:
    """Returns the first dialect that the server accepts; if it accepts none, raises its error."""
    ids = probe_token_ids(tokenizer)
    refused: list[ServerError] = []
    for dialect in dialects:
        model = model_for_dialect(client, model_name, tokenizer, dialect, probing=bool(refused))
        for logprob_options in (
            LOGPROB_OPTIONS if model.can_send(ids) or not dialect.continues else ()
        ):
            try:
                position = model.next_token(ids, **logprob_options)
            except ServerError as error:
                if not _is_unsupported(error):
                    raise
                refused.append(error)
                model = model.for_probing()
            else:
                names_ids = dialect.names_ids and ID_PATTERN.fullmatch(position.token) is not None
                return replace(dialect, names_ids=names_ids)
    raise refused[0]


def check_tokenizer(model: CompletionsModel) -> None:
    """Checks that a server that accepts both ids and text reads a text as the tokenizer's ids.

    Raises:
        ServerError: it counts or continues the text differently, so that the tokenizer is wrong.
    """
    ids, dialect = probe_token_ids(model.tokenizer), replace(model.dialect, ids=False)
    text_model = model_for_dialect(model.client, model.name, model.tokenizer, dialect, probing=True)
    for logprob_options in LOGPROB_OPTIONS if model.dialect.ids else ():
        try:
            by_text = text_model.next_token(ids, **logprob_options)
            by_ids = model.for_probing().next_token(ids, **logprob_options)
        except RefusedError as error:
            if not _is_unsupported(error):
                raise
            continue
        if by_text.token != by_ids.token and _top_logprobs_disagree(by_text, by_ids):
            raise ServerError(model.tokenizer_mismatch_message(ids))
        return


def working_strategies(model: CompletionsModel, tolerance: float) -> Iterator[LogprobStrategy]:
    """Yields the strategies that work at this server, the best first."""
    ids = probe_token_ids(model.tokenizer)
    for kind in STRATEGIES.values():
        for top in kind.top_counts:
            strategy = kind(model.for_probing(), top, tolerance)
            try:
                if strategy.works(ids):
                    strategy.model = model
                    yield strategy
                break
            except ServerError as error:
                if not _is_unsupported(error):
                    raise


def count_prompt_tops(model: CompletionsModel) -> int:
    """Returns how many likeliest tokens the server shows at each position of a prompt."""
    for top in LogprobStrategy.top_counts:
        try:
            positions = model.for_probing().prompt_logprobs(probe_token_ids(model.tokenizer), top)
            return min(top, *(len(position.top) for position in positions))
        except ServerError as error:
            if not _is_unsupported(error):
                raise
    return 0


def _top_logprobs_disagree(first: TokenPosition, second: TokenPosition) -> bool:
    """Returns whether the top log-probabilities differ by more than those of one model can."""
    tops = [max(position.logprobs.values(), default=math.nan) for position in (first, second)]
    return abs(tops[0] - tops[1]) > MAX_NOISE


def _is_unsupported(error: ServerError) -> bool:
    """Returns whether the server lacks the requested ability, and may have others."""
    refused = isinstance(error, RefusedError) and error.http_status in UNSUPPORTED
    return refused or isinstance(error, UnshownError)


def find_answers_folder(
    served: Path, model_name: str, tokenizer_digest: str, probe: Probe
) -> tuple[Path, str, Fingerprint]:
    """Returns the folder of the model's answers, its digest, and its first fingerprint.

    If the model was probed before, they are those of the nearest matching fingerprint.
    """
    identity = {
        "name": model_name,
        "tokenizer": tokenizer_digest,
        "dialect": probe.dialect.to_record(),
        "way": probe.strategy,
        "error": probe.error,
    }
    slug = path_part_of(model_name)
    matches: list[tuple[float, Path, str, Fingerprint]] = []
    for file in sorted(served.glob(f"{slug}-*/{PROBE_FILE}")):
        with errors_naming_folders(file.parent):
            record = _read_probe(file)
            if record["model"] == identity:
                first = Fingerprint.from_record(record["said"])
                if first.matches(probe.fingerprint):
                    distance = rms_difference(first.logprobs, probe.fingerprint.logprobs)
                    matches.append((distance, file.parent, str(record["digest"]), first))
    if matches:
        return min(matches, key=lambda match: match[:2])[1:]
    record = {"model": identity, "said": probe.fingerprint.to_record()}
    text = json.dumps(record, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest() + SERVED_SUFFIX
    folder = served / f"{slug}-{digest[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomically(folder / PROBE_FILE, hashed_json({**record, "digest": digest}))
    return folder, digest, probe.fingerprint


def _read_probe(probe_file: Path) -> dict[str, Any]:
    try:
        return read_verified_json(probe_file)
    except (ValueError, OSError) as error:
        raise ArtifactError(
            f"{probe_file} is damaged ({error}). Delete the folder {probe_file.parent}: the "
            "requests are then sent again."
        ) from error

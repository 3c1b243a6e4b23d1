"""JSON over HTTP: concurrent requests, with retries after temporary failures.

The key is read from the environment when a client is created. It appears in no config, log or
error: a server's messages are quoted without it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError

from contamination.core import secrets
from contamination.core.errors import ConfigError, ServerError, describe_error
from contamination.core.stored_files import parse_json
from contamination.detection.config import ScoredModelConfig
from contamination.detection.models.served.connections import (
    Content,
    Sessions,
    is_stopped,
    wait_for_stop,
)
from contamination.detection.models.served.responses import Reply, validation_message

R = TypeVar("R", bound=Reply)
log = logging.getLogger(__name__)

RETRYABLE = (408, 409, 425, 429, 500, 502, 503, 504, 529)
"""The statuses after which the same request may succeed."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before the first retry, and the maximum before a later one, if the server names none."""
MAX_RETRY_AFTER = 3600.0
"""Seconds: the longest wait that a server's Retry-After may ask for."""
READ_HEADERS = ("Retry-After", "Location")
"""The headers of an answer that are read. The charset is not read, since JSON is UTF-8."""
BYTES_PER_VALUE = 16
"""An answer may have one JSON value per this number of bytes of `max_answer_bytes`."""
MAX_QUOTED = 300
"""The maximum number of characters of a server's message that an error quotes."""


class RefusedError(ServerError):
    """The server refused the request: it answered with another status than 200.

    Attributes:
        http_status: the HTTP status; the command's exit status is that of every `UserError`.
        server_message: the server's message, without the key.
        retry_after: the seconds in its Retry-After header; None if there is none.
    """

    def __init__(
        self, message: str, http_status: int, server_message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.http_status, self.server_message = http_status, server_message
        self.retry_after = retry_after


class UnreadableError(ServerError):
    """An answer that is not read: it is too long, or has too many values or an unknown coding."""


class Client:
    """A client of one server, used by up to `server.requests` threads at once.

    Args:
        field: the config node that names the server, for errors.
        server: the server's address and the settings of requests.

    Raises:
        ConfigError: the address is invalid or includes a key, or the key's variable is not set.
    """

    def __init__(self, field: str, server: ScoredModelConfig) -> None:
        self.field, self.server = field, server
        self.url = base_url(f"{field}.url", str(server.url))
        self._key = _read_key(field, server.key_env)
        self._sessions = Sessions(f"{field}.url is {server.url!r}", self._new_http_client)

    def get(self, path: str, reply_class: type[R]) -> R:
        """Returns the answer to a GET request, without retries: a wrong address fails at once."""
        return self._validate_answer(
            path, reply_class, self._request_with_retries("GET", path, None, 0, 0)
        )

    def post(
        self, path: str, body: Mapping[str, Any], reply_class: type[R], probing: bool = False
    ) -> R:
        """Returns the answer to `body`.

        Args:
            path: the path below the address.
            body: the JSON of the request.
            reply_class: the model that validates the answer.
            probing: whether the server may lack the ability: a 500 is then retried only once.

        Raises:
            RefusedError: a status that is not retryable, or that remained after all retries.
            ServerError: the server can't be reached, or its answers are truncated or of another
                form.
        """
        retries = self.server.retries
        answer = self._request_with_retries(
            "POST", path, body, retries, 1 if probing else retries + 1
        )
        return self._validate_answer(path, reply_class, answer)

    def without_key(self, text: str) -> str:
        """Returns the text without the key."""
        return secrets.hide_key(text, self._key) if self._key else text

    def _new_http_client(self) -> httpx.AsyncClient:
        headers = {"Accept-Encoding": "gzip"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        timeout = httpx.Timeout(self.server.timeout_seconds, pool=None)
        limits = httpx.Limits(max_connections=self.server.requests)
        return httpx.AsyncClient(headers=headers, timeout=timeout, limits=limits)

    def _validate_answer(self, path: str, reply_class: type[R], answer: Any) -> R:
        try:
            return reply_class.model_validate(answer)
        except ValidationError as error:
            raise ServerError(self.without_key(
                f"{self.field}.url is {self.server.url!r}: in its answer to {path} "
                f"{validation_message(error)}. Give a server of OpenAI's completions protocol, or "
                "check the proxies between here and it."
            )) from None  # fmt: skip

    def _request_with_retries(
        self, method: str, path: str, body: Mapping[str, Any] | None, retries: int, allowed_500: int
    ) -> Any:
        for number in range(retries + 1):
            try:
                return self._request_once(method, path, body)
            except ServerError as error:
                wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0**number)
                if isinstance(error, RefusedError):
                    allowed_500 -= error.http_status == 500
                    if error.http_status not in RETRYABLE or allowed_500 < 0:
                        raise
                    wait = error.retry_after or wait
                final = number == retries or isinstance(error, UnreadableError)
                if final or is_stopped():
                    raise
                log.info("%s Retrying in %.1f s.", error, wait)
                if wait_for_stop(wait * random.uniform(1, 1.25)):
                    raise
        raise AssertionError

    def _request_once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        try:
            answer = self._receive_in_session(method, path, body)
            if answer.status_code == 200:
                self._check_value_count(answer.content, path)
                return parse_json(answer.content.decode("utf-8-sig"))
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as cause:
            raise self._connection_error(cause) from None
        raise self._refused_error(answer, path)

    def _check_value_count(self, content: bytes, path: str) -> None:
        """Raises an UnreadableError if the answer would take too much memory once parsed.

        Its commas and brackets are counted, of which each value other than the first needs one.
        """
        max_values = self.server.max_answer_bytes // BYTES_PER_VALUE
        if len(content) > max_values and sum(map(content.count, (b",", b"[", b"{"))) > max_values:
            raise UnreadableError(self.without_key(
                f"{self.field}.max_answer_bytes is {self.server.max_answer_bytes:,}: the answer of "
                f"{self.server.url!r} to {path} has more than {max_values:,} JSON values, one per "
                f"{BYTES_PER_VALUE} bytes of that. Give a server of OpenAI's completions protocol, "
                "or a higher limit if its answers have that many."
            ))  # fmt: skip

    def _receive_in_session(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> httpx.Response:
        """Returns the whole answer; `timeout_seconds` limits the connection and all its parts."""
        return self._sessions.run(lambda http: self._read_response(http, method, path, body))

    async def _read_response(
        self, http: httpx.AsyncClient, method: str, path: str, body: Mapping[str, Any] | None
    ) -> httpx.Response:
        address = f"{self.url}/{path}"
        try:
            async with (
                asyncio.timeout(self.server.timeout_seconds),
                http.stream(method, address, json=body) as answer,
            ):
                coding = answer.headers.get("Content-Encoding", "")
                content = Content(coding, self.server.max_answer_bytes)
                if not content.is_readable:
                    return self._refuse_coding(answer, path)
                async for chunk in answer.aiter_raw():
                    content.add(chunk)
                    if content.exceeds_limit:
                        raise self._too_long_error(path)
        except TimeoutError:
            raise httpx.ReadTimeout("it has not ended") from None
        return httpx.Response(
            answer.status_code, headers=_select_headers(answer), content=content.whole()
        )

    def _refuse_coding(self, answer: httpx.Response, path: str) -> httpx.Response:
        """Raises an error for a coding that was not requested, unless the status is an error."""
        coding = answer.headers["Content-Encoding"].strip().lower()[:MAX_QUOTED]
        if answer.status_code != 200:
            message = f"its message is not read: it has the Content-Encoding {coding!r}"
            return httpx.Response(
                answer.status_code, headers=_select_headers(answer), content=message.encode()
            )
        raise UnreadableError(self.without_key(
            f"{self.field}.url is {self.server.url!r}: its answer to {path} has the "
            f"Content-Encoding {coding!r}, which was not requested. Make sure that the server and "
            "any proxy in front of it send gzip or no coding."
        ))  # fmt: skip

    def _too_long_error(self, path: str) -> UnreadableError:
        return UnreadableError(self.without_key(
            f"{self.field}.max_answer_bytes is {self.server.max_answer_bytes:,}: the answer of "
            f"{self.server.url!r} to {path} is longer, once decompressed. Give a server of "
            "OpenAI's completions protocol, or a higher limit if its texts are that long."
        ))  # fmt: skip

    def _refused_error(self, answer: httpx.Response, path: str) -> RefusedError:
        message = self._quoted_error_message(answer)
        remedy = ""
        if answer.status_code in (401, 403):
            variable = self.server.key_env
            problem = f"the key in {variable} is refused" if variable else "it requires a key"
            remedy = (
                f" {self.field}.key_env is {variable!r}: {problem}. Name the variable that has it."
            )
        if answer.is_redirect:
            remedy = " It redirects to another address: give that one, up to /completions."
        return RefusedError(
            f"{self.field}.url is {self.server.url!r}: {path} answers {answer.status_code} "
            f"({message}).{remedy}",
            answer.status_code,
            message,
            _retry_after_seconds(answer),
        )

    def _quoted_error_message(self, answer: httpx.Response) -> str:
        """Returns an error's message if it has one of the usual forms, else the text; no key."""
        text = answer.content.decode("utf-8-sig", "replace")
        try:
            content = parse_json(text)
            error = content.get("error", content.get("detail", content))
            text = str(error.get("message", error) if isinstance(error, dict) else error)
        except (ValueError, AttributeError):
            pass
        printable = "".join(sign if sign.isprintable() else " " for sign in text)
        return self.without_key(" ".join(printable.split()))[:MAX_QUOTED] or "no message"

    def _connection_error(self, cause: Exception) -> ServerError:
        problems = {
            httpx.ConnectError: "it can't be reached",
            httpx.TimeoutException: f"no answer came within {self.server.timeout_seconds:g} s",
            httpx.DecodingError: "its answer can't be decompressed",
            ValueError: "its answer is truncated, or not JSON",
        }
        problem = next(
            (text for kind, text in problems.items() if isinstance(cause, kind)),
            "its answer is truncated",
        )
        reason = self.without_key(describe_error(cause))
        return ServerError(
            f"{self.field}.url is {self.server.url!r}: {problem} ({reason}). Check that the server "
            "runs and that this is its address. The answers so far are stored: run the same "
            "command again."
        )


def base_url(field: str, url: str) -> str:
    """Returns the address before `/completions`; `/v1` is appended to a bare address.

    Raises:
        ConfigError: the address is invalid, or includes a user, a key or a fragment.
    """
    secrets.check_url_contains_no_key(field, url)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{field} is {url!r}: give an address such as http://localhost:8000/v1.")
    return url.rstrip("/") if parts.path.strip("/") else f"{url.rstrip('/')}/v1"


def _read_key(field: str, variable: str | None) -> str:
    if variable is None:
        return ""
    if not os.environ.get(variable):
        raise ConfigError(
            f"{field}.key_env names an environment variable that is not set. Set it to the "
            f"server's key, or give null if the server needs none. {secrets.NOT_REPEATED}"
        )
    key = os.environ[variable].strip()
    if not key.isascii() or not key.isprintable() or " " in key:  # an error would quote the header
        raise ConfigError(
            f"{field}.key_env is {variable!r}: this environment variable contains more than a key: "
            "blanks, line ends or characters that no header allows. Set it to the key alone."
        )
    return key


def _select_headers(answer: httpx.Response) -> dict[str, str]:
    return {name: answer.headers[name] for name in READ_HEADERS if name in answer.headers}


def _retry_after_seconds(answer: httpx.Response) -> float | None:
    """Returns the seconds in the Retry-After header, if there is one (RFC 9110, 10.2.3)."""
    value = answer.headers.get("Retry-After", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(MAX_RETRY_AFTER, max(0.0, seconds))

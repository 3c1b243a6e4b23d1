"""JSON over HTTP: several requests at once, tried again after a failure that may pass.

The key is read from the environment when a client is made. It is in no config, log or error: what
a server says back is quoted without it.
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
from contamination.core.errors import ConfigError, ServerError, said
from contamination.core.stored_files import parse_json
from contamination.detection.config import ScoredModelConfig
from contamination.detection.models.served.responses import Reply, fault
from contamination.detection.models.served.transport import (
    Content,
    Sessions,
    is_stopped,
    stopped_within,
)

R = TypeVar("R", bound=Reply)
log = logging.getLogger(__name__)

MAY_PASS = (408, 409, 425, 429, 500, 502, 503, 504, 529)
"""The statuses after which the same request may succeed."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before the first and before a late retry, where the server names none."""
LONGEST_ASKED = 3600.0
"""Seconds: the longest that a server may ask to be left alone."""
READ = ("Retry-After", "Location")
"""The headers of an answer that are read. A charset is not: JSON is UTF-8."""
SAID = 300
"""Characters of a server's own words that an error quotes."""


class RefusedError(ServerError):
    """The server answered that it will not do this: another status than 200.

    Attributes:
        http_status: the HTTP status; the command's exit status is that of every `UserError`.
        words: what the server said, without the key.
        wait: seconds that it wants to be left alone; None: it does not say.
    """

    def __init__(
        self, message: str, http_status: int, words: str, wait: float | None = None
    ) -> None:
        super().__init__(message)
        self.http_status, self.words, self.wait = http_status, words, wait


class UnreadableError(ServerError):
    """An answer that is not read to its end: too long, or coded in an unknown way."""


class Client:
    """A server's address, asked by up to `server.requests` threads at once.

    Args:
        field: the config node that names the server, for errors.
        server: where it is and how it is asked.

    Raises:
        ConfigError: the address is none, holds a key, or the key's variable is not set.
    """

    def __init__(self, field: str, server: ScoredModelConfig) -> None:
        self.field, self.server = field, server
        self.url = base_url(f"{field}.url", str(server.url))
        self._key = _key(field, server.key_env)
        self._sessions = Sessions(f"{field}.url is {server.url!r}", self._connections)

    def get(self, path: str, kind: type[R]) -> R:
        """What is at `path`; asked once, so that a wrong address is said at once."""
        return self._read(path, kind, self._ask("GET", path, None, 0, 0))

    def post(self, path: str, body: Mapping[str, Any], kind: type[R], trying: bool = False) -> R:
        """The answer to `body`.

        Args:
            path: below the address.
            body: what is asked.
            kind: the form of the answer.
            trying: whether the server may be unable to answer: it is asked again once after a 500.

        Raises:
            RefusedError: a status that no retry will mend, or that none has mended.
            ServerError: it can't be reached, or its answers are cut, or of another form.
        """
        retries = self.server.retries
        answer = self._ask("POST", path, body, retries, 1 if trying else retries + 1)
        return self._read(path, kind, answer)

    def hidden(self, words: str) -> str:
        """The words without the key."""
        return secrets.hidden(words, self._key) if self._key else words

    def _connections(self) -> httpx.AsyncClient:
        headers = {"Accept-Encoding": "gzip"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        timeout = httpx.Timeout(self.server.timeout_seconds, pool=None)
        limits = httpx.Limits(max_connections=self.server.requests)
        return httpx.AsyncClient(headers=headers, timeout=timeout, limits=limits)

    def _read(self, path: str, kind: type[R], answer: Any) -> R:
        try:
            return kind.model_validate(answer)
        except ValidationError as error:
            raise ServerError(self.hidden(
                f"{self.field}.url is {self.server.url!r}: in its answer to {path} {fault(error)}. "
                "Give a server of OpenAI's completions protocol, or see to what stands between "
                "here and it."
            )) from None  # fmt: skip

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, retries: int, most_500: int
    ) -> Any:
        for number in range(retries + 1):
            try:
                return self._once(method, path, body)
            except ServerError as error:
                wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0**number)
                if isinstance(error, RefusedError):
                    most_500 -= error.http_status == 500
                    if error.http_status not in MAY_PASS or most_500 < 0:
                        raise
                    wait = error.wait or wait
                final = number == retries or isinstance(error, UnreadableError)
                if final or is_stopped():
                    raise
                log.info("%s Asked again in %.1f s.", error, wait)
                if stopped_within(wait * random.uniform(1, 1.25)):
                    raise
        raise AssertionError

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        try:
            answer = self._received(method, path, body)
            if answer.status_code == 200:
                return parse_json(answer.content.decode("utf-8-sig"))
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as cause:
            raise self._failed(cause) from None
        raise self._refused(answer, path)

    def _received(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        """The whole answer; `timeout_seconds` include the connection, the headers and each part."""
        return self._sessions.run(lambda http: self._answer(http, method, path, body))

    async def _answer(
        self, http: httpx.AsyncClient, method: str, path: str, body: Mapping[str, Any] | None
    ) -> httpx.Response:
        address, most = f"{self.url}/{path}", self.server.max_answer_bytes
        try:
            async with (
                asyncio.timeout(self.server.timeout_seconds),
                http.stream(method, address, json=body) as answer,
            ):
                coding = answer.headers.get("Content-Encoding", "")
                content = Content(coding, most)
                if not content.is_readable:
                    return self._unread(answer, path)
                async for part in answer.aiter_raw():
                    content.add(part)
                    if content.is_too_long:
                        raise self._too_long(path)
        except TimeoutError:
            raise httpx.ReadTimeout("it has not ended") from None
        return httpx.Response(answer.status_code, headers=_headers(answer), content=content.whole())

    def _unread(self, answer: httpx.Response, path: str) -> httpx.Response:
        """An answer in a coding that was not asked for: an error, unless its status is one."""
        coding = answer.headers["Content-Encoding"].strip().lower()[:SAID]
        if answer.status_code != 200:
            words = f"its words are not read: they have the Content-Encoding {coding!r}"
            return httpx.Response(
                answer.status_code, headers=_headers(answer), content=words.encode()
            )
        raise UnreadableError(self.hidden(
            f"{self.field}.url is {self.server.url!r}: its answer to {path} has the "
            f"Content-Encoding {coding!r}, which was not asked for. See that the server and what "
            "stands before it send gzip or no coding."
        ))  # fmt: skip

    def _too_long(self, path: str) -> UnreadableError:
        return UnreadableError(self.hidden(
            f"{self.field}.max_answer_bytes is {self.server.max_answer_bytes:,}: the answer of "
            f"{self.server.url!r} to {path} is longer, once decompressed. Give a server of "
            "OpenAI's completions protocol, or a higher limit if its texts are that long."
        ))  # fmt: skip

    def _refused(self, answer: httpx.Response, path: str) -> RefusedError:
        words = self._said(answer)
        remedy = ""
        if answer.status_code in (401, 403):
            given = self.server.key_env
            named = f"the key in {given} is refused" if given else "it wants a key"
            remedy = f" {self.field}.key_env is {given!r}: {named}. Name the variable that has it."
        if answer.is_redirect:
            remedy = " It redirects to another address: give that one, up to /completions."
        return RefusedError(
            f"{self.field}.url is {self.server.url!r}: {path} answers {answer.status_code} "
            f"({words}).{remedy}",
            answer.status_code,
            words,
            _retry_after(answer),
        )

    def _said(self, answer: httpx.Response) -> str:
        """The message of the usual forms of an error, else the text; never the key."""
        text = answer.content.decode("utf-8-sig", "replace")
        try:
            found = parse_json(text)
            inner = found.get("error", found.get("detail", found))
            text = str(inner.get("message", inner) if isinstance(inner, dict) else inner)
        except (ValueError, AttributeError):
            pass
        shown = "".join(sign if sign.isprintable() else " " for sign in text)
        return self.hidden(" ".join(shown.split()))[:SAID] or "without a word"

    def _failed(self, cause: Exception) -> ServerError:
        why = {
            httpx.ConnectError: "it can't be reached",
            httpx.TimeoutException: f"no answer came within {self.server.timeout_seconds:g} s",
            httpx.DecodingError: "its answer can't be decompressed",
            ValueError: "its answer is cut, or no JSON",
        }
        words = next((w for kind, w in why.items() if isinstance(cause, kind)), "its answer is cut")
        cause_said = self.hidden(said(cause))
        return ServerError(
            f"{self.field}.url is {self.server.url!r}: {words} ({cause_said}). See that the server "
            "runs and that this is its address. What was answered is kept: run the same command "
            "again."
        )


def base_url(field: str, url: str) -> str:
    """What stands before `/completions`; a bare address gets the usual `/v1`.

    Raises:
        ConfigError: it is no address, or has a user, a key or a fragment in it, which is not said.
    """
    secrets.check_address(field, url)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{field} is {url!r}: give an address such as http://localhost:8000/v1.")
    return url.rstrip("/") if parts.path.strip("/") else f"{url.rstrip('/')}/v1"


def _key(field: str, variable: str | None) -> str:
    if variable is None:
        return ""
    if not os.environ.get(variable):
        raise ConfigError(
            f"{field}.key_env names an environment variable that is not set. Set it to the "
            f"server's key, or give null where none is wanted. {secrets.UNSAID}"
        )
    key = os.environ[variable].strip()
    if not key.isascii() or not key.isprintable() or " " in key:  # an error would quote the header
        raise ConfigError(
            f"{field}.key_env is {variable!r}: this environment variable holds more than a key: "
            "blanks, line ends or letters that no header takes. Set it to the key alone."
        )
    return key


def _headers(answer: httpx.Response) -> dict[str, str]:
    """The headers of the answer that are read."""
    return {name: answer.headers[name] for name in READ if name in answer.headers}


def _retry_after(answer: httpx.Response) -> float | None:
    """Seconds that the server wants to be left alone, where it says so (RFC 9110, 10.2.3)."""
    words = answer.headers.get("Retry-After", "")
    try:
        asked = float(words)
    except ValueError:
        try:
            asked = (parsedate_to_datetime(words) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(LONGEST_ASKED, max(0.0, asked))

"""What may stand between here and a server, or be taken for one: a paragraph each."""

import gzip
import itertools
import json
import threading
import time
import tracemalloc
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from core.command import said
from core.errors import ConfigError, ServerError, UserError
from detection.config import ScoredModelConfig
from detection.model.served.client import Client
from detection.model.served.completions import served_model
from detection.model.served.replies import Models


class Quiet(BaseHTTPRequestHandler):
    """Logs nothing."""

    def log_message(self, *_):
        pass


@contextmanager
def serving(handler):
    """The address of a server whose requests are handled so."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def answers(status, content, wait=0.0, **headers):
    """The address of what answers so, a byte after each wait."""

    class Handler(Quiet):
        def do_GET(self):
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            size = 1 if wait else max(1, len(content))
            for start in range(0, len(content), size):
                time.sleep(wait)
                try:
                    self.wfile.write(content[start : start + size])
                except OSError:  # nobody reads any more
                    return

    with serving(Handler) as url:
        yield url


def client(url, **given):
    return Client("model", ScoredModelConfig(url=url, **given))


BAD = {
    "deep": ((200, b"[" * 100_000), "its answer is nested too deep"),
    "html": ((200, b"<html>Sign in</html>"), "its answer is cut, or no JSON"),
    "a terminal's signs": ((404, b'{"error": "no\\u001b[31m such"}'), r"answers 404 \(no \[31m su"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_answer_is_said(name):
    what, words = BAD[name]
    with answers(*what) as url, pytest.raises(UserError, match=words) as error:
        client(url).get("models", Models)
    assert str(error.value).isprintable()


def test_a_redirect_is_said():
    with (
        answers(307, b"", Location="https://elsewhere.example/v1/models?key=1") as url,
        pytest.raises(ServerError, match=r"307 .* It redirects to another address") as error,
    ):
        client(url).get("models", Models)
    assert "key" not in str(error.value)


def test_the_time_that_an_answer_may_take_is_that_of_all_its_parts():
    with (
        answers(200, b" " * 200, wait=0.02) as url,
        pytest.raises(ServerError, match=r"no answer came within 0\.3 s"),
    ):
        client(url, timeout_seconds=0.3).get("models", Models)


@pytest.mark.parametrize("status", [404, 512, 768])
def test_a_servers_failure_ends_a_command_with_the_documented_status(status, capsys):
    """512 and 768 are 0 of the 256 that a shell sees."""
    with answers(status, b"{}") as url:
        assert said(lambda: client(url).get("models", Models)) == UserError.status == 2
    assert f"models answers {status}" in capsys.readouterr().err


@contextmanager
def endless(head=b""):
    """The address of what answers with blanks for as long as anybody reads."""

    class Handler(Quiet):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(head)
            try:
                for _ in itertools.count():
                    self.wfile.write(b" " * 65536)
            except OSError:
                pass

    with serving(Handler) as url:
        yield url


TOO_LONG = r"model.max_answer_bytes is 100,000: the answer of 'http.*' to models is longer, "


def test_an_endless_answer_ends_at_the_limit_and_is_not_asked_for_again():
    since = time.monotonic()
    with endless() as url, pytest.raises(ServerError, match=TOO_LONG):
        client(url, max_answer_bytes=100_000).get("models", Models)
    with endless() as url, pytest.raises(ServerError, match=TOO_LONG.replace("models", "x")):
        client(url, max_answer_bytes=100_000)._ask("GET", "x", None, 6, 6)
    assert time.monotonic() - since < 10


def test_a_small_answer_that_expands_is_read_to_the_limit():
    bomb = gzip.compress(bytes(2**28))
    coded = {"Content-Encoding": "gzip"}
    tracemalloc.start()
    with answers(200, bomb, **coded) as url, pytest.raises(ServerError, match=TOO_LONG):
        client(url, max_answer_bytes=100_000).get("models", Models)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**28


@pytest.mark.parametrize("coding", ["gzip, gzip", "br", "zstd", "gzip, deflate"])
def test_a_coding_that_may_expand_without_bound_is_not_read(coding):
    with (
        answers(200, b"{}", **{"Content-Encoding": coding}) as url,
        pytest.raises(ServerError, match=f"has the Content-Encoding '{coding}', which was not"),
    ):
        client(url).get("models", Models)


def test_an_answer_within_the_limit_may_be_compressed():
    content = gzip.compress(json.dumps({"data": [{"id": "a"}]}).encode())
    with answers(200, content, **{"Content-Encoding": "gzip"}) as url:
        assert client(url, max_answer_bytes=100).get("models", Models).data[0].id == "a"


@pytest.mark.parametrize(
    ("names", "words"),
    [([], "the server lists no models. Give"), (["a", "b"], "has several. Known: a, b. Give")],
)
def test_a_name_is_asked_for_where_there_is_not_one_model(names, words):
    content = json.dumps({"data": [{"id": name} for name in names]}).encode()
    with answers(200, content) as url, pytest.raises(ConfigError, match=words):
        served_model(client(url), None)

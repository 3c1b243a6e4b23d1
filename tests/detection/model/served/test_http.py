"""What may stand between here and a server, or be taken for one: a paragraph each."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from core.errors import ConfigError, ServerError, UserError
from detection.config import ScoredModelConfig
from detection.model.served.client import Client
from detection.model.served.completions import served_model
from detection.model.served.replies import Models


@contextmanager
def answers(status, content, wait=0.0, **headers):
    """The address of what answers so, a byte after each wait."""

    class Handler(BaseHTTPRequestHandler):
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

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


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


@pytest.mark.parametrize(
    ("names", "words"), [([], "It lists none"), (["a", "b"], "the server has several. Known: a, b")]
)
def test_a_name_is_asked_for_where_there_is_not_one_model(names, words):
    content = json.dumps({"data": [{"id": name} for name in names]}).encode()
    with answers(200, content) as url, pytest.raises(ConfigError, match=words):
        served_model(client(url), None)

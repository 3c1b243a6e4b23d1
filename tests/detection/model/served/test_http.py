"""What may stand between here and a server, or be taken for one: a paragraph each."""

import gzip
import itertools
import json
import re
import socket
import sys
import threading
import time
import tracemalloc
import zlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import ValidationError

from contamination.core.cli import run_tool
from contamination.core.errors import ConfigError, ServerError, UserError
from contamination.detection.config import ScoredModelConfig
from contamination.detection.models.served.client import Client
from contamination.detection.models.served.completions import find_model
from contamination.detection.models.served.connections import MAX_MEMBERS
from contamination.detection.models.served.responses import Completion, ModelList
from tests.forks import in_fork


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
    "deep": ((200, b"[" * 100_000), "not JSON .it is nested more than 50 deep"),
    "html": ((200, b"<html>Sign in</html>"), "its answer is truncated, or not JSON"),
    "deep in an error": ((404, b"[" * 100_000), r"answers 404 \(\[\[\["),
    "a terminal's signs": ((404, b'{"error": "no\\u001b[31m such"}'), r"answers 404 \(no \[31m su"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_answer_is_said(name):
    what, words = BAD[name]
    with answers(*what) as url, pytest.raises(UserError, match=words) as error:
        client(url).get("models", ModelList)
    assert str(error.value).isprintable()


def test_a_redirect_is_said():
    with (
        answers(307, b"", Location="https://elsewhere.example/v1/models?key=1") as url,
        pytest.raises(ServerError, match=r"307 .* It redirects to another address") as error,
    ):
        client(url).get("models", ModelList)
    assert "key" not in str(error.value)


def test_the_time_that_an_answer_may_take_is_that_of_all_its_parts():
    with (
        answers(200, b" " * 200, wait=0.02) as url,
        pytest.raises(ServerError, match=r"no answer came within 0\.3 s"),
    ):
        client(url, timeout_seconds=0.3).get("models", ModelList)


@pytest.mark.parametrize("status", [404, 512, 768])
def test_a_servers_failure_ends_a_command_with_the_documented_status(status, capsys):
    """512 and 768 are 0 of the 256 that a shell sees."""
    with answers(status, b"{}") as url:
        assert run_tool(lambda: client(url).get("models", ModelList)) == UserError.status == 2
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
        client(url, max_answer_bytes=100_000).get("models", ModelList)
    with endless() as url, pytest.raises(ServerError, match=TOO_LONG.replace("models", "x")):
        client(url, max_answer_bytes=100_000)._request_with_retries("GET", "x", None, 6, 6)
    assert time.monotonic() - since < 10


def test_a_small_answer_that_expands_is_read_to_the_limit():
    bomb = gzip.compress(bytes(2**28))
    coded = {"Content-Encoding": "gzip"}
    tracemalloc.start()
    with answers(200, bomb, **coded) as url, pytest.raises(ServerError, match=TOO_LONG):
        client(url, max_answer_bytes=100_000).get("models", ModelList)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**28


@pytest.mark.parametrize("coding", ["gzip, gzip", "br", "zstd", "deflate"])
def test_a_coding_that_may_expand_without_bound_is_not_read(coding):
    with (
        answers(200, b"{}", **{"Content-Encoding": coding}) as url,
        pytest.raises(ServerError, match=f"has the Content-Encoding '{coding}', which was not"),
    ):
        client(url).get("models", ModelList)


def test_an_answer_within_the_limit_may_be_compressed():
    content = gzip.compress(json.dumps({"data": [{"id": "a"}]}).encode())
    with answers(200, content, **{"Content-Encoding": "gzip"}) as url:
        assert client(url, max_answer_bytes=100).get("models", ModelList).data[0].id == "a"


LISTED = b'{"data": [{"id": "a"}]}'


@pytest.mark.parametrize(
    ("coding", "content"),
    [
        ("", LISTED),
        ("identity", LISTED),
        ("GZIP", gzip.compress(LISTED)),
        ("x-gzip", gzip.compress(LISTED)),
        ("gzip, identity", gzip.compress(LISTED)),
        ("gzip", gzip.compress(LISTED[:9]) + gzip.compress(b"") + gzip.compress(LISTED[9:])),
        ("gzip", gzip.compress(LISTED) + bytes(3)),
        ("gzip", gzip.compress(b"\xef\xbb\xbf" + LISTED)),
        ("", b"\xef\xbb\xbf" + LISTED),
    ],
    ids=[
        "empty",
        "identity",
        "capitals",
        "x-gzip",
        "two",
        "members",
        "padding",
        "mark in gzip",
        "mark",
    ],
)
@pytest.mark.parametrize("wait", [0, 1e-4], ids=["at once", "byte by byte"])
def test_the_usual_ways_to_send_json_are_read(coding, content, wait):
    with answers(200, content, wait=wait, **{"Content-Encoding": coding}) as url:
        assert client(url).get("models", ModelList).data[0].id == "a"


@pytest.mark.parametrize("n_members", [MAX_MEMBERS, MAX_MEMBERS + 1])
def test_gzip_content_has_no_more_members_than_are_allowed(n_members):
    members = gzip.compress(b"") * (n_members - 1) + gzip.compress(LISTED)
    with answers(200, members, **{"Content-Encoding": "gzip"}) as url:
        if n_members > MAX_MEMBERS:
            with pytest.raises(ServerError, match=f"has more than {MAX_MEMBERS} members"):
                client(url).get("models", ModelList)
        else:
            assert client(url).get("models", ModelList).data[0].id == "a"


def test_members_of_gzip_expand_to_the_limit_together():
    members = gzip.compress(bytes(60_000)) * 2
    with (
        answers(200, members, **{"Content-Encoding": "gzip"}) as url,
        pytest.raises(ServerError, match=TOO_LONG),
    ):
        client(url, max_answer_bytes=100_000).get("models", ModelList)


def test_a_failure_that_may_pass_is_asked_again_whatever_its_coding():
    given = iter([(502, "br", b"\x0b\x02"), (503, "zstd", b"("), (200, "", LISTED)])

    class Handler(Quiet):
        def do_GET(self):
            status, coding, content = next(given)
            self.send_response(status)
            self.send_header("Content-Encoding", coding)
            self.send_header("Retry-After", "0.01")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with serving(Handler) as url:
        assert client(url)._request_with_retries("GET", "models", None, 2, 3) == json.loads(LISTED)


def test_a_failure_in_another_coding_is_said_with_its_status():
    with (
        answers(404, b"\x0b\x02", **{"Content-Encoding": "br"}) as url,
        pytest.raises(ServerError, match=r"answers 404 \(its message is not read.* 'br'\)"),
    ):
        client(url).get("models", ModelList)


def test_the_words_of_a_failure_may_begin_with_a_mark():
    with (
        answers(404, b'\xef\xbb\xbf{"error": {"message": "no such"}}') as url,
        pytest.raises(ServerError, match=r"answers 404 \(no such\)"),
    ):
        client(url).get("models", ModelList)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_asks_over_connections_of_its_own():
    with answers(200, LISTED) as url:
        asking = client(url)
        assert asking.get("models", ModelList).data[0].id == "a"
        forked = in_fork(lambda: asking.get("models", ModelList).data[0].id)
        assert forked == asking.get("models", ModelList).data[0].id == "a"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "ALL_PROXY",
            "socks5://u:secret@h:1",
            r"SOCKS.* Run pip install 'httpx\[socks\]', or ",
        ),
        (
            "HTTPS_PROXY",
            "odd://u:secret@h:1",
            "that can't be used. Correct or unset HTTPS_",
        ),
        ("SSL_CERT_FILE", "/nowhere/a.pem", "can't be read .*unset SSL_CERT_FILE='/nowhere/a.pem'"),
        ("SSL_CERT_FILE", __file__, "the certificates can't be read .*Correct or unset SSL_CERT_F"),
    ],
    ids=["no socksio", "no such proxy", "no certificates", "other certificates"],
)
def test_what_the_environment_names_and_cannot_be_used_is_said(
    name, value, words, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "socksio", None)
    for variable in ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    monkeypatch.setenv(name, value)
    assert run_tool(lambda: client("http://127.0.0.1:1/v1")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(words, line)
    assert "secret" not in line


@contextmanager
def raw(first, again=b""):
    """The address of what sends these bytes, and then others for as long as anybody reads."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(65536)
                        connection.sendall(first)
                        while again:
                            connection.sendall(again)
                        connection.shutdown(socket.SHUT_WR)
                    except OSError:  # nobody reads any more
                        pass

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        server.shutdown(socket.SHUT_RDWR)


OK = b"HTTP/1.1 200 OK\r\n"
GZIP = OK + b"Content-Encoding: gzip\r\n\r\n"
STARTED = gzip.compress(b"")[:10]
"""The header of a gzip member."""
EMPTY_BLOCK = b"\x00\x00\x00\xff\xff"
"""A stored deflate block without content."""
WHOLE = gzip.compress(b'{"data": []}')
ENDLESS = {
    "informational answers": (b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 100, "no answer came"),
    "a header": (OK + b"X: ", b"a" * 65536, "its answer is truncated"),
    "headers": (OK, b"X: a\r\n" * 1000, "its answer is truncated"),
    "chunk extensions": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n",
        b"1;a=" + b"b" * 200 + b"\r\n \r\n",
        "no answer came|is longer",
    ),
    "empty blocks": (GZIP + STARTED, EMPTY_BLOCK * 10_000, "is longer, once decompressed"),
    "zeros behind gzip": (GZIP + WHOLE, b"\0" * 65536, "is longer, once decompressed"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_whatever_never_ends_is_ended(name):
    """In any part of an answer, also where nothing comes of what is read."""
    first, again, words = ENDLESS[name]
    errors = []

    def ask():
        try:
            given = {"timeout_seconds": 1, "max_answer_bytes": 200_000}
            client(url, **given).get("models", ModelList)
        except ServerError as error:
            errors.append(str(error))

    with raw(first, again) as url:
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(60)
        assert not asking.is_alive()
    assert len(errors) == 1
    assert re.search(words, errors[0])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (WHOLE + b"\0x", "has bytes after the end of its gzip content"),
        (WHOLE[:-1], "its gzip content has no end"),
        (WHOLE + gzip.compress(b"") * 1000, "its gzip content has more than 1000 members"),
        (zlib.compress(b"{}"), "it is not gzip"),
    ],
    ids=["more", "cut", "members", "zlib"],
)
def test_a_content_that_is_not_one_whole_gzip_member_is_said(content, words):
    with raw(GZIP + content) as url, pytest.raises(ServerError, match=words):
        client(url).get("models", ModelList)


@pytest.mark.parametrize("charset", ["hex", "idna", "undefined", "utf-16", "a\0b"])
def test_an_error_with_an_odd_charset_is_said(charset):
    kind = f"application/json; charset={charset}".encode()
    answer = b"HTTP/1.1 404 N\r\nContent-Type: " + kind + b"\r\n\r\nno \xff such model"
    with raw(answer) as url, pytest.raises(ServerError, match="no \ufffd such model|its answer is"):
        client(url).get("models", ModelList)


@pytest.mark.parametrize(
    ("names", "words"),
    [([], "the server lists no models. Give"), (["a", "b"], "has several. Known: a, b. Give")],
)
def test_a_name_is_asked_for_where_there_is_not_one_model(names, words):
    content = json.dumps({"data": [{"id": name} for name in names]}).encode()
    with answers(200, content) as url, pytest.raises(ConfigError, match=words):
        find_model(client(url), None)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([f"model-{n}" for n in range(300)], r"Known: model-0, .*, model-106 and 290 more\. Give"),
        (["m" * 900, "n"], f"Known: {'m' * 100}…, n. Give"),
        ([f"model-{n}" for n in range(20_000)], "data is .*: list should have at most 10000 items"),
        (["m" * 2000, "n"], "data.0.id is 'mmm.*: string should have at most 1000 characters"),
        (["a\ud800b"], r"data.0.id is 'a\\ud800b': input should be a valid string"),
    ],
)
def test_a_list_of_models_is_cut(names, words):
    content = json.dumps({"data": [{"id": name} for name in names]}).encode()
    with answers(200, content) as url, pytest.raises(UserError, match=words) as error:
        find_model(client(url), None)
    assert len(str(error.value)) < 500


EMPTY = {
    "values": b'{"choices":[%s]}' % b",".join([b"{}"] * 600_000),
    "lists": b'{"choices":[{"text":"a"}],"x":[%s]}' % b",".join([b"[]"] * 600_000),
}


@pytest.mark.parametrize("name", EMPTY)
def test_an_answer_of_many_values_is_not_parsed(name, monkeypatch):
    """A small answer that expands would take gigabytes."""
    content = gzip.compress(EMPTY[name])
    monkeypatch.setattr("contamination.detection.models.served.client.parse_json", None)
    with (
        answers(200, content, **{"Content-Encoding": "gzip"}) as url,
        pytest.raises(ServerError, match="has more than 1,048,576 JSON values") as error,
    ):
        client(url).get("completions", Completion)
    assert "model.max_answer_bytes is 16,777,216" in str(error.value)


@pytest.mark.parametrize("form", [
    {"choices": [{}] * 500_000}, {"choices": [None] * 500_000},
    {"choices": [{"logprobs": {"content": [{}] * 500_000}}]},
    {"choices": [{"logprobs": {"tokens": [0] * 500_000, "token_logprobs": ["a"] * 500_000}}]},
    {"choices": [{"prompt_logprobs": [[]] * 500_000}]},
])  # fmt: skip
def test_a_long_list_of_another_form_takes_little_memory(form):
    """One error, not one for each entry."""
    tracemalloc.start()
    try:
        with pytest.raises(ValidationError):
            Completion.model_validate(form)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()

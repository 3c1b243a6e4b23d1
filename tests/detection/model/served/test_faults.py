"""What a server may do wrong, and what is said of it: a paragraph each, and nothing is lost."""

import json
import logging
import os
import signal
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from contamination.core.errors import (
    ArtifactError,
    ConfigError,
    DataError,
    ServerError,
    StoppedError,
    UserError,
)
from contamination.core.signals import stop_on_signals
from contamination.detection.config import DetectionConfig, ScoredModelConfig
from contamination.detection.models import open_model
from contamination.detection.models.served import client as client_module
from contamination.detection.models.served.connections import run_in_parallel
from contamination.detection.models.served.fingerprint import probe_token_ids
from contamination.detection.models.served.responses import Completion
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.detection.tasks.probe import format_request_plan as dry_run
from tests.detection.model.served.conftest import FOLDER
from tests.detection.model.served.server import Server
from tests.detection.model.served.test_served_model import PROBES

KEY = "sk-do-not-write-me-anywhere-1234"


@pytest.fixture
def waits(monkeypatch):
    """The seconds that the client waits before it asks again."""
    found = []
    monkeypatch.setattr(client_module, "wait_for_stop", found.append)
    return found


def test_what_may_pass_is_asked_again_and_retry_after_is_honoured(stage, waits):
    faults = [(429, {"Retry-After": "7"}), (503, {}), "cut", (500, {})]
    with Server(fails=list(faults)) as server:
        run(stage(server.url))
    assert len(waits) == len(faults)
    assert 7 <= waits[0] < 9
    assert all(wait <= 5 for wait in waits[1:])


def test_what_does_not_pass_is_said(stage, waits):
    with (
        Server(fails=[(500, {})] * 99) as server,
        pytest.raises(ServerError, match=r"model.url is .*/v1': completions answers 500 \(Try aga"),
    ):
        run(stage(server.url, retries=2))
    assert len(waits) == 2 + 7  # and once each by other forms of the request


@pytest.mark.parametrize("echo", ["ignored", 400, 500])
@pytest.mark.parametrize("names_ids", [True, False])
def test_a_server_without_echo_is_asked_by_the_next_way(stage, tmp_path, waits, echo, names_ids):
    """Also where it writes a text of its own in place of the prompt's, as long as that."""
    with Server(echo=echo, names_ids=names_ids) as server:
        model = open_model("model", stage(server.url).model, str(tmp_path))
    assert model.probe.strategy == "forced token, raw"
    assert len(waits) <= 2


def test_no_wait_is_longer_than_an_hour(stage, waits):
    late = format_datetime(datetime.now(UTC) + timedelta(days=400), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(days=400), usegmt=True)
    faults = [late, "1e9", past, "nan", "Mon, 01 Jan 99999 00:00:00 GMT", "soon"]
    with Server(fails=[(429, {"Retry-After": words}) for words in faults]) as server:
        run(stage(server.url))
    assert [wait // 3600 for wait in waits] == [1, 1, 0, 0, 0, 0]
    assert max(waits) <= 1.25 * 3600


BAD = {
    "chat": ({"chat": True}, {}, "404 .This is a chat model.*It does not chat either: .*404"),
    "no such model": ({}, {"name": "gold"}, r"model.name is 'gold': .* Did you mean golden\?"),
    "no key": ({"key": KEY}, {}, "401 .*model.key_env is None: it requires a key. Name the vari"),
    "wrong key": (
        {"key": KEY + "5", "says_key": True}, {"key_env": "KEY"},
        r"401 .Incorrect API key provided: \*\*\*.*the key in KEY is refused",
    ),
    "unset key": ({}, {"key_env": "UNSET"}, "model.key_env names an environment variable that is"),
    "count": ({"extra": 1}, {}, "counts 49 tokens, the tokenizer 48. Give the model's own token"),
    "nothing": (
        {"prompt": False, "shows": "nothing", "bias": False}, {},
        "method.loss needs logprob of the target model, which gives continuations",
    ),
    "short": ({"context": 30, "says_context": False}, {}, "context length is 30 .* too long for"),
    "slow": ({"slow": 0.3}, {"timeout_seconds": 0.05, "retries": 0}, "no answer came within 0.05"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_server_is_said_before_any_work(stage, monkeypatch, tmp_path, waits, name):
    monkeypatch.setenv("KEY", KEY)
    does, given, words = BAD[name]
    with Server(**does) as server, pytest.raises(UserError, match=words) as error:
        run(stage(server.url, **given))
    assert "\n" not in str(error.value)
    assert not [*tmp_path.glob("runs/scores/*")]


def given(*path, value):
    """What changes the field at the path of every answer to the probe's text, or all of it."""

    def alter(body, answer):
        if body is None:
            return answer
        at = answer
        for name in path[:-1]:
            at = at[name]
        if path:
            at[path[-1]] = value
        return answer if path else value

    return alter


def models(value):
    return lambda body, answer: value if body is None else answer


SHOWN, NAN = ("choices", 0, "logprobs"), float("nan")
LOGPROBS = (*SHOWN, "token_logprobs")
MALFORMED = {
    "a string": (given(*LOGPROBS, value=["-1"]), r"token_logprobs.0 is '-1': input should be a va"),
    "nan": (given(*LOGPROBS, value=[NAN]), "token_logprobs.0 is nan: a log-probability is a numb"),
    "above 0": (given(*LOGPROBS, value=[0.7]), "token_logprobs.0 is 0.7: a log-probability is a"),
    "one too few": (given(*LOGPROBS, value=[]), "1 tokens, 0 token_logprobs and 1 top_logprobs"),
    "no names": (given(*SHOWN, "tokens", value=[None]), "tokens.0 is None: input should be a val"),
    "no objects": (given(*SHOWN, "top_logprobs", value=["a"]), "top_logprobs.0 is 'a': input"),
    "no choice": (given("choices", value=[None]), "choices.0 is None: input should be an object"),
    "no choices": (given("choices", value=[]), r"choices is \[\]: list should have at least 1"),
    "a list": (given(*SHOWN, value=["x"]), r"choices.0.logprobs is \['x'\]: input should be an"),
    "another": (given(value={"error": "no"}), "choices is missing in {'error': 'no'}"),
    "all a list": (given(value=[1]), r"the whole answer is \[1\]: input should be an object"),
    "a count": (given("usage", value={"prompt_tokens": "48"}), "usage.prompt_tokens is '48': in"),
    "a context": (models({"data": [{"id": "golden", "max_model_len": "512"}]}), "len is '512': in"),
    "no model": (models({"data": [None]}), "data.0 is None: input should be an object"),
    "no models": (models([1]), r"to models the whole answer is \[1\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_answer_is_said(stage, waits, name):
    alters, words = MALFORMED[name]
    with Server(alters=alters) as server, pytest.raises(ServerError, match=words) as error:
        run(stage(server.url))
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"model.url is '{server.url}': in its answer to ")
    assert "Give a server of OpenAI's" in str(error.value)


def test_what_may_be_left_out_may_be_null(stage):
    def alter(body, answer):
        if body is None:
            return {"data": [{**answer["data"][0], "max_model_len": None}]}
        return {"choices": [{**answer["choices"][0], "text": None}], "usage": None}

    with Server(alters=alter) as server:
        run(stage(server.url))


@pytest.mark.parametrize("zero", [float("-inf"), None])
def test_a_token_of_probability_0_is_flagged_and_ends_nothing(stage, tokenizer, zero):
    def alter(body, answer):
        probe = probe_token_ids(tokenizer)
        if body and body.get("echo") and body["prompt"] != probe[: len(body["prompt"])]:
            answer["choices"][0]["logprobs"]["token_logprobs"][5] = zero
        return answer

    with Server(alters=alter) as server:
        table = open_scores(run(stage(server.url)).path).table
    assert set(table["flag"]) == {"a token of probability 0, taken as 2^-149"}
    assert table["score"].between(-104, -1).all()


def test_beginnings_that_no_text_gives_are_said_before_any_is_asked(stage, tmp_path):
    """Of a server that takes text alone, and is asked about each token."""
    text = "The caf\u00e9 of the na\u00efve"
    (tmp_path / "odd.jsonl").write_text(json.dumps({"text": text}) + '\n{"text": "The boat"}\n')
    with Server(ids=False, names_ids=False, prompt=False) as server:
        own = stage(server.url, ("loss",), texts="odd.jsonl")
        open_model("model", own.model, own.runs)
        probes = len(server.seen)
        with pytest.raises(ServerError, match=SENT) as error:
            run(own)
        assert len(server.seen) == 2 * probes
        with pytest.raises(ServerError, match=SENT):
            dry_run(own)
    assert "tokenizer" not in str(error.value)


SENT = (
    r"of the text 'The caf.*' the first \d+ tokens can't be sent. The server accepts only text, "
    r".* There are \d+ such beginnings in 1 of the 2 texts. Leave these texts out, or give"
)


def test_a_wrong_address_is_said(stage):
    with Server() as server:
        url = server.url
        with pytest.raises(ConfigError, match="/v2/models gives no list of models .*404"):
            run(stage(url.replace("v1", "v2")))
    with pytest.raises(ServerError, match=f"model.url is '{url}': it can't be reached"):
        run(stage(url))
    with pytest.raises(ConfigError, match="model.url is 'localhost': give an address such as"):
        run(stage("localhost"))
    with pytest.raises(ConfigError, match="model.url contains a user, a password") as error:
        run(stage(f"http://me:{KEY}@localhost"))
    assert KEY not in str(error.value)
    with pytest.raises(ConfigError, match="model.tokenizer is None: give the model's tokenizer"):
        run(stage(url, tokenizer=None))
    both = stage(url)
    with pytest.raises(ConfigError, match="model.path is 'x': model.url is given as well"):
        run(replace(both, model=replace(both.model, path="x")))


def test_a_key_that_no_header_takes_is_not_quoted(stage, monkeypatch):
    monkeypatch.setenv("KEY", f"{KEY}\nand more")
    with pytest.raises(ConfigError, match="model.key_env is 'KEY': .* more than a key") as error:
        run(stage("http://localhost", key_env="KEY"))
    assert KEY not in str(error.value)


def test_a_damaged_record_of_a_server_is_named(stage, tmp_path):
    with Server() as server:
        run(stage(server.url))
        (record,) = tmp_path.glob("runs/served/*/probe.json")
        record.write_text(record.read_text().replace("golden", "silver"))
        with pytest.raises(ArtifactError, match="probe.json is damaged .* Delete the folder"):
            run(stage(server.url))


def test_tokens_that_no_text_gives_are_not_sent_as_text(tmp_path, tokenizer):
    node = ScoredModelConfig(url="", tokenizer=str(FOLDER))
    with Server(ids=False) as server:
        model = open_model("model", replace(node, url=server.url), str(tmp_path))
        loaded, asked = model.load(DetectionConfig()), len(server.seen)
        bos = tokenizer("a")["input_ids"][0]
        apart = [bos, *(tokenizer(c, add_special_tokens=False)["input_ids"][-1] for c in "the")]
        with pytest.raises(ServerError, match="tokens can't be sent. The server acc"):
            loaded.score([apart])
        assert len(server.seen) == asked


def test_a_text_longer_than_the_context_is_named(stage):
    with (
        Server(context=60) as server,
        pytest.raises(DataError, match="has .* tokens, more than the model's context of 60"),
    ):
        run(stage(server.url))


def test_a_server_that_changes_its_answers_is_an_error_and_they_are_dropped(stage, tmp_path):
    with Server(noise=0.3) as server, pytest.raises(ServerError, match="it changes its answers"):
        run(stage(server.url))
    changed = Server(changes_after=PROBES + 2, another=1.0)
    with changed as server, pytest.raises(ServerError, match="it changes its answers: they"):
        run(stage(server.url))
    assert [path.stat().st_size for path in tmp_path.glob("runs/served/*/*.jsonl")] == [0]
    assert not [*tmp_path.glob("runs/passes/*/*.parquet")]


def many(tmp_path, count):
    rows = [
        {"text": f"On day {i} the ferry was late, as it had been before."} for i in range(count)
    ]
    (tmp_path / "many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_killed_run_goes_on_where_it_was(stage, tmp_path):
    """Twice what was under way is asked again, and the ends of a tail, no more."""
    many(tmp_path, 60)
    with Server() as server:
        own = stage(server.url, texts="many.jsonl", requests=2)
        probes = PROBES - 6  # of two requests at once
        server.slow = 0.005
        for number in (signal.SIGKILL, signal.SIGTERM):
            before, child = len(server.seen), os.fork()
            if child == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                try:
                    run(own)
                finally:
                    os._exit(0)
            while len(server.seen) < before + probes + 15:
                time.sleep(0.001)
            os.kill(child, number)
            assert os.waitpid(child, 0)[1] == number
        server.slow = 0.0
        run(own)
        assert len(server.seen) <= 60 + 3 * probes + 2 * (2 + 2) + 1
        before = len(server.seen)
        run(replace(own, runs=own.runs))
        assert len(server.seen) == before + probes


def test_after_an_error_nothing_is_asked_again_in_the_background(caplog):
    """A thread that waits before it asks again stops with the others."""
    with Server() as server:
        url = server.url
    client = client_module.Client("model", ScoredModelConfig(url=url, retries=3))

    def work(job):
        if job == "bad":
            while caplog.text.count("Retrying") < 3:
                time.sleep(0.001)
            raise ValueError(job)
        client.post("completions", {}, Completion)

    before = set(threading.enumerate())
    with caplog.at_level(logging.INFO):
        with pytest.raises(ValueError, match="bad"):
            list(run_in_parallel(work, ["bad", *range(3)], 4))
        for thread in set(threading.enumerate()) - before:
            thread.join()
    assert caplog.text.count("Retrying") == 3


def test_a_signal_ends_the_run_though_the_server_is_slow(stage, tmp_path):
    many(tmp_path, 4)
    with Server() as server:
        own = stage(server.url, texts="many.jsonl")
        child = os.fork()
        if child == 0:
            try:
                with stop_on_signals():
                    run(own)
            except StoppedError as error:
                os._exit(error.status)
            os._exit(1)
        while len(server.seen) < PROBES:
            time.sleep(0.001)
        server.slow = 30.0
        time.sleep(0.1)
        since = time.monotonic()
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 128 + signal.SIGTERM
        assert time.monotonic() - since < 20


def test_the_key_is_written_nowhere(stage, tmp_path, monkeypatch, caplog, capfd, waits):
    """Not where a server quotes it, as some do: in files, logs, errors, nor standard output."""
    monkeypatch.setenv("THE_KEY", KEY)
    with caplog.at_level(logging.DEBUG), Server(key=KEY, fails=[(500, {})]) as server:
        run(stage(server.url, key_env="THE_KEY"))
        assert server.seen
        monkeypatch.setenv("THE_KEY", KEY + "x")
        server.says_key = True
        with pytest.raises(ConfigError) as error:
            run(stage(server.url, key_env="THE_KEY"))
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    said = f"{capfd.readouterr()} {caplog.text} {error.value} {error.value.__cause__!r}"
    assert len(files) > 5
    assert not any(KEY.encode() in content for content in files)
    assert KEY not in said

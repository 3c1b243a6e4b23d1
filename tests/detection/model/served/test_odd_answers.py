"""Answers that are not what the probe saw: an error each, and no wrong number."""

import json
import logging
import shutil

import numpy as np
import pytest

from contamination.core.errors import ServerError
from contamination.detection.config import DetectionConfig, ScoredModelConfig
from contamination.detection.models import open_model
from contamination.detection.models.base import Prompt
from tests.detection.golden import examples
from tests.detection.model.served.conftest import FOLDER
from tests.detection.model.served.server import Server
from tests.rounding import FORWARD


@pytest.fixture
def served(tmp_path):
    """`served(server)`: its model, opened anew."""

    def opened(server, **given):
        node = ScoredModelConfig(url=server.url, **{"tokenizer": str(FOLDER), **given})
        return open_model("model", node, str(tmp_path)).load(DetectionConfig())

    return opened


def no_numbers(choice):
    choice["logprobs"] = None


def other_names(choice):
    shown = choice["logprobs"]
    shown["tokens"] = ["a" for _ in shown["tokens"]]
    shown["top_logprobs"] = [{f"a{n}": -1.0 for n in top} for top in shown["top_logprobs"]]


def null_numbers(choice):
    choice["logprobs"]["token_logprobs"] = [None]


@pytest.mark.parametrize("shows", ["raw", "biased", "list"])
@pytest.mark.parametrize("does", [no_numbers, other_names])
def test_numbers_that_end_after_the_probe_are_missed(served, tokenizer, shows, does):
    def alter(body, answer):
        if body:
            does(answer["choices"][0])
        return answer

    ids = tokenizer(examples()[0]["text"])["input_ids"][:5]
    with Server(prompt=False, shows=shows) as server:
        model = served(server)
        server.alters = alter
        with pytest.raises(ServerError, match=r"of the text .* unlike when it was probed"):
            model.score([ids])


def test_a_forced_token_without_a_number_is_an_error(served, tokenizer):
    """Not one of probability 0, which no bias forces."""
    ids = tokenizer(examples()[0]["text"])["input_ids"][:5]

    def alter(body, answer):
        if body and "logit_bias" in body:
            null_numbers(answer["choices"][0])
        return answer

    with Server(prompt=False) as server:
        model = served(server)
        server.alters = alter
        with pytest.raises(ServerError, match="no log-probability of its choice 'token_id"):
            model.score([ids])


def test_a_bisection_wants_one_of_two_choices(served, tokenizer):
    ids = tokenizer(examples()[0]["text"])["input_ids"][:5]

    def alter(body, answer):
        if body and "logit_bias" in body:
            answer["choices"][0]["logprobs"]["tokens"] = ["token_id:7"]
        return answer

    with Server(prompt=False, shows="list", most=1) as server:
        model = served(server)
        server.alters = alter
        with pytest.raises(ServerError, match="it chooses 'token_id:7', but under logit_bias"):
            model.score([ids])


class Deaf(Server):
    """May take no notice of a bias any more."""

    deaf = False

    def answer(self, path, body):
        if self.deaf and body:
            body.pop("logit_bias", None)
        return super().answer(path, body)


def test_a_bias_that_is_no_longer_heeded_is_an_error(served, tokenizer):
    ids = tokenizer(examples()[0]["text"])["input_ids"][:30]
    with Deaf(prompt=False) as server:
        model = served(server)
        server.deaf = True
        with pytest.raises(
            ServerError, match="it chooses 'token_id.* is the likeliest. Check that"
        ):
            model.score([ids])


class OwnNames(Server):
    """Names the parts of a character by their bytes, as OpenAI's servers do."""

    def name(self, token):
        name = super().name(token)
        return f"bytes:{token}" if "\ufffd" in name else name


def test_a_token_that_a_server_names_otherwise_is_told_where_it_is_the_likeliest(
    served, decoder, tokenizer
):
    """A bias changes nothing there: the token was the choice before."""
    ids = tokenizer("The caf\u00e9 \u2014 \u65e5\u672c \U0001f600 \U0001f600")["input_ids"]
    (exact,) = decoder.score([ids])
    likeliest = np.flatnonzero(exact.top_id == ids[1:])
    assert any("\ufffd" in tokenizer.decode([ids[n + 1]]) for n in likeliest)
    with OwnNames(prompt=False, names_ids=False) as server:
        (found,) = served(server).score([ids])
    assert np.abs(found.logprob - exact.logprob).max() <= FORWARD


def changed_tokenizer(folder, change):
    """A copy of the tokenizer with another tokenizer.json."""
    for file in FOLDER.glob("*token*"):
        shutil.copy(file, folder)
    shutil.copy(FOLDER / "config.json", folder)
    record = json.loads((FOLDER / "tokenizer.json").read_text())
    change(record)
    (folder / "tokenizer.json").write_text(json.dumps(record))
    return str(folder)


def fewer_merges(record):
    record["model"]["merges"] = record["model"]["merges"][:100]


def no_bos(record):
    record["post_processor"] = None


def other_ids(record):
    ids = record["model"]["vocab"]
    names = [name for name in ids if ids[name] > 3]
    numbers = [ids[name] for name in names]
    ids.update(zip(names, numbers[7:] + numbers[:7], strict=True))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (fewer_merges, r"it counts \d+ tokens, the tokenizer 48"),
        (no_bos, "it counts 49 tokens, the tokenizer 48"),
        (other_ids, "it continues the text differently from the tokenizer's ids"),
    ],
)
@pytest.mark.parametrize("does", [{}, {"prompt": False, "names_ids": False}])
def test_another_models_tokenizer_is_said_where_ids_are_taken(
    served, tmp_path, change, words, does
):
    own = changed_tokenizer(tmp_path, change)
    with Server(**does) as server, pytest.raises(ServerError, match=words) as error:
        served(server, tokenizer=own)
    assert "Give the model's own tokenizer (model.tokenizer)" in str(error.value)


class IdsAlone(Server):
    """Takes no text."""

    def answer(self, path, body):
        if body and isinstance(body["prompt"], str):
            return 422, {"detail": "prompt must be a list of integers"}
        return super().answer(path, body)


def test_a_server_that_takes_no_text_is_not_sent_any(served):
    with IdsAlone() as server:
        assert served(server).strategy.name == "prompt log-probabilities"


FAILURES = {
    "filtered": ({"text": None, "finish_reason": "content_filter"}, {}, "is 'content_filter'"),
    "failed": ({"text": "", "finish_reason": "error"}, {}, "finish_reason is 'error'"),
    "an error": ({"text": ""}, {"error": {"message": "GPU lost"}}, "error is {'message': 'GPU"),
    "its error": ({"text": "a", "error": {"code": 502}}, {}, "error is {'code': 502}"),
    "no text": ({"text": None, "finish_reason": "stop"}, {}, "its answer has no text"),
    "too long": ({"text": " the cat" * 10_000}, {}, "80,000 characters although max_tokens is 12"),
    "no Unicode": ({"text": " the \ud800 cat"}, {}, r"text is ' the \\ud800 cat': a text is valid"),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("names_ids", [True, False])
def test_a_text_that_the_model_did_not_write_is_an_error(served, tokenizer, name, names_ids):
    choice, beside, words = FAILURES[name]

    def alter(body, answer):
        return {"choices": [choice], **beside} if body and body["max_tokens"] == 12 else answer

    ids = tokenizer(examples()[0]["text"])["input_ids"]
    with Server(alters=alter, names_ids=names_ids) as server:
        model = served(server, retries=0)
        with pytest.raises(ServerError, match=words):
            model.generate([Prompt(ids[:9], 12)], 0)


def test_a_server_that_writes_on_is_cut_or_told(served, tokenizer):
    """By its ids after so many tokens; a text is tokenized, and cut there as well."""

    def alter(body, answer):
        if body and body["max_tokens"] == 12:
            words = {"text": " a b c d e f g h i j k l m n o p q r s t u v"}
            ids = tokenizer(words["text"], add_special_tokens=False)["input_ids"]
            shown = {"tokens": [f"token_id:{i}" for i in ids], "token_logprobs": [None] * len(ids)}
            answer = {"choices": [{**words, "logprobs": shown if body.get("logprobs") else None}]}
        return answer

    ids = tokenizer(examples()[0]["text"])["input_ids"]
    for names_ids in (True, False):
        with Server(alters=alter, names_ids=names_ids) as server:
            (written,) = served(server).generate([Prompt(ids[:9], 12)], 0)
        assert len(written) == 12


def test_a_text_without_the_ids_of_its_tokens_is_tokenized(served, tokenizer):
    def alter(body, answer):
        return {"choices": [{"text": " the"}]} if body and body["max_tokens"] == 12 else answer

    ids = tokenizer(examples()[0]["text"])["input_ids"]
    with Server(alters=alter) as server:
        (written,) = served(server).generate([Prompt(ids[:9], 12)], 0)
    assert written == tokenizer(" the", add_special_tokens=False)["input_ids"]


def test_a_greedy_text_that_is_too_long_is_an_error(served):
    """By which a server without log-probabilities is recognised."""

    def alter(body, answer):
        if body and body["max_tokens"] > 1:
            answer["choices"][0]["text"] = " the cat" * 10_000
        return answer

    with (
        Server(prompt=False, shows="nothing", bias=False, alters=alter) as server,
        pytest.raises(ServerError, match="80,000 characters although max_tokens is 32"),
    ):
        served(server)


def shifted(logprobs):
    logprobs[1:] = [-1.0, *logprobs[1:-1]]


def zeros(logprobs):
    logprobs[1:] = [0.0] * len(logprobs[1:])


def altered_echo(does, after=0):
    """What changes the log-probabilities of prompts of more than so many tokens."""

    def alter(body, answer):
        if body and body.get("echo") and len(body["prompt"]) > after:
            does(answer["choices"][0]["logprobs"]["token_logprobs"])
        if body and "prompt_logprobs" in answer["choices"][0]:
            _, *shown = answer["choices"][0]["prompt_logprobs"]
            entries = [e[str(i)] for e, i in zip(shown, body["prompt"][1:], strict=True)]
            numbers = [None, *(entry["logprob"] for entry in entries)]
            does(numbers)
            for entry, number in zip(entries, numbers[1:], strict=True):
                entry["logprob"] = number
        return answer

    return alter


@pytest.mark.parametrize(("does", "words"), [(shifted, "nats from those of"), (zeros, "all are 0")])
@pytest.mark.parametrize("server", [{}, {"echo": 400, "parameter": True}, {"names_ids": False}])
def test_log_probabilities_of_a_prompt_are_compared_with_the_next_tokens(
    served, caplog, does, words, server
):
    with Server(alters=altered_echo(does), **server) as one:
        assert served(one).strategy.name == "forced token, raw"
    assert words in caplog.text


def test_a_text_of_zeros_is_an_error(served, tokenizer):
    ids = tokenizer(examples()[0]["text"])["input_ids"]
    with Server(alters=altered_echo(zeros, after=60)) as server:
        model = served(server)
        with pytest.raises(
            ServerError, match="log-probabilities are all 0, as those of no model are"
        ):
            model.score([ids[:70]])


def test_a_prompt_that_nothing_can_be_compared_with_is_said(served, caplog):
    with Server(shows="nothing", names_ids=False) as server:
        assert served(server).strategy.name == "prompt log-probabilities"
    assert "they are used, but not checked" in caplog.text


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("server", [{}, {"ids": False, "names_ids": False}])
def test_the_log_probabilities_of_a_noisy_server_are_used(served, caplog, server, noise):
    with Server(noise=noise, **server) as one:
        assert served(one).strategy.name == "prompt log-probabilities"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_server_that_lists_one_token_and_heeds_no_bias_is_not_forced(served):
    """Every token but its own choice would have the probability 0."""
    with Deaf(prompt=False, most=1) as server:
        server.deaf = True
        assert served(server).strategy.name == "sampling only"

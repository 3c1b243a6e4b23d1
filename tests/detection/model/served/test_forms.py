"""Servers whose answers have another form than vLLM's, and what is read of them."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contamination.core.errors import ConfigError, ServerError
from contamination.core.models import load_tokenizer
from contamination.data import chat_templates
from contamination.detection.config import DetectionConfig, ProbeStage, ScoredModelConfig
from contamination.detection.models import open_model
from contamination.detection.models.served.capabilities import find_dialect
from contamination.detection.models.served.chat import REQUEST
from contamination.detection.models.served.client import Client
from contamination.detection.models.served.completions import Dialect
from contamination.detection.models.served.responses import Completion, Logprobs, TokenNames
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.detection.tasks.probe import run as probe
from tests.detection.golden import examples
from tests.detection.model.served.conftest import FOLDER, NODES
from tests.detection.model.served.recorded import CHAT
from tests.detection.model.served.server import NAME, Server
from tests.rounding import FORWARD

FORCED = {"prompt": False, "content": True}
"""What llama.cpp's server does, but for hidden tokens."""


@pytest.fixture
def opened(tmp_path):
    """`opened(server, …)`: its model."""

    def open_(server, **given):
        node = ScoredModelConfig(url=server.url, **{"tokenizer": str(FOLDER), **given})
        return open_model("model", node, str(tmp_path))

    return open_


@pytest.fixture
def chatting(tmp_path):
    """The golden model with a chat template."""
    folder = shutil.copytree(FOLDER, tmp_path / "chatting")
    shutil.copy(CHAT, folder / "chat_template.jinja")
    return str(folder)


@pytest.mark.parametrize("hides", [False, True])
def test_log_probabilities_in_the_form_of_chats_are_read(opened, decoder, tokenizer, hides):
    """Also of parts of a character, which llama.cpp hides where it has chosen one."""
    ids = tokenizer("The caf\u00e9 was")["input_ids"]
    (exact,) = decoder.score([ids])
    with Server(**FORCED, hides=hides, most=10**6) as server:
        model = opened(server)
        (found,) = model.load(DetectionConfig()).score([ids])
    assert model.probe.strategy == "forced token, raw"
    assert model.probe.dialect.names_ids
    assert np.abs(found.logprob - exact.logprob).max() <= FORWARD


def test_a_hidden_token_that_no_list_has_is_an_error(opened, tokenizer):
    class Short(Server):
        def _top(self, row, n, *always):
            return super()._top(row, min(n, 20), *always)

    with Short(**FORCED, hides=True, most=10**6) as server:
        loaded = opened(server).load(DetectionConfig())
        with pytest.raises(
            ServerError, match=r"the token 'token_id:\d+' \(\d+\) can't be identified"
        ):
            loaded.score([tokenizer("The caf\u00e9 \u65e5\u672c")["input_ids"]])


@pytest.mark.parametrize("mark", [" ", "\u2581", "\u0120", ""])
def test_names_are_those_of_the_tokens_however_white_space_is_marked(tokenizer, mark):
    """As SentencePiece and byte-level BPE mark it."""
    names = TokenNames(tokenizer, by_id=False)
    ids = tokenizer(" a house is by the river", add_special_tokens=False)["input_ids"]
    shown = [mark + names.text(i).strip() for i in ids]
    assert names.matches(shown, ids)
    assert not names.matches([f"{mark}x{name}" for name in shown], ids)


@pytest.mark.parametrize(
    "form", [{"probs": [[0.1]]}, {"tokenLogprobs": []}, {"top_candidates": {"a": -1.0}}]
)
def test_an_unknown_form_of_log_probabilities_is_an_error_that_quotes_it(stage, form):
    """It shows something: no method of what is written alone may be run in its place."""

    def alter(body, answer):
        if body and answer["choices"][0].get("logprobs"):
            answer["choices"][0]["logprobs"] = form
        return answer

    words = rf"logprobs is \{{'{next(iter(form))}.*in an unknown form, with the fields \['"
    with Server(alters=alter) as server, pytest.raises(ServerError, match=words):
        run(stage(server.url, ("cdd",)))


@pytest.mark.parametrize("form", [{}, {"content": [], "refusal": None}, {"tokens": []}])
def test_an_answer_without_tokens_shows_nothing(form):
    assert Logprobs.model_validate(form).positions() == []


@pytest.mark.parametrize("form", [
    {"content": None}, {"content": None, "refusal": None}, {"content": None, "probs": [0.1]},
    {"tokens": None, "token_logprobs": None, "top_logprobs": None, "text_offset": None},
])  # fmt: skip
def test_a_form_without_any_log_probabilities_is_not_taken_for_none(form):
    """A server that shows none answers with null."""
    with pytest.raises(ValueError, match=r"in an unknown form.* logprobs is null"):
        Completion.model_validate({"choices": [{"text": "a", "logprobs": form}]})


PROBABILITIES = [{"content": "a", "probs": [{"tok_str": "a", "prob": 0.5}]}]


@pytest.mark.parametrize(
    ("choice", "answer", "name"),
    [
        ({"completion_probabilities": PROBABILITIES}, {}, "completion_probabilities"),
        ({"token_logprobs": [-1.0], "logprobs": None}, {}, "token_logprobs"),
        ({}, {"completion_probabilities": PROBABILITIES}, "completion_probabilities"),
        ({"logprobs": None}, {"logprobs": {"content": []}}, "logprobs"),
    ],
)
def test_log_probabilities_in_another_place_are_not_taken_for_none(choice, answer, name):
    with pytest.raises(ValueError, match=f"log-probabilities are in {name}, which is not"):
        Completion.model_validate({"choices": [{"text": "a", **choice}], **answer})


def test_other_fields_of_an_answer_may_be_anything():
    choice = {"text": "a", "cumulative_logprob": -1.0, "token_logprobs": None, "probs": []}
    shown = {**choice, "logprobs": {"content": []}, "completion_probabilities": PROBABILITIES}
    for one in (choice, shown):
        assert Completion.model_validate({"choices": [one]}).choices[0].positions() == []


@pytest.mark.parametrize("echo", [400, "ignored"])
@pytest.mark.parametrize("names_ids", [True, False])
def test_prompt_logprobs_are_asked_for_where_echo_is_unknown(
    opened, decoder, tokenizer, echo, names_ids
):
    """A request a text, in place of one a token."""
    texts = [tokenizer(one["text"])["input_ids"][:30] for one in examples()[:5]]
    with Server(echo=echo, parameter=True, names_ids=names_ids) as server:
        model = opened(server)
        before = len(server.seen)
        found = model.load(DetectionConfig()).score(texts)
        assert len(server.seen) - before == len(texts) + 1  # and a check
    assert model.probe.strategy == "prompt_logprobs"
    for one, exact in zip(found, decoder.score(texts), strict=True):
        assert np.abs(one.logprob - exact.logprob).max() <= FORWARD
        assert (one.top_id == exact.top_id).all()


@pytest.mark.parametrize("lists", [[], ["others"], 404, 500])
def test_a_named_model_that_is_not_listed_is_asked_for_with_a_warning(opened, caplog, lists):
    with Server(lists=lists) as server:
        assert opened(server, name=NAME).name == NAME
    assert f"it does not list the model '{NAME}', which is requested anyway" in caplog.text


def test_a_name_that_is_neither_listed_nor_served_is_said_with_near_ones(opened):
    words = r"model.name is 'gold': the server does not list it.* Did you mean golden\? .*404"
    with Server() as server, pytest.raises(ConfigError, match=words):
        opened(server, name="gold")


def test_a_chat_that_continues_shows_the_tokens_of_an_answer(opened, decoder, chatting, caplog):
    """Those of the text after the template, as the model in its files has them there."""
    with Server(folder=chatting, chat=True, chats="continues") as server:
        model = opened(server, tokenizer=chatting)
        tokenizer = model.tokenizer()
        ids = tokenizer("The boat was late.")["input_ids"]
        (found,) = model.load(DetectionConfig()).score([ids])
        first = server.seen[-1]["messages"][0]
    assert first == {"role": "user", "content": REQUEST}
    assert (model.probe.dialect.chat, model.probe.strategy) == (True, "forced token, raw")
    assert "scores are of the text in that position" in caplog.text
    before = tokenizer.apply_chat_template([first], tokenize=False, add_generation_prompt=True)
    before = tokenizer(before, add_special_tokens=False)["input_ids"]
    (exact,) = decoder.score([[*before, *ids[1:]]])
    np.testing.assert_allclose(found.logprob, exact.logprob[len(before) - 1 :], atol=FORWARD)


def test_a_chat_that_only_answers_serves_what_reads_its_answers(stage, chatting, caplog):
    with Server(folder=chatting, chat=True, chats="answers") as server:
        writing = {"cdd": {**NODES["cdd"], "n": 1, "tokens": 3}}
        asked = stage(server.url, tokenizer=chatting)
        assert len(open_scores(run(replace(asked, method=writing)).path).table) == 6
        with pytest.raises(ConfigError, match="method.loss needs logprob of the target model"):
            run(asked)
        said = server.seen[-1]["messages"][-1]["content"]
    assert said.startswith(f"{REQUEST}\n\n")
    assert "only methods that read generated text can be used" in caplog.text


@pytest.mark.parametrize(("chats", "continues"), [("continues", True), ("closes", False)])
def test_a_chat_that_begins_another_answer_does_not_continue_one(chatting, chats, continues):
    """It takes what would have it continue: the tokens that it counts tell."""
    tokenizer = load_tokenizer("model.tokenizer", chatting)
    with Server(folder=chatting, chat=True, chats=chats) as server:
        client = Client("model", ScoredModelConfig(url=server.url))
        assert find_dialect(client, NAME, tokenizer).continues == continues


def strips(template):
    return template.replace("message['content']", "message['content'][:-1]")


def dates(template):
    return f"Today is Monday. {template}"


@pytest.mark.parametrize("change", [strips, dates])
def test_a_chat_whose_template_is_another_is_not_taken_to_continue_a_text(opened, chatting, change):
    class Changed(Server):
        @property
        def tokenizer(self):
            tokenizer = load_tokenizer("model.tokenizer", chatting)
            tokenizer.chat_template = change(CHAT.read_text())
            return tokenizer

    tokenizer = load_tokenizer("model.tokenizer", chatting)
    with Changed(folder=chatting, chat=True, chats="continues") as server:
        client = Client("model", ScoredModelConfig(url=server.url))
        assert not find_dialect(client, NAME, tokenizer).continues


def test_a_text_that_the_template_changes_is_said_before_it_is_sent(opened, chatting):
    template = CHAT.read_text().replace("message['content']", "message['content'] | trim")
    Path(chatting, "chat_template.jinja").write_text(template)
    with Server(folder=chatting, chat=True, chats="continues") as server:
        model = opened(server, tokenizer=chatting)
        ids, asked = model.tokenizer()(" The boat")["input_ids"], len(server.seen)
        with pytest.raises(ServerError, match="tokens can't be sent"):
            model.load(DetectionConfig()).score([ids])
        assert len(server.seen) == asked


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "end wi",
        ),
        ("{{ 'a' * 10**10 }}", "needs more than 1 GiB"),
    ],
)
def test_a_template_without_an_end_is_said(
    opened, chatting, tmp_path, monkeypatch, template, words
):
    own = shutil.copytree(chatting, tmp_path / "own")
    (own / "chat_template.jinja").write_text(f"{template}{{# content #}}")
    if "for" in template:
        monkeypatch.setattr(chat_templates, "RENDER_SECONDS", 0.2)
    words = rf"model\.tokenizer: its chat template can't be used: .*{words}"
    server = Server(folder=chatting, chat=True, chats="continues")
    with server, pytest.raises(ConfigError, match=words):
        opened(server, tokenizer=str(own))


def test_a_server_that_neither_completes_nor_chats_is_said(opened):
    words = r"completions answers 404 .*It does not chat either: .*404.* Give a server with /comp"
    with Server(chat=True) as server, pytest.raises(ServerError, match=words):
        opened(server)


def test_the_probe_says_what_a_chat_can_do(tmp_path, chatting):
    with Server(folder=chatting, chat=True, chats="answers") as server:
        model = ScoredModelConfig(url=server.url, tokenizer=chatting)
        said = probe(ProbeStage(str(tmp_path / "runs"), model, NODES))
        of_loss_alone = probe(ProbeStage(str(tmp_path / "runs"), model, {"loss": NODES["loss"]}))
    assert "methods: none, by sampling only" in of_loss_alone
    assert "takes chats, and only answers" in said
    assert "methods: cdd, samia, by sampling only" in said


def test_what_is_stored_of_a_servers_form_tells_chats_from_completions():
    assert Dialect(ids=False).to_record() == {"ids": False, "names_ids": True}
    assert Dialect(names_ids=False, chat=True).to_record() == {
        "ids": True, "names_ids": False, "chat": True, "continues": False
    }  # fmt: skip

"""A server whose model is changed meanwhile: what it said before stays, the rest is no model's."""

import logging
import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest

from contamination.core.errors import ServerError, UserError
from contamination.detection.config import DetectionConfig, ProbeStage, ScoredModelConfig
from contamination.detection.models import open_model
from contamination.detection.models.base import Prompt
from contamination.detection.models.served.fingerprint import rms_difference
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.detection.tasks.probe import run as probe
from tests.detection.golden import examples
from tests.detection.model.served.conftest import FOLDER, NODES
from tests.detection.model.served.server import Server
from tests.rounding import FORWARD

BLIND = {"prompt": False, "shows": "nothing"}
"""A server that shows no log-probability, but takes a bias."""
SILENT = {**BLIND, "bias": False}
WRITES = {
    "cdd": {"_target_": "contamination.detection.methods.cdd.Cdd", "n": 3, "tokens": 8},
    "samia": {"_target_": "contamination.detection.methods.samia.Samia", "n": 2, "tokens": 8},
}


@pytest.fixture
def served(tmp_path):
    """`served(server)`: its model, opened anew, one request at a time."""

    def opened(server, **given):
        node = ScoredModelConfig(url=server.url, tokenizer=str(FOLDER), requests=1, **given)
        return open_model("model", node, str(tmp_path)).load(DetectionConfig())

    return opened


@pytest.fixture
def each_answer_checked(monkeypatch):
    monkeypatch.setattr("contamination.detection.models.served.served_model.CHECK_SECONDS", 0.0)


def texts(count, tokens, tokenizer):
    return [tokenizer(one["text"])["input_ids"][:tokens] for one in examples()[:count]]


def same(found, decoder, sequences):
    """Whether these are the golden model's own numbers."""
    pairs = zip(found, decoder.score(sequences), strict=True)
    return all(np.abs(a.logprob - b.logprob).max() < FORWARD for a, b in pairs)


@pytest.mark.parametrize("does", [{}, {"prompt": False}])
def test_a_tail_of_another_model_is_asked_again(served, decoder, tokenizer, caplog, does):
    """The run ends by an error before it has checked, and the first model is back after it."""
    sequences = texts(4, 9, tokenizer)
    with Server(**does, says_context=False, context=60) as server:
        model = served(server)
        server.changes_after, server.another = len(server.seen) + 2, 1.0
        with pytest.raises(UserError, match="too long"):
            model.score([*sequences, list(range(3, 70))])
        server.another = 0.0
        assert same(served(server).score(sequences), decoder, sequences)
    assert "stopped before it checked" in caplog.text


def test_a_tail_of_the_same_model_is_kept_but_for_its_ends(served, decoder, tokenizer, caplog):
    sequences = texts(5, 30, tokenizer)
    with Server(says_context=False, context=60) as server:
        model = served(server)
        with pytest.raises(UserError, match="too long"):
            model.score([*sequences, list(range(3, 70))])
        model, before = served(server), len(server.seen)
        assert same(model.score(sequences), decoder, sequences)
        assert len(server.seen) == before + 2
        model, before = served(server), len(server.seen)
        model.score(sequences)
        assert len(server.seen) == before
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_what_a_check_has_shown_is_kept(served, decoder, tokenizer, each_answer_checked):
    """The server is swapped after three answers, each checked; then it is itself again."""
    sequences = texts(6, 9, tokenizer)
    with Server() as server:
        model = served(server)
        server.changes_after, server.another = len(server.seen) + 6, 1.0
        words = r"it changes its answers: they differ by .* nats .* The 1 answers .* 3 remain in"
        with pytest.raises(ServerError, match=words) as error:
            model.score(sequences)
        assert "\n" not in str(error.value)
        server.another = 0.0
        model, before = served(server), len(server.seen)
        assert same(model.score(sequences), decoder, sequences)
        assert len(server.seen) == before + 2 * 3


def test_a_slow_drift_is_measured_from_the_first_answers(served, tokenizer):
    """By 0.04 nats a text, in one run and over several."""
    sequences = texts(3, 9, tokenizer)
    with Server() as server:
        model = served(server)
        model.score(sequences[:1])
        server.another = 0.04
        with pytest.raises(ServerError, match="it changes its answers"):
            model.score(sequences[1:2])
        again = served(server)
        assert again.answers.folder != model.answers.folder


def test_a_noisy_server_is_one_model(served, tokenizer):
    """By as much as bfloat16; another model is still another one."""
    sequences = texts(3, 9, tokenizer)
    with Server(noise=0.05) as server:
        folders = set()
        for _ in range(3):
            model = served(server)
            model.score(sequences)
            folders.add(model.answers.folder)
        assert len(folders) == 1
        server.another = 1.0
        assert served(server).answers.folder not in folders


@pytest.mark.parametrize(
    ("does", "decimals"),
    [
        ({"prompt": False, "shows": "biased"}, 2),
        ({"prompt": False, "shows": "biased"}, 4),
        ({"prompt": False, "shows": "biased", "most": 1}, 2),
        ({"prompt": False}, 2),
        ({}, 2),
    ],
)
def test_a_server_that_rounds_is_known_again_and_another_model_is_not(served, does, decimals):
    """Its answers are off by 32 times its rounding, the model is not."""
    with Server(**does, decimals=decimals) as server:
        first = served(server).answers.folder
        server.noise = 1e-6
        assert served(server).answers.folder == first
        server.noise, server.another = 0.0, 0.05
        assert served(server).answers.folder != first


@pytest.mark.parametrize("does", [BLIND, SILENT])
def test_a_server_that_only_writes_is_known_by_what_it_writes(served, tokenizer, does):
    prompts = [Prompt(ids, 5) for ids in texts(2, 20, tokenizer)]
    with Server(**does) as server:
        model = served(server)
        model.generate(prompts[:1], 0)
        server.another = 1.0
        with pytest.raises(ServerError, match="it changes its answers: they differ completely"):
            model.generate(prompts[1:], 0)
        assert served(server).answers.folder != model.answers.folder
        server.another = 0.0
        assert served(server).answers.folder == model.answers.folder


def test_where_nothing_tells_the_model_it_is_said(served, tokenizer, tmp_path):
    with Server(**SILENT, greedy=False) as server:
        model = served(server)
        assert not model.fingerprint.is_distinctive
        model.generate([Prompt(texts(1, 20, tokenizer)[0], 5)], 1.0)
        node = ScoredModelConfig(url=server.url, tokenizer=str(FOLDER))
        table = probe(ProbeStage(str(tmp_path), node, NODES))
    assert "not recognised: no repeated answer shows whether the model changes" in table


@pytest.mark.slow
def test_a_killed_run_of_continuations_is_gone_on_with_as_if_unbroken(stage, tmp_path):
    """Killed outright, twice: asked again is what was under way, and a tail's ends."""
    with Server() as server:
        own = replace(stage(server.url, requests=2), method=WRITES)
        unbroken = open_scores(run(replace(own, runs=str(tmp_path / "unbroken"))).path).table
        whole, probes = len(server.seen), 7
        server.slow = 0.004
        for _ in range(2):
            child, before = os.fork(), len(server.seen)
            if child == 0:
                try:
                    run(own)
                finally:
                    os._exit(0)
            while len(server.seen) < before + probes + 10:
                assert os.waitpid(child, os.WNOHANG) == (0, 0)
                time.sleep(0.001)
            os.kill(child, signal.SIGKILL)
            assert os.waitpid(child, 0)[1] == signal.SIGKILL
        server.slow = 0.0
        found = open_scores(run(own).path).table
        # 10 answers came before each kill; at most those under way and the last few are asked again
        assert len(server.seen) <= 2 * whole + 2 * probes + 2 * (2 + 4)
    assert found["score"].tolist() == unbroken["score"].tolist()


@pytest.mark.parametrize(
    ("second", "difference"),
    [
        ({0: [-1.0, -2.0], 3: [-1.5], 5: []}, 0.0),
        ({0: [-1.0, -2.3], 3: [-1.1]}, np.sqrt((0.3**2 + 0.4**2) / 3)),
        ({0: [-1.0], 3: [-1.9], 7: [-9.0]}, np.sqrt(0.4**2 / 2)),
        ({0: [-1.0, -2.0]}, np.inf),
        ({0: [-1.0, -2.0], 3: [-1.5], 5: [-1.0]}, np.inf),
    ],
)
def test_logprobs_are_compared_at_the_positions_of_the_first(second, difference):
    first = {0: [-1.0, -2.0], 3: [-1.5], 5: []}
    assert rms_difference(first, second) == pytest.approx(difference)

"""Texts scored behind a server as in this process, and what is asked for it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from contamination.detection.config import PrefixConfig, ProbeStage, ScoredModelConfig
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.detection.tasks.probe import format_request_plan as dry_run
from contamination.detection.tasks.probe import run as probe
from tests.detection.model.served.conftest import FOLDER, NODES
from tests.detection.model.served.server import Server
from tests.rounding import FORWARD

PROBES = 15  # the dialect, text and ids, whether it works (3), its answer, and that beside 7 others
SERVABLE = ("lowercase", "loss", "max_k", "min_k", "pac", "polarized_distance", "zlib")


def table(stage):
    return open_scores(run(stage).path).table


@pytest.mark.parametrize("does", [{}, {"ids": False, "names_ids": False}])
def test_scores_are_those_of_the_model_in_its_files(stage, does):
    """Also at a server that takes text, and adds BOS by itself."""
    with Server(**does) as server:
        served = table(stage(server.url, SERVABLE))
        assert {type(body["prompt"]) for body in server.seen[-9:]} == {list if not does else str}
    local = table(stage(None, SERVABLE))
    np.testing.assert_allclose(served["score"], local["score"], rtol=1e-5, atol=FORWARD)


def test_recall_reads_the_prefix_with_each_text(stage, prefix_file):
    prefix = PrefixConfig(str(prefix_file))
    with Server() as server:
        served = table(replace(stage(server.url, ("recall",)), prefix=prefix))
    local = table(replace(stage(None, ("recall",)), prefix=prefix))
    np.testing.assert_allclose(served["score"], local["score"], rtol=1e-5, atol=FORWARD)


def test_a_restarted_server_is_known_and_another_model_is_not(stage):
    with Server() as server:
        run(stage(server.url))
    with Server(noise=1e-6) as server:
        run(stage(server.url))
        assert len(server.seen) == PROBES
    with Server(another=0.1) as server:
        run(stage(server.url))
        assert len(server.seen) == PROBES + 6 + 1


def test_the_probe_says_what_a_server_can_do(tmp_path):
    def said(**does):
        with Server(**does) as server:
            model = ScoredModelConfig(url=server.url, tokenizer=str(FOLDER))
            return probe(ProbeStage(str(tmp_path / "runs"), model, NODES)).splitlines()

    lines = [" ".join(line.split()) for line in said()]
    assert "takes token ids; context: 512 tokens" in lines[0]
    assert lines[2:10] == [
        "top-n of the prompt 20",
        "prompt log-probabilities yes its rounding 1 per text",
        "prompt_logprobs no",
        "forced token, raw yes its rounding 1 per token",
        "biased, closed form no",
        "top-n, then bisection yes 0.001 18.6 per token",
        "argmax only, bisection yes 18.6 per token shows only log(p_top / p), which no method "
        "reads",
        "sampling only yes 1 per token n samples estimate p to √(p (1 − p) / n): for methods that "
        "read generated text",
    ]
    assert lines[10].startswith(
        "recognised by 47 log-probabilities: those of another model differ by more than"
    )
    assert "methods: gap_k" not in lines[11]
    assert lines[11].endswith("by prompt log-probabilities")
    assert any(line.startswith("min_k_plus_plus needs mean, std of the target") for line in lines)
    lines = said(prompt=False, shows="biased", decimals=4)
    (biased,) = [line for line in lines if line.startswith("biased")]
    assert biased.split()[3:6] == ["yes", "0.0016", "1.1"]


@pytest.mark.parametrize(
    ("does", "methods", "checked"),
    [({}, ("loss", "lowercase", "recall"), 3), ({"prompt": False}, ("loss",), 8)],
)
def test_a_dry_run_counts_what_is_then_asked(stage, tmp_path, prefix_file, does, methods, checked):
    (tmp_path / "few.jsonl").write_text('{"text": "The boat was late."}\n{"text": "It rained."}\n')
    with Server(**does) as server:
        own = stage(server.url, methods, texts="few.jsonl")
        own = replace(own, prefix=PrefixConfig(str(prefix_file)))
        said = dry_run(own).splitlines()
        *_, requests, tokens = said[-1].split()
        probes, read = len(server.seen), server.tokens
        run(own)
        assert len(server.seen) == 2 * probes + checked + int(requests)
        assert int(tokens) < server.tokens - read
        assert {line.split()[0].split("?")[0] for line in said[1:]} >= {"target/original", "all"}
        assert dry_run(own).splitlines()[-1].split() == ["all", "0", "0"]


def test_a_dry_run_says_some_where_the_number_is_no_bound(stage, tmp_path):
    """Tokens that share their name take more requests each."""
    text = (
        "The na\u00efve \u65e5\u672c said that the boat was late, and that it rained all the day."
    )
    (tmp_path / "few.jsonl").write_text(json.dumps({"text": text}))
    with Server(prompt=False, shows="biased", names_ids=False, most=5) as server:
        own = stage(server.url, ("loss",), texts="few.jsonl")
        before = len(server.seen)
        header, *_, last = dry_run(own).splitlines()
        probes = len(server.seen) - before
        run(own)
        asked = len(server.seen) - before - 2 * probes - 8  # and a check
    assert header.split()[:3] == ["pass", "requests,", "about"]
    assert int(last.split()[1]) == pytest.approx(asked, rel=0.06)

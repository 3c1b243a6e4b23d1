"""What a served model writes: SaMIA and CDD by a server, and what is asked for them."""

from dataclasses import replace

import pytest

from contamination.detection.models.base import Prompt
from contamination.detection.requirements import open_models
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from tests.detection.golden import examples
from tests.detection.model.served.server import Server

NODES = {
    "cdd": {"_target_": "contamination.detection.methods.cdd.Cdd", "n": 3, "tokens": 8},
    "samia": {"_target_": "contamination.detection.methods.samia.Samia", "n": 2, "tokens": 8},
}


@pytest.mark.parametrize("server", [
    {}, {"ids": False, "names_ids": False},
    pytest.param({"names_ids": False}, marks=pytest.mark.slow),
    pytest.param({"prompt": False, "shows": "nothing", "bias": False}, marks=pytest.mark.slow),
])  # fmt: skip
def test_any_server_that_writes_is_scored_by_what_it_writes(stage, server):
    with Server(**server) as served:
        asked = replace(stage(served.url), method=NODES)
        table = open_scores(run(asked).path).table
        assert len(table) == 12
        assert set(table["method"]) == {"cdd", "samia"}
        written = [body for body in served.seen if body["max_tokens"] == 8]
        assert len(written) == 6 * (1 + 3 + 2)  # nothing reads the text itself
        assert len({body["seed"] for body in written if body["temperature"]}) == 6 * 3
        before = len(served.seen)
        run(replace(asked, method={"samia": {**NODES["samia"], "n": 1}}))
        assert not [body for body in served.seen[before:] if body["max_tokens"] == 8]


def test_a_server_writes_what_the_model_in_its_files_writes(stage, decoder, tokenizer):
    ids = tokenizer(examples()[0]["text"])["input_ids"]
    prompts = [Prompt(ids[:9], 12), Prompt(ids[:20], 5)]
    for server in ({}, {"ids": False, "names_ids": False}):
        with Server(**server) as served:
            model = open_models(stage(served.url), ())["target"].load(None)
            assert model.generate(prompts, 0) == decoder.generate(prompts, 0)


def test_the_first_text_of_a_text_server_is_the_words_before_the_cut(stage):
    """Where the server takes text the prompt is the first part as it stands."""
    with Server(ids=False, names_ids=False) as served:
        run(replace(stage(served.url), method={"samia": NODES["samia"]}))
        asked = {body["prompt"] for body in served.seen if body["max_tokens"] == 8}
    assert all(any(one["text"].startswith(prompt) for one in examples()) for prompt in asked)

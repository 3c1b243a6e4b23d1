"""A part of a text: what is scored of it, by which methods, and what is refused."""

import json

import numpy as np
import pytest
from transformers import AutoTokenizer

from contamination.core.errors import ConfigError, DataError
from contamination.data.config import ExamplesConfig
from contamination.detection.config import DetectionConfig, DetectionStage, ScoredModelConfig
from contamination.detection.methods._shared import mean_logprob
from contamination.detection.methods.infilling import Infilling
from contamination.detection.methods.min_k import MinK
from contamination.detection.passes import Example, Pass, TokenStats
from contamination.detection.run import run
from contamination.detection.scope import ScopedPass, count_tokens_before
from contamination.detection.scores import open_scores
from contamination.detection.views import VIEWS
from tests.detection.conftest import MEMORISED, UNSEEN

CUT = len("The heron waits in the reeds")
ROWS = [
    {"id": "m", "prompt": MEMORISED[:CUT], "output": MEMORISED[CUT:]},
    {"id": "u", "text": UNSEEN, "output_start": 17.0},
]
METHODS = {
    "loss": {"_target_": "contamination.detection.methods.loss.Loss"},
    "zlib": {"_target_": "contamination.detection.methods.zlib.Zlib"},
    "min_k": {"_target_": "contamination.detection.methods.min_k.MinK"},
    "infilling": {
        "_target_": "contamination.detection.methods.infilling.Infilling",
        "m": [0, 2, "all"],
    },
}


@pytest.fixture
def scores(tmp_path, toy_folders):
    """The scores of rows, by method, variant and id."""

    def make(scope, rows=ROWS, methods=METHODS, **settings):
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        stage = DetectionStage(
            runs=str(tmp_path / "runs"),
            examples=ExamplesConfig(str(tmp_path / "rows.jsonl")),
            model=ScoredModelConfig(str(toy_folders["target"])),
            method=methods,
            detection=DetectionConfig(device="cpu", scope=scope, min_scored_tokens=1, **settings),
        )
        table = open_scores(run(stage).path).table
        return table.set_index(["method", "variant", "example_id"])["score"]

    return make


def test_an_input_scores_as_the_text_that_it_is(scores):
    whole = scores(
        "whole", [{"id": "m", "text": MEMORISED[:CUT]}, {"id": "u", "text": UNSEEN[:17]}]
    )
    part = scores("input")
    assert (part - whole).abs().max() < 1e-5
    assert len(part) == 12


def test_an_output_scores_by_its_own_tokens(scores, toy_folders, decoder_of):
    part = scores("output")
    tokenizer, logprobs = AutoTokenizer.from_pretrained(toy_folders["target"]), decoder_of("target")
    ids = tokenizer(MEMORISED)["input_ids"]
    own = logprobs(ids)[len(tokenizer(MEMORISED[:CUT])["input_ids"]) - 1 :]
    assert part["loss", "", "m"] == pytest.approx(own.mean(), abs=1e-6)
    lowest = np.sort(own)[: int(0.2 * len(own))].mean()
    assert part["min_k", "k=0.2", "m"] == pytest.approx(lowest, abs=1e-6)


@pytest.fixture
def decoder_of(toy_folders):
    """The log-likelihood of each token but the first, by one plain forward in float64."""
    import torch
    from transformers import AutoModelForCausalLM

    def of(role):
        net = AutoModelForCausalLM.from_pretrained(toy_folders[role]).double()

        def logprobs(ids):
            with torch.no_grad():
                logits = net(torch.tensor([ids])).logits[0, :-1]
            picked = logits.log_softmax(-1)[range(len(ids) - 1), ids[1:]]
            return picked.numpy()

        return logprobs

    return of


def test_the_infilling_score_of_an_output_sees_no_input_but_as_context():
    rng = np.random.default_rng(0)
    text = {"logprob": -rng.random(9), "mean": -rng.random(9), "std": 0.5 + rng.random(9)}
    copies = [TokenStats(**text, top_logprob=text["logprob"] / 2)]
    for j in (1, 2):
        copies.append(TokenStats(**{n: -rng.random(9 - j) for n in ("logprob", "mean")},
                                 std=0.5 + rng.random(9 - j)))  # fmt: skip
    method = Infilling(m=2)
    (wanted,) = method.passes
    whole = method.ratio_by_token(Example("a", "", {wanted: tuple(copies)}))
    part = ScopedPass({"a": tuple(copies)}, VIEWS["infill"], "output", {"a": ("a", 5)})
    assert np.allclose(method.ratio_by_token(Example("a", "", {wanted: part["a"]})), whole[4:])


def test_a_token_with_a_character_of_the_output_is_the_outputs():
    offsets = [(0, 0), (0, 3), (3, 4), (4, 8)]
    assert [count_tokens_before(offsets, place) for place in (0, 3, 5, 8, 9)] == [1, 2, 3, 4, 4]


def test_a_part_needs_an_output(scores):
    with pytest.raises(DataError, match="'u' is not known.*`prompt` and `output`"):
        scores("output", [ROWS[0], {"id": "u", "text": UNSEEN}])
    twice = {"id": "w", "text": MEMORISED, "output_start": 3}
    with pytest.raises(DataError, match="'w' occurs twice"):
        scores("input", [ROWS[0], twice])
    with pytest.raises(DataError, match="no token of the output of the text 'u' is scored"):
        scores("output", [{"id": "u", "prompt": UNSEEN, "output": ""}])
    for place in (-1, 1.5, len(UNSEEN) + 1, "x", True, float("inf"), 10**300):
        with pytest.raises(DataError, match="output_start is .*give a whole number from 0"):
            scores("output", [{"id": "u", "text": UNSEEN, "output_start": place}])
    with pytest.raises(DataError, match="number too large .'output_start' is beyond"):
        scores("output", [{"id": "u", "text": UNSEEN, "output_start": 10**400}])


@pytest.mark.parametrize("view", ["original", "infill", "prefix"])
@pytest.mark.parametrize("tokens", [0, 1])
def test_an_input_without_a_scored_token_is_refused(view, tokens):
    """Of no token, where the output begins at once, or within the text's first token; of one."""
    copies = tuple(TokenStats(logprob=np.zeros(6 - j, np.float32)) for j in range(3))
    part = ScopedPass({"a": copies}, VIEWS[view], "input", {"a": ("a", tokens)})
    with pytest.raises(DataError, match=f"no token of the input .* its input has {tokens} tokens"):
        part["a"]


def test_a_text_that_is_all_output_has_no_input_to_score(scores):
    rows = [ROWS[0], {"id": "u", "text": UNSEEN, "output_start": 0}]
    with pytest.raises(DataError, match="no token of the input of the text 'u' is scored"):
        scores("input", rows)


def test_a_method_of_other_words_needs_whole_texts(scores):
    lowercase = {"lowercase": {"_target_": "contamination.detection.methods.lowercase.Lowercase"}}
    with pytest.raises(ConfigError, match="lowercase needs detection.scope=whole"):
        scores("output", methods=lowercase)
    writes = {"cdd": {"_target_": "contamination.detection.methods.cdd.Cdd"}}
    with pytest.raises(ConfigError, match="cdd needs detection.scope=whole"):
        scores("input", methods=writes)


def test_the_scopes_share_one_pass_and_no_scores(scores, tmp_path):
    found = [scores(scope) for scope in ("whole", "output", "input")]
    assert len({tuple(one) for one in found}) == 3
    assert len([*(tmp_path / "runs" / "scores").iterdir()]) == 3
    kinds = {path.name.rsplit("-", 1)[0] for path in (tmp_path / "runs" / "passes").iterdir()}
    assert len([*(tmp_path / "runs" / "passes").iterdir()]) == 2, kinds  # the text's, and infill's


def test_part_of_a_mapping():
    stats = TokenStats(logprob=np.arange(6, dtype=np.float32))
    part = ScopedPass({"a": (stats,)}, VIEWS["original"], "input", {"a": ("a", 3)})
    assert (len(part), [*part]) == (1, ["a"])
    assert mean_logprob(part["a"][0]) == 0.5
    assert MinK().score(Example("a", "", {Pass(): part["a"]})) == 0

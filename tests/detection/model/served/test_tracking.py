"""Log-probabilities tracked through a server's likeliest tokens, against the model's own."""

import math

import numpy as np
import pytest

from contamination.core.errors import ServerError
from contamination.detection.config import DetectionConfig, ScoredModelConfig
from contamination.detection.models import open_model
from contamination.detection.models.served.logprob_strategies import STRATEGIES
from contamination.detection.models.served.logprob_tracking import (
    MAX_ERROR_FACTOR,
    bisect_bias,
    logprob_by_closed_form,
    logprob_from_other_token,
    raising_bias,
    remove_bias,
    rounding_error,
)
from contamination.detection.models.served.responses import TokenNames
from contamination.detection.passes import LOWEST_LOGPROB
from tests.detection.golden import examples
from tests.detection.model.served.conftest import FOLDER
from tests.detection.model.served.server import Server
from tests.rounding import FORWARD

TOLERANCE = 1e-3


def distribution(*logits):
    logits = np.array(logits, float)
    return logits - np.logaddexp.reduce(logits)


def biased_server(logprobs, n):
    """What shows the n likeliest tokens under a bias on token 0, and the biases that were asked."""
    asked = []

    def ask(bias):
        asked.append(bias)
        shown = logprobs + bias * (np.arange(len(logprobs)) == 0)
        shown = shown - np.logaddexp.reduce(shown)
        best = np.argsort(-shown, kind="stable")[:n]
        return {str(i): float(np.float32(shown[i])) for i in best}

    return ask, asked


@pytest.mark.parametrize("n", [1, 5, 20])
@pytest.mark.parametrize("logit", [-30.0, -12.0, -5.0, -1.0, 0.0, 3.0, 20.0])
def test_closed_form(logit, n):
    others = distribution(*np.linspace(0, -8, 200))
    logprobs = distribution(logit, *others)
    ask, asked = biased_server(logprobs, n)
    found = logprob_by_closed_form(ask, "0")
    assert found == pytest.approx(logprobs[0], abs=2 * MAX_ERROR_FACTOR * 2.0**-23)
    assert len(asked) <= 6


def test_equation():
    """Ye et al.'s example: a true −11.31, which their eq. 16 makes −8.69 at a bias of 20."""
    p = math.exp(-11.31)
    biased = p * math.exp(20) / (1 - p + p * math.exp(20))
    assert remove_bias(math.log(biased), 20) == pytest.approx(-11.31, abs=1e-9)
    assert remove_bias(0.0, 3) == remove_bias(1e-7, 3) == 0.0  # rounded to certainty, and beyond it


def test_a_token_that_no_bias_shows_has_no_number():
    assert logprob_by_closed_form(biased_server(distribution(-300, 0, 0), 1)[0], "0") is None
    assert bisect_bias(lambda bias: bias > 300, TOLERANCE) is None


@pytest.mark.parametrize("gap", [0.0, 1e-4, 7.123, 99.9])
def test_bisection(gap):
    asked = []
    found = bisect_bias(lambda bias: asked.append(bias) or bias >= gap, TOLERANCE)  # a tie is won
    assert abs(found - gap) <= TOLERANCE
    assert len(asked) + 1 <= math.log2(100 / TOLERANCE) + 2


def tracked(tmp_path, ids, **does):
    """Of one text's tokens: log p by the way that the probe finds, its name, queries a token."""
    with Server(prompt=False, **does) as server:
        node = ScoredModelConfig(url=server.url, tokenizer=str(FOLDER), tolerance=TOLERANCE)
        model = open_model("model", node, str(tmp_path))
        loaded, before = model.load(DetectionConfig()), len(server.seen)
        (stats,) = loaded.score([ids])
        checks = len(server.seen)
        loaded._check_same_model()
        queries = (checks - before - (len(server.seen) - checks)) / (len(ids) - 1)
    return stats.logprob, model.probe.strategy, queries


@pytest.mark.parametrize("names_ids", [True, False])
@pytest.mark.parametrize(
    ("shows", "way", "error", "most"),
    [
        ("raw", "forced token, raw", FORWARD, 1.0),
        ("biased", "biased, closed form", 1e-4, 1.1),
        ("list", "top-n, then bisection", TOLERANCE + FORWARD, math.log2(100 / TOLERANCE) + 2),
    ],
)
def test_tracked_is_exact(tmp_path, decoder, tokenizer, shows, way, error, most, names_ids):
    ids = tokenizer(examples()[0]["text"])["input_ids"][:14]
    (exact,) = decoder.score([ids])
    found, by, queries = tracked(tmp_path, ids, shows=shows, names_ids=names_ids)
    assert by == way
    assert np.abs(found - exact.logprob).max() <= error
    assert queries <= most


def test_the_argmax_alone_gives_nothing(tmp_path):
    with Server(prompt=False, shows="nothing") as server:
        node = ScoredModelConfig(url=server.url, tokenizer=str(FOLDER), tolerance=TOLERANCE)
        model = open_model("model", node, str(tmp_path))
    assert model.probe.strategy == "argmax only, bisection"
    assert model.provides == {"continuations"}


def test_sampling_alone_gives_nothing(tmp_path):
    with Server(prompt=False, shows="nothing", bias=False) as server:
        node = ScoredModelConfig(url=server.url, tokenizer=str(FOLDER))
        model = open_model("model", node, str(tmp_path))
    assert model.probe.strategy == "sampling only"
    assert any(model.fingerprint.continuations)
    assert [*STRATEGIES][-1] == model.probe.strategy


def test_a_way_knows_to_how_many_decimals_a_server_rounds():
    assert rounding_error([-0.1234, -3.5]) == pytest.approx(5e-5)
    assert rounding_error([-1.0, -12.0]) == 0.5
    assert rounding_error([-0.12345678901]) < 1e-9


def test_a_token_of_probability_0_is_the_least_float32(tmp_path, tokenizer):
    ids = tokenizer(examples()[0]["text"])["input_ids"][:4]
    for shows in ("raw", "biased", "list"):
        with Server(prompt=False, shows=shows) as server:
            node = ScoredModelConfig(url=server.url, tokenizer=str(FOLDER))
            model = open_model("model", node, str(tmp_path / shows)).load(DetectionConfig())
            server.impossible = ids[-1]
            way = model.strategy
            assert way.answer_columns(ids) == {"logprob": [pytest.approx(LOWEST_LOGPROB)]}


SHARED = "The na\u00efve caf\u00e9 \u2014 \u65e5\u672c."
"""Of its tokens most are parts of a character, and written as U+FFFD, as 129 of the model's are."""


@pytest.mark.parametrize("most", [20, 1])
def test_tokens_that_share_their_name_are_told_by_another(tmp_path, decoder, tokenizer, most):
    ids = tokenizer(SHARED)["input_ids"][:8]
    (exact,) = decoder.score([ids])
    found, by, _ = tracked(tmp_path, ids, shows="biased", names_ids=False, most=most)
    assert by == "biased, closed form"
    assert np.abs(found - exact.logprob).max() <= 1e-4


def test_a_bisection_needs_one_token_whose_name_is_its_own(tmp_path, decoder, tokenizer):
    """Between two letters it does; within a character all that are likely share their name."""
    names = TokenNames(tokenizer, by_id=False)
    first = tokenizer("The")["input_ids"]
    ids = [*first, next(i for i in range(200) if not names.is_unique(i))]
    (exact,) = decoder.score([ids])
    found, *_ = tracked(tmp_path, ids, shows="list", names_ids=False)
    assert found[-1] == pytest.approx(exact.logprob[-1], abs=TOLERANCE + FORWARD)
    with pytest.raises(
        ServerError, match=r"of the text .* the token '\ufffd' \(.* can't be identified"
    ):
        tracked(tmp_path, tokenizer(SHARED)["input_ids"][:10], shows="list", names_ids=False)


@pytest.mark.parametrize("logprob", [0.0, -0.01, -1.0, -9.0, -30.0, -80.0])
@pytest.mark.parametrize("plain", [-0.02, -3.0, -12.0])
def test_by_another(plain, logprob):
    """The equation, of a server that rounds to float32."""
    lift, p = raising_bias(plain), math.exp(logprob)

    def ask(bias):
        rest = max(0.0, 1 - math.exp(plain) - p) + p * math.exp(bias)
        return float(np.float32(plain + lift - math.log(math.exp(plain + lift) + rest)))

    if math.exp(plain) + p <= 1:
        assert logprob_from_other_token(ask, plain, 2e-6) == pytest.approx(logprob, abs=1e-4)

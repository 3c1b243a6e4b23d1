"""One contract over every method of conf/method."""

import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest
import yaml

from contamination.data.texts import Text
from contamination.detection.config import METHODS_FOLDER
from contamination.detection.methods.registry import build_methods
from contamination.detection.passes import (
    Continuation,
    Example,
    Pass,
    TextStats,
    UndeclaredPassError,
)
from tests.detection import golden
from tests.detection.conftest import MEMORISED, UNSEEN
from tests.rounding import EPSILON
from tests.scoring import make_table, score_text

NODES = {
    path.stem: yaml.safe_load(path.read_text()) for path in sorted(METHODS_FOLDER.glob("*.yaml"))
}
NODES["dc_pdd"]["dc_pdd"]["corpus"] = str(METHODS_FOLDER.parents[1] / "README.md")
WRITTEN = Continuation.__annotations__ | TextStats.__annotations__
TEXTS = [MEMORISED, UNSEEN, "Short.", " ".join([UNSEEN, MEMORISED]), MEMORISED[:30]]

pytestmark = pytest.mark.parametrize("name", NODES)


def text(content, example_id="x"):
    return Text(example_id, content, hashlib.sha256(content.encode()).hexdigest())


def method_of(name):
    """Where the model writes, a few continuations do: one after another they take long."""
    method = next(iter(build_methods(NODES[name]).values()))
    return replace(method, n=4) if method.generates else method


def scored(collect, name, texts, **settings):
    """By text the score and what its likelihoods may round by, all in one run."""
    method, rows = method_of(name), [text(t, str(i)) for i, t in enumerate(texts)]
    passes = collect([method], rows, **settings)
    rounds = rounding(passes)
    return {row.text: (score_text(method, row, passes), rounds) for row in rows}


def scores(collect, name, texts, **settings):
    """Scores by text, all in one run."""
    return {t: score for t, (score, _) in scored(collect, name, texts, **settings).items()}


def rounding(passes):
    """Some units of the largest log-likelihood: a small one is a rest of as large logits."""
    stats = [one for texts in passes.values() for copies in texts.values() for one in copies]
    read = [one for one in stats if "logprob" in vars(one)]
    return 8 * EPSILON * max((float(np.abs(one.logprob).max()) for one in read), default=0.0)


def test_the_file_holds_the_method_of_its_name(name):
    assert list(NODES[name]) == [name]
    assert method_of(name).passes


def test_a_finite_number_for_every_text(collect, name):
    """The shortest has one token that is scored."""
    found = scores(collect, name, [*TEXTS, "a"])
    assert found.keys() == {*TEXTS, "a"}
    for content, score in found.items():
        kind = type(score).__name__
        assert isinstance(score, float), f"a {kind} for {content!r}: let score return float(…)"
        assert math.isfinite(score), f"{score} for {content!r}: give every text a number, see flag"


def test_the_same_again(collect, name):
    assert scores(collect, name, TEXTS) == scores(collect, name, TEXTS)


def test_order_batch_and_padding_change_nothing(collect, name):
    expected = scored(collect, name, TEXTS)
    for other in (
        scores(collect, name, TEXTS[::-1]),
        scores(collect, name, TEXTS, batch_tokens=1),
        scores(collect, name, TEXTS, batch_tokens=64),
        {t: s for one in TEXTS for t, s in scores(collect, name, [one]).items()},
    ):
        for content, (score, rounds) in expected.items():
            assert other[content] == pytest.approx(score, rel=1e-5, abs=rounds)


def test_higher_on_a_memorised_text(collect, name):
    found = scores(collect, name, [MEMORISED, UNSEEN])
    assert found[MEMORISED] > found[UNSEEN], "members must score higher: change the sign"


def test_reads_only_the_passes_that_it_declares(collect, name):
    method, row = method_of(name), text(UNSEEN)
    passes = collect([method], [row])
    score_text(method, row, passes)
    with pytest.raises(UndeclaredPassError, match="target/never"):
        Example("x", row.text, {}).stats(Pass("target", "never"))
    with pytest.raises(UndeclaredPassError):
        method.score(Example("x", row.text, {}))


def test_reads_only_the_numbers_that_it_declares(collect, name):
    """A model that gives no more than these serves it: the same score."""
    method, row = method_of(name), text(UNSEEN)
    passes = collect([method], [row])
    bare = {
        wanted: {
            sha256: tuple(
                type(one)(
                    **{n: v for n, v in vars(one).items() if n in {*method.numbers, *WRITTEN}}
                )
                for one in copies
            )
            for sha256, copies in stored.items()
        }
        for wanted, stored in passes.items()
    }
    assert score_text(method, row, bare) == score_text(method, row, passes)


def test_one_row_an_example_in_the_table(collect, name):
    methods, rows = build_methods(NODES[name]), golden.texts()[:3]
    table = make_table(methods, rows, collect(methods.values(), rows, long_texts="truncate"), -1, 1)
    assert sorted(table["example_id"]) == sorted(["0", "1", "2"] * len(methods))
    assert set(table["method"]) == {name}

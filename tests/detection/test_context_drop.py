"""CoDeC: which texts stand before a text, and what its drop is."""

from dataclasses import replace

import pytest

from contamination.core.errors import ConfigError, DataError
from contamination.core.models import load_model
from contamination.data.examples import make_text
from contamination.detection.config import DetectionConfig
from contamination.detection.forward.prefix import Shots
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.tasks.context_drop import context_drops, draw_contexts
from tests.detection import naive
from tests.detection.conftest import MEMORISED, UNSEEN

STRINGS = [MEMORISED, UNSEEN, "Rain falls on the road.", "A pot of green tea.", "A blue sail."]
TEXTS = [make_text(str(n), text, n < 1, "a") for n, text in enumerate(STRINGS)]


@pytest.fixture(scope="module")
def model(toy_models):
    return LoadedModel(toy_models["target"], DetectionConfig(device="cpu"))


def test_the_drop_is_the_loss_that_the_context_adds(model, toy_folders, tokenizer):
    double = load_model("model.path", str(toy_folders["target"])).double()
    found = context_drops(TEXTS, model, shots=2, seed=3).texts.set_index("example_id")
    for text, context in zip(TEXTS, draw_contexts(TEXTS, 2, 3), strict=True):
        ids = tokenizer(text.text)["input_ids"]
        prefix = Shots(tokenizer, context).ids[2]
        alone = naive.mean(naive.logprobs(naive.token_rows(double, ids)))
        body = ids[len(Shots(tokenizer, ()).ids[0]) :]
        rows = naive.token_rows(double, prefix + body)[len(prefix) - 1 :]
        expected = alone - naive.mean(naive.logprobs(rows))
        assert found.loc[text.example_id, "drop"] == pytest.approx(expected, abs=1e-5)
        assert found.loc[text.example_id, "context"] == 2


def test_contexts_are_others_of_the_set_whatever_the_order():
    other_set = replace(TEXTS[0], example_id="x", benchmark="b")
    mixed = [*TEXTS, other_set, make_text("y", "Another set's text.", None, "b")]
    drawn = dict(zip([t.example_id for t in mixed], draw_contexts(mixed, 3, 0), strict=True))
    turned = mixed[::-1]
    assert drawn == dict(
        zip([t.example_id for t in turned], draw_contexts(turned, 3, 0), strict=True)
    )
    for text in TEXTS:
        assert len({*drawn[text.example_id]} - {text.text}) == 3
        assert {*drawn[text.example_id]} <= {*STRINGS}
    assert drawn["x"] == ["Another set's text."]
    assert draw_contexts(mixed, 3, 1) != draw_contexts(mixed, 3, 0)


def test_the_share_is_of_texts_with_a_drop(model):
    drops = context_drops(TEXTS, model, shots=1)
    (row,) = drops.shares().to_dict("records")
    assert row == {"benchmark": "a", "share": (drops.texts["drop"] > 0).mean(), "texts": 5}
    assert {*drops.shares(["benchmark", "label"])["label"]} == {True, False}


def test_what_is_refused(model):
    with pytest.raises(ConfigError, match="shots is 0: give 1 or more"):
        context_drops(TEXTS, model, shots=0)
    with pytest.raises(DataError, match="the set 'a' has only the text 0: no other text"):
        context_drops([TEXTS[0], TEXTS[0]], model)

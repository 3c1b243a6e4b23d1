"""CoDeC: which texts stand before a text, and what its drop is."""

import json
import logging
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.core.errors import ConfigError, DataError
from contamination.core.models import load_model
from contamination.data.config import ExamplesConfig
from contamination.data.examples import make_text
from contamination.detection.config import DetectionConfig, ScoredModelConfig
from contamination.detection.forward.prefix import Shots
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.tasks.config import CodecConfig, CodecStage
from contamination.detection.tasks.context_drop import (
    ContextDrops,
    context_drops,
    draw_contexts,
    run,
)
from tests.detection import naive
from tests.detection.conftest import MEMORISED, UNSEEN

STRINGS = [MEMORISED, UNSEEN, "Rain falls on the road.", "A pot of green tea.", "A blue sail."]
TEXTS = [make_text(str(n), text, n < 1, "a") for n, text in enumerate(STRINGS)]


@pytest.fixture(scope="module")
def model(toy_models):
    return LoadedModel(toy_models["target"], DetectionConfig(device="cpu"))


@pytest.mark.parametrize("skip", [0, 3])
def test_the_drop_is_the_loss_that_the_context_adds(model, toy_folders, tokenizer, skip):
    double = load_model("model.path", str(toy_folders["target"])).double()
    found = context_drops(TEXTS, model, 2, skip, seed=3).texts.set_index("example_id")
    for text, context in zip(TEXTS, draw_contexts(TEXTS, 2, 3), strict=True):
        ids = tokenizer(text.text)["input_ids"]
        prefix = Shots(tokenizer, context).ids[2]
        alone = naive.mean(naive.logprobs(naive.token_rows(double, ids))[skip:])
        body = ids[len(Shots(tokenizer, ()).ids[0]) :]
        rows = naive.token_rows(double, prefix + body)[len(prefix) - 1 :]
        expected = alone - naive.mean(naive.logprobs(rows)[skip:])
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
    drops = context_drops(TEXTS, model, shots=1, skip_tokens=0)
    (row,) = drops.shares().to_dict("records")
    assert row == {"benchmark": "a", "share": (drops.texts["drop"] > 0).mean(), "texts": 5}
    assert {*drops.shares(["benchmark", "label"])["label"]} == {True, False}


def test_what_is_refused(model):
    with pytest.raises(ConfigError, match="shots is 0: give 1 or more"):
        context_drops(TEXTS, model, shots=0)
    with pytest.raises(DataError, match="the set 'a' has only the text 0: no other text"):
        context_drops([TEXTS[0], TEXTS[0]], model)
    with pytest.raises(ConfigError, match="skip_tokens is -1: give 0 or more"):
        context_drops(TEXTS, model, skip_tokens=-1)


def test_texts_without_a_token_that_counts_are_left_out(model, tokenizer):
    lengths = [len(tokenizer(text.text)["input_ids"]) - 1 for text in TEXTS]
    skip = min(lengths)
    drops = context_drops(TEXTS, model, shots=1, skip_tokens=skip)
    too_short = [length <= skip for length in lengths]
    assert drops.texts["drop"].isna().tolist() == too_short
    assert drops.shares()["texts"].tolist() == [5 - sum(too_short)]
    assert f"left out: {sum(too_short)} of 5 texts" in drops.summary()
    nothing = context_drops(TEXTS, model, shots=1, skip_tokens=max(lengths)).summary()
    assert nothing.startswith("no text could be compared: give longer texts, a smaller codec.skip")


def test_the_summary_has_a_line_per_set_and_side():
    labels = [True, False] * 6
    drops = np.array([1.0, -1.0] * 5 + [np.nan, 1.0])
    texts = pd.DataFrame({"example_id": [*"abcdefghijkl"], "benchmark": "a", "label": labels})
    table = ContextDrops(texts.assign(context=1, drop=drops)).summary()
    nonmembers, members = (line for line in table.splitlines() if "member" in line)
    assert re.search(r"a +non-member +0.167 \[0.0\d\d, 0.5\d\d\] +6", nonmembers)
    assert re.search(r"a +member +1.000 \[0.566, 1.000\] +5", members)
    assert "left out: 1 of 12 texts" in table
    plain = ContextDrops(texts.assign(context=1, drop=drops, label=None)).summary()
    assert re.search(r"\na +0.545 \[", plain)
    assert "member" not in plain


def test_the_stage_reads_a_file(tmp_path, toy_folders, model):
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in STRINGS))
    stage = CodecStage(
        runs=str(tmp_path), seed=3, examples=ExamplesConfig(str(tmp_path / "t.jsonl")),
        model=ScoredModelConfig(str(toy_folders["target"])),
        detection=DetectionConfig(device="cpu"), codec=CodecConfig(shots=2, skip_tokens=1),
    )  # fmt: skip
    (benchmark,) = set((own := run(stage)).texts["benchmark"])
    assert own.summary().splitlines()[1].startswith("all texts")
    texts = [make_text(str(n), text, None, benchmark) for n, text in enumerate(STRINGS)]
    expected = context_drops(texts, model, 2, 1, seed=3)
    assert own.texts["drop"].tolist() == expected.texts["drop"].tolist()
    windowed = replace(stage.detection, long_texts="windowed")
    with pytest.raises(ConfigError, match="detection.long_texts is 'windowed': a text and others"):
        run(replace(stage, detection=windowed))
    part = replace(stage.detection, scope="output")
    with pytest.raises(ConfigError, match="detection.scope is 'output'"):
        run(replace(stage, detection=part))


def test_a_run_warns_once_of_texts_without_room(model, caplog):
    """The context of 128 tokens has no room for another text before a long one, or the reverse."""
    long = [make_text(f"long {n}", f"{n} " + " ".join([UNSEEN] * 9), None, "a") for n in range(2)]
    settings = DetectionConfig(device="cpu", long_texts="truncate")
    reader = LoadedModel(model.source, settings)
    with caplog.at_level(logging.WARNING):
        table = context_drops([*TEXTS[2:], *long], reader, shots=4).texts
    without = table[table["example_id"].str.startswith("long")]
    assert (without["context"] == 0).all()
    (message,) = [r.getMessage() for r in caplog.records if "room" in r.getMessage()]
    assert message.startswith("codec: 5 of 5 texts leave no room")
    assert f"and {(table['context'] == 0).sum()} of these for none" in message
    assert "a smaller codec.shots" in message
    assert "meaningless" not in caplog.text

"""Texts longer than the context, against a forward for each window."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml
from transformers import AutoTokenizer

from contamination.core.errors import ConfigError, DataError
from contamination.core.integrity import MANIFEST
from contamination.core.models import load_model
from contamination.data.config import ExamplesConfig
from contamination.detection.config import (
    METHODS_FOLDER,
    DetectionConfig,
    DetectionStage,
    NeighborModelConfig,
    PrefixConfig,
    ReferenceConfig,
    ScoredModelConfig,
)
from contamination.detection.forward.infilling import run_infill
from contamination.detection.forward.reader import count_leading_special, split_into_windows
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.pass_collector import Collector
from contamination.detection.passes import NUMBERS, ORIGINAL, Pass
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from tests.detection import golden, naive
from tests.detection.conftest import MEMORISED, UNSEEN
from tests.rounding import FORWARD

CONTEXT = 128
LONG = " ".join([UNSEEN, MEMORISED] * 9)
WINDOWED = DetectionConfig(device="cpu", long_texts="windowed")
INFILL = Pass(view="infill", future=3)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory, tokenizer):
    """The tokenizer as it is, with a BOS before each text, and without."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "post_processor": None}))
    return {"with BOS": tokenizer, "without": AutoTokenizer.from_pretrained(folder)}


@pytest.fixture(params=["with BOS", "without"])
def loaded(request, toy_models, tokenizers, resources):
    model = LoadedModel(toy_models["target"], WINDOWED, resources)
    model.tokenizer = tokenizers[request.param]
    return model


@pytest.fixture(scope="module")
def double(toy_folders):
    return load_model("path", str(toy_folders["target"])).double()


def loop(double, ids, special):
    """Each token from the first window that holds it, a float64 forward for each window."""
    rows, scored, start = naive.token_rows(double, ids[:CONTEXT]), CONTEXT, CONTEXT // 2
    while scored < len(ids):
        window = ids[:special] + ids[start + special : start + CONTEXT]
        assert len(window) <= CONTEXT
        end = min(len(ids), start + CONTEXT)
        assert window[-1] == ids[end - 1]
        assert scored - start >= CONTEXT // 2  # the tokens before the first that is scored
        rows += naive.token_rows(double, window)[scored - end :]
        scored, start = end, start + CONTEXT // 2
    return rows


def test_every_token_equals_a_loop_over_windows(request, loaded, double):
    special = count_leading_special(loaded.tokenizer)
    ids = loaded.tokenizer(LONG)["input_ids"]
    assert special == (ids[0] == 1) == (request.node.callspec.params["loaded"] == "with BOS")
    for length in (CONTEXT + 1, CONTEXT + 64, CONTEXT + 65, len(ids)):
        text = loaded.tokenizer.decode(ids[special:length])
        ours = loaded.tokenizer(text)["input_ids"]
        (row,) = loaded.run(ORIGINAL, [golden.text_of("long", text)])
        expected = loop(double, ours, special)
        assert row.windowed
        assert not row.truncated
        assert len(row.stats) == len(ours) - 1 == len(expected)
        for field in NUMBERS:
            np.testing.assert_allclose(
                getattr(row.stats, field), [r[field] for r in expected], rtol=1e-4, atol=FORWARD
            )


def test_the_infilling_pass_takes_each_token_from_the_window_that_scores_it(loaded):
    special = count_leading_special(loaded.tokenizer)
    ids, text = loaded.tokenizer(LONG)["input_ids"], golden.text_of("long", LONG)
    found = [row.stats for row in loaded.run(INFILL, [text])]
    (plain,) = loaded.run(ORIGINAL, [text])
    np.testing.assert_allclose(found[0].logprob, plain.stats.logprob, rtol=1e-5, atol=FORWARD)
    assert [len(copy) for copy in found] == [len(ids) - 1 - j for j in range(4)]
    for start in range(0, len(ids) - CONTEXT // 2, CONTEXT // 2):
        window = ids[:special] + ids[start + special : start + CONTEXT]
        (copies,) = run_infill(loaded.model, [window], ["x"], 8192, 3)
        first = CONTEXT // 2 if start else 0  # the window's first token that it scores, but one
        for j in range(4):
            for token in range(max(first, 1 + j), len(window)):
                for field in NUMBERS:
                    one = getattr(found[j], field)[start + token - 1 - j]
                    other = getattr(copies[j], field)[token - 1 - j]
                    assert one == pytest.approx(other, rel=1e-5, abs=FORWARD)


def test_short_texts_are_scored_as_ever(toy_models, resources):
    texts = [golden.text_of(str(i), t) for i, t in enumerate([MEMORISED, LONG, UNSEEN])]
    windowed = LoadedModel(toy_models["target"], WINDOWED, resources)
    usual = LoadedModel(toy_models["target"], DetectionConfig(device="cpu"), resources)
    for wanted in (ORIGINAL, INFILL, Pass(view="prefix", shots=2)):
        found = windowed.run(wanted, texts)
        expected = usual.run(wanted, texts[::2])
        kept = [row for row in found if row.text_sha256 != texts[1].sha256]
        assert not any(row.windowed for row in kept)
        for one, other in zip(kept, expected, strict=True):
            for field in NUMBERS:
                np.testing.assert_array_equal(
                    getattr(one.stats, field), getattr(other.stats, field)
                )


def test_a_text_as_long_as_the_context_is_no_windowed_one(loaded):
    ids = loaded.tokenizer(LONG)["input_ids"]
    special = count_leading_special(loaded.tokenizer)
    text = loaded.tokenizer.decode(ids[special:CONTEXT])
    assert len(loaded.tokenizer(text)["input_ids"]) == CONTEXT
    (row,) = loaded.run(ORIGINAL, [golden.text_of("long", text)])
    assert not row.windowed
    assert len(row.stats) == CONTEXT - 1


def test_a_text_of_a_token_more_is_counted_as_windowed(toy_models, tokenizer, resources, tmp_path):
    ids, special = tokenizer(LONG)["input_ids"], count_leading_special(tokenizer)
    cut = [tokenizer.decode(ids[special:n]) for n in (CONTEXT, CONTEXT + 1)]
    texts = [golden.text_of(str(len(text)), text) for text in cut]
    Collector(tmp_path, toy_models, texts, WINDOWED, resources).collect([ORIGINAL])
    (manifest,) = tmp_path.rglob(MANIFEST)
    counts = json.loads(manifest.read_text())["counts"]
    assert (counts["scored_tokens"], counts["windowed"]) == (2 * CONTEXT - 1, 1)


@pytest.mark.parametrize("context", [2, 3, 8, 9])
@pytest.mark.parametrize("special", [0, 1])
def test_windows_of_any_context_hold_every_token(context, special):
    for tokens in range(context + 1, 40):
        windows = split_into_windows(list(range(tokens)), context, special)
        assert all(len(w) <= context for w in windows)
        assert all(w[:special] == [0] * special for w in windows)
        new = [w[context - context // 2 :] for w in windows[1:]]
        assert windows[0] + [token for each in new for token in each] == list(range(tokens))


@pytest.mark.parametrize("future", [64, "all"])
def test_an_m_that_windows_do_not_overlap_by_is_named(toy_models, future):
    loaded = LoadedModel(toy_models["target"], WINDOWED)
    wanted = Pass(view="infill", future=future)
    words = f"long_texts is 'windowed'.*m = {future} .*context of 128.*below 64"
    with pytest.raises(ConfigError, match=words):
        loaded.run(wanted, [golden.text_of("long", LONG)])
    assert len(loaded.run(wanted, [golden.text_of("short", UNSEEN)])) > 1
    assert len(loaded.run(Pass(view="infill", future=63), [golden.text_of("long", LONG)])) == 64


@pytest.mark.slow
def test_two_processes_read_windows(toy_models):
    texts = [golden.text_of("long", LONG), golden.text_of("short", UNSEEN)]
    settings = WINDOWED, replace(WINDOWED, processes=2)
    one, two = (LoadedModel(toy_models["target"], s).run(INFILL, texts) for s in settings)
    for row, other in zip(one, two, strict=True):
        np.testing.assert_allclose(row.stats.std, other.stats.std, rtol=1e-5, atol=FORWARD)


def test_all_methods_score_a_windowed_text(
    tmp_path, toy_folders, masked_folder, contrasting_prefix_file, caplog
):
    caplog.set_level("INFO")
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in (LONG, UNSEEN)))
    nodes = [yaml.safe_load(p.read_text()) for p in sorted(METHODS_FOLDER.glob("*.yaml"))]
    next(node for node in nodes if "dc_pdd" in node)["dc_pdd"]["corpus"] = str(path)
    stage = DetectionStage(
        runs=str(tmp_path / "runs"),
        examples=ExamplesConfig(str(path)),
        model=ScoredModelConfig(str(toy_folders["target"])),
        reference=ReferenceConfig(str(toy_folders["reference"])),
        masked_lm=NeighborModelConfig(str(masked_folder)),
        prefix=PrefixConfig(str(contrasting_prefix_file)),
        method={name: node for each in nodes for name, node in each.items()},
        detection=WINDOWED,
    )
    table = open_scores(run(stage).path).table
    slow = {"cdd", "grad_norm", "info_rmia", "samia"}
    assert set(table["method"]) == set(stage.method) - slow
    assert np.isfinite(table["score"]).all()
    assert len(table) == 2 * len(table.drop_duplicates(["method", "variant"]))
    manifests = list((tmp_path / "runs" / "passes").glob(f"*/{MANIFEST}"))
    counts = [json.loads(manifest.read_text())["counts"] for manifest in manifests]
    assert {(c["windowed"], c["truncated"]) for c in counts} == {(1, 0)}
    assert "original: 1 of 2 texts are longer than the model's context of 128" in caplog.text
    assert "prefix: 1 of 2 texts are read in windows, which leave no room" in caplog.text
    recall = pd.Series(table[table["method"] == "recall"].set_index("example_id")["score"])
    assert recall["0"] == pytest.approx(1, rel=1e-5)


def test_a_rewording_that_is_too_short_is_named(toy_models, tokenizers):
    loaded = LoadedModel(toy_models["target"], WINDOWED)
    loaded.tokenizer = tokenizers["without"]
    texts = [golden.text_of("long", UNSEEN), golden.text_of("two", "b c")]
    assert len(loaded.tokenize(ORIGINAL, texts)) == 2
    words = r"text two \('b c'\), in the view delete\?n=1&share=0.5, is '[bc]': that has 1 token"
    with pytest.raises(DataError, match=words):
        loaded.tokenize(Pass(view="delete", n=1, share=0.5), texts)

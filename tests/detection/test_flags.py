"""What is out of the ordinary about a score stands beside it, and is never ranked in silence."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from contamination.core.errors import ConfigError
from contamination.data.config import ExamplesConfig
from contamination.detection.config import DetectionConfig, DetectionStage, ScoredModelConfig
from contamination.detection.examples import open_examples
from contamination.detection.flags import count_flags, describe_flags, with_token_count_pass
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.passes import ORIGINAL, Pass
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.detection.summary import summarise_scores
from tests.detection import golden
from tests.detection.conftest import MEMORISED, UNSEEN

LOSS = {"_target_": "contamination.detection.methods.loss.Loss"}
BLANK = (" " * 3, "\n\n", " " * 50, "\u200b" * 9, "\x00" * 9, "\ufeff" * 9)
ROWS = [
    *((text, f"blank{n}", 1) for n, text in enumerate(BLANK)),
    ("a", "letter", 1),
    ("Short.", "four", 0),  # 4 scored tokens
    ("Short it.", "five", 0),
    *((MEMORISED[: 30 + i], f"m{i}", 1) for i in range(4)),
    *((UNSEEN[: 30 + i], f"u{i}", 0) for i in range(4)),
]
BLANKS = {f"blank{n}" for n in range(len(BLANK))}
SHORT = {*BLANKS, "letter", "four"}


@pytest.fixture
def stage(tmp_path, toy_folders):
    path = tmp_path / "texts.jsonl"
    keys = ("text", "id", "label")
    path.write_text("".join(json.dumps(dict(zip(keys, r, strict=True))) + "\n" for r in ROWS))

    def make(method, model=toy_folders["target"], examples=path, **settings):
        return DetectionStage(
            runs=str(tmp_path / "runs"), out=str(tmp_path / "out"), method=method,
            examples=ExamplesConfig(str(examples)), model=ScoredModelConfig(str(model)),
            detection=DetectionConfig(device="cpu", **settings),
        )  # fmt: skip

    return make


def test_where_surp_falls_back_its_score_is_min_ks_and_says_so(stage, tmp_path):
    file = tmp_path / "golden.jsonl"
    lines = [{"text": t.text, "id": t.example_id} for t in golden.texts()]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    methods = {
        "surp": {"_target_": "contamination.detection.methods.surp.Surp", "k": 0.4},
        "min_k": {"_target_": "contamination.detection.methods.min_k.MinK", "k": 0.4},
    }
    found = run(stage(methods, golden.GOLDEN / "target", file, long_texts="truncate"))
    table = open_scores(found.path).table.set_index("example_id")
    surp, min_k = (table[table["method"] == name] for name in methods)
    expected = {str(i): e["surp_tokens"] == 0 for i, e in enumerate(golden.examples())}
    fell_back = surp["flag"] == "no surprising token, scored as min_k"
    assert 0 < sum(expected.values()) < len(expected)
    assert fell_back.to_dict() == expected
    assert (np.isclose(surp["score"], min_k["score"], rtol=1e-6) == fell_back).all()
    assert set(min_k["flag"]) == {""}
    line = f"{fell_back.sum()} of 32 texts: no surprising token, scored as min_k."
    shown = summarise_scores(
        open_scores(found.path).table, open_examples(ExamplesConfig(str(file)))
    )
    assert f"surp k=0.4,entropy=2.0: {line}" in shown
    exported = pd.read_csv(tmp_path / "out" / "scores.csv", keep_default_na=False)
    assert (exported["flag"] != "").sum() == fell_back.sum()


def test_blank_and_short_texts_are_flagged_and_have_no_rank(stage, tmp_path, caplog):
    table = open_scores(run(stage({"loss": LOSS})).path).table.set_index("example_id")
    assert set(table.index[~table["ranked"]]) == SHORT
    assert set(table["flag"][sorted(BLANKS)]) == {"blank"}
    assert set(table["flag"][["letter", "four"]]) == {"fewer than 5 scored tokens"}
    assert "not ranked, and in no metric: 6 of 17 texts: blank." in caplog.text
    exported = pd.read_csv(tmp_path / "out" / "scores.csv").set_index("example_id")
    assert set(exported.index[exported["rank"].isna()]) == SHORT
    ranked = exported.drop(index=list(SHORT))
    expected = ranked["score"].rank(ascending=False, method="min")
    assert (ranked["rank"] == expected).all()


def test_their_scores_are_in_no_metric(stage):
    examples = [text for _, text, _ in ROWS]
    chosen = stage({"loss": LOSS})
    table = open_scores(run(chosen).path).table
    shown = summarise_scores(table, open_examples(chosen.examples))
    labels = {name: label for _, name, label in ROWS if name not in SHORT}
    scores = table.set_index("example_id")["score"]
    expected = roc_auc_score(list(labels.values()), scores[list(labels)])
    with_all = roc_auc_score([label for *_, label in ROWS], scores[examples])
    assert f"{expected:.3f} [" in shown
    assert f"{with_all:.3f} [" not in shown
    assert "4 members, 5 non-members" in shown
    assert "2 of 17 texts: fewer than 5 scored tokens." in shown


def test_how_many_tokens_it_takes_is_a_setting_that_runs_no_model(stage, monkeypatch):
    run(stage({"loss": LOSS}))
    monkeypatch.setattr(LoadedModel, "__init__", lambda *_: pytest.fail("the model was loaded"))
    table = open_scores(run(stage({"loss": LOSS}, min_scored_tokens=1)).path).table
    assert set(table["example_id"][~table["ranked"]]) == BLANKS
    with pytest.raises(ConfigError, match="detection.min_scored_tokens is 0"):
        DetectionConfig(min_scored_tokens=0)


def test_methods_that_never_read_the_text_itself_are_counted_by_its_pass():
    infill, swap = Pass(view="infill", future=1), Pass(view="swap", n=2)
    assert with_token_count_pass({swap, Pass("reference")}) == {swap, Pass("reference"), ORIGINAL}
    assert with_token_count_pass({infill, swap}) == {infill, swap}
    assert with_token_count_pass({ORIGINAL}) == {ORIGINAL}


def test_each_flag_is_counted_once():
    rows = [
        ("a", "surp", "", "fell back", True), ("a", "loss", "", "", True),
        ("b", "surp", "", "blank", False), ("b", "loss", "", "blank", False),
        ("c", "surp", "", "", True), ("c", "loss", "", "", True),
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["example_id", "method", "variant", "flag", "ranked"])
    assert describe_flags(count_flags(table)) == [
        "not ranked, and in no metric: 1 of 3 texts: blank.",
        "surp: 1 of 3 texts: fell back.",
    ]

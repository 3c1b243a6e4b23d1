"""`score` and `evaluate`, as a program or a notebook calls them."""

from io import StringIO
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from contamination.core.errors import ConfigError, DataError
from contamination.data.config import ExamplesConfig
from contamination.detection.api import evaluate, score
from contamination.detection.config import DetectionConfig, DetectionStage, ScoredModelConfig
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from tests.detection.conftest import MEMORISED, NOUNS, UNSEEN

TEXTS = [MEMORISED, UNSEEN, *(f"A {noun} sits by the old road in the rain." for noun in NOUNS)]
LABELS = [1, *[0] * (len(TEXTS) - 1)]


def table(scores, *columns):
    return scores[["example_id", "method", "variant", *columns]].to_dict("list")


def test_strings_frames_and_data_sets_give_what_the_command_gives(toy_folders, tmp_path):
    folder = str(toy_folders["target"])
    stage = DetectionStage(
        runs=str(tmp_path / "runs"), model=ScoredModelConfig(folder),
        method={"min_k": {"_target_": "contamination.detection.methods.min_k.MinK",
                          "k": [0.1, 0.2]}},
        detection=DetectionConfig(device="cpu"),
        examples=ExamplesConfig(str(tmp_path / "texts.jsonl")),
    )  # fmt: skip
    frame = pd.DataFrame({"text": TEXTS, "label": LABELS, "other": 1.5})
    frame.to_json(tmp_path / "texts.jsonl", orient="records", lines=True)
    stored = open_scores(run(stage).path).table
    order = {str(place): place for place in range(len(TEXTS))}
    stored = stored.sort_values("example_id", key=lambda ids: ids.map(order), kind="stable")
    stored = stored.sort_values("variant", kind="stable")
    for texts, more in (
        (TEXTS, {"labels": LABELS}),
        (frame, {}),
        (datasets.Dataset.from_pandas(frame), {}),
        (str(tmp_path / "texts.jsonl"), {}),
    ):
        found = score(texts, folder, {"min_k": {"k": [0.1, 0.2]}}, device="cpu", **more)
        assert table(found, "score", "ranked") == table(stored, "score", "ranked")
        assert found["label"].tolist() == [bool(label) for label in LABELS] * 2


def test_a_loaded_model_scores_as_its_folder_does_and_trains_on(toy_folders, model, tokenizer):
    from contamination.core.models import load_model

    folder = str(toy_folders["target"])
    loaded = load_model("model.path", folder).train()
    methods = ["loss", "infilling", "reference"]
    other = str(toy_folders["reference"])
    found = score(TEXTS[:3], loaded, methods, tokenizer=tokenizer, reference=other, device="cpu")
    again = score(TEXTS[:3], folder, methods, reference=other, device="cpu")
    assert loaded.training
    assert table(found, "score") == table(again, "score")
    with pytest.raises(ConfigError, match="model: a loaded model needs its tokenizer"):
        score(TEXTS, loaded)


def test_nothing_stays_but_in_a_folder_that_is_given(toy_folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    score(TEXTS[:2], str(toy_folders["target"]), "loss", device="cpu")
    assert [*tmp_path.iterdir()] == []
    score(TEXTS[:2], str(toy_folders["target"]), "loss", device="cpu", folder=tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_evaluate_gives_each_benchmark_and_their_mean(toy_folders):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "id": [f"t{i}" for i in range(80)],
        "text": [f"Text number {i} about {noun}s" for i, noun in enumerate(NOUNS * 10)],
        "label": ["member", "Non-member"] * 40,
        "benchmark": ["one"] * 40 + ["two"] * 40,
    })  # fmt: skip
    scores = pd.DataFrame({
        "example_id": frame["id"], "method": "mine", "variant": "",
        "score": rng.normal(size=80), "ranked": True,
    })  # fmt: skip
    found = evaluate(scores, frame, fpr=(0.05, 0.2), blind=False)
    assert found["benchmark"].unique().tolist() == ["all", "one", "two", "pooled"]
    members = frame["label"] == "member"
    by_hand = {
        name: roc_auc_score(members[own], scores["score"][own])
        for name, own in (("one", slice(0, 40)), ("two", slice(40, 80)), ("pooled", slice(None)))
    }
    by_hand["all"] = (by_hand["one"] + by_hand["two"]) / 2
    auroc = found[found["metric"] == "auroc"].set_index("benchmark")
    for name, value in by_hand.items():
        assert auroc.loc[name, "value"] == pytest.approx(value, abs=1e-12)
        assert auroc.loc[name, "low"] < value < auroc.loc[name, "high"]
    assert set(found["needs"][found["metric"] == "tpr_at_fpr_0.05"]) != {""}
    (lacking,) = evaluate(
        scores, frame[:60].assign(label=[1, 0] * 20 + [1] * 20), blind=False
    ).query("benchmark == 'all'")["needs"]
    assert lacking == "non-members in two"
    for rates in (0.05, [0], ["x"]):
        with pytest.raises(ConfigError, match="fpr is .*: give rates above 0 and below 1"):
            evaluate(scores, frame, fpr=rates)
    with pytest.raises(DataError, match="give members and non-members"):
        evaluate(scores, frame.assign(label=None))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"methods": "min_kk"}, "methods=min_kk: unknown method. Did you mean"),
        ({"methods": {"min_k": {"kk": 1}}}, "methods.min_k.kk: unknown hyperparameter"),
        ({"methods": {"min_k": {"k": []}}}, r"methods.min_k.k is \[\]: give one value, or several"),
        ({"batch_token": 1}, "batch_token: unknown field. Did you mean batch_tokens"),
        ({"labels": [1]}, "labels: there are 1 for 2 texts"),
        ({"texts": [TEXTS[0], None]}, r"texts\[1\]: no string as its `text` .it is missing"),
        ({"labels": [1, "perhaps"]}, r"texts\[1\]: label is 'perhaps'"),
        ({"texts": {"text": TEXTS[:2]}}, "texts is a dict: give strings, a data frame"),
        ({"texts": "none.jsonl", "labels": [1]}, "labels: a file or a data set has its own"),
        ({"texts": TEXTS[0]}, f"^texts is '{TEXTS[0]}': there is no such file or folder"),
        ({"texts": 3}, "texts is a int: give strings"),
        ({"texts": []}, "^texts: it has no example"),
        (
            {"texts": [{"id": 3, "text": "a"}, {"id": 3.0, "text": "b"}]},
            "^texts: the id '3' occurs tw",
        ),
        ({"texts": [TEXTS[0], 3]}, r"^texts\[1\]: .* .a int; .* or set on_error=\"skip\" to"),
        ({"on_error": "ignore"}, "^on_error is 'ignore': choose from stop, skip"),
        ({"model": "/nowhere/model"}, "^model is '/nowhere/model': there is no such folder"),
        ({"model": None}, "^model is None: give a model, or a server"),
        ({"model": 3}, "^model is a int: give a path, a hub id or a loaded PreTrainedModel"),
        ({"tokenizer": "gpt2"}, "^the tokenizer of model is 'str': it is that of a loaded model"),
        ({"methods": None}, "^methods is None: give names"),
        ({"methods": []}, "^methods is {}: choose methods"),
        ({"methods": [3]}, "^methods=3: unknown method"),
        ({"methods": {"min_k": 0.2}}, "^methods.min_k is 0.2: give its hyperparameters by name"),
        ({"methods": {"min_k": {"k": "x"}}}, "^methods.min_k.k: Value 'x'"),
        ({"methods": "reference"}, "^methods.reference needs reference, which is null. Give a"),
        ({"methods": "reference", "reference": "./nowhere"}, "^reference is './nowhere': there"),
        ({"methods": {"min_k": {"k": object()}}}, "^methods.min_k.k: Value 'object' is not"),
        ({"labels": 1}, "^labels is 1: give one for each text"),
        ({"labels": "10"}, "^labels is '10': give one for each text, in a list"),
        ({"labels": {0: 1, 1: 0}}, "^labels is {0: 1, 1: 0}: give one"),
        ({"texts": {*TEXTS[:2]}, "labels": [1, 0]}, "^texts is a set: give strings"),
        (
            {"texts": pd.DataFrame([TEXTS[:2]], columns=["text"] * 2)},
            "^texts: the column 'text' occurs",
        ),
        ({"seed": "x"}, "^seed: Value 'x'"),
        ({"batch_tokens": 0}, "^batch_tokens is 0: give 1 or more"),
        ({"batch_tokens": "x"}, "^batch_tokens: Value 'x'"),
        ({"dtype": object()}, "^dtype: "),
        ({"folder": __file__}, "There is a file where a folder is needed"),
        ({"texts": [f"{TEXTS[0]} " * 99]}, "^text 0 .* long_texts=truncate"),
    ],
)
def test_bad_calls_name_the_argument(toy_folders, words, said):
    given = {"texts": TEXTS[:2], "model": str(toy_folders["target"]), "methods": "loss", **words}
    with pytest.raises((ConfigError, DataError), match=said):
        score(given.pop("texts"), given.pop("model"), given.pop("methods"), **given)


def test_values_of_numpy_torch_and_paths_are_plain_ones(toy_folders, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = {"device": torch.device("cpu"), "dtype": torch.float32, "batch_tokens": np.int64(99)}
    methods = {"min_k": {"k": np.array([0.1, 0.2])}, "infilling": {"m": range(1, 3)}}
    found = score(TEXTS[:2], toy_folders["target"], methods, folder=Path("~/runs"), **settings)
    assert len(found) == 8
    assert (tmp_path / "runs" / "scores").is_dir()


def test_ids_of_a_column_with_gaps_are_whole_numbers(toy_folders):
    frame = pd.DataFrame({"text": TEXTS[:3], "id": [7, None, 9], "label": np.array([1, 0, 1])})
    found = score(frame, str(toy_folders["target"]), "loss", device="cpu")
    assert frame["id"].dtype == float
    assert found["example_id"].tolist() == ["7", "1", "9"]


def test_given_labels_take_the_place_of_a_column(toy_folders):
    frame = pd.DataFrame({"text": TEXTS[:3], " Label": "none of ours"})
    found = score(frame, str(toy_folders["target"]), "loss", labels=[0, 1, 0], device="cpu")
    assert found["label"].tolist() == [False, True, False]


def test_a_method_of_ones_own_is_named_by_its_class(toy_folders):
    mine = {"_target_": "contamination.detection.methods.min_k.MinK", "k": 0.3}
    found = score(TEXTS[:3], str(toy_folders["target"]), {"mine": mine, "min_k": {"k": 0.3}})
    own, known = (rows["score"].tolist() for _, rows in found.groupby("method"))
    assert own == known


def test_a_loaded_models_tokenizer_is_a_loaded_one(model):
    with pytest.raises(ConfigError, match="^model: its tokenizer is a str: load it, such as by"):
        score(TEXTS[:2], model, "loss", tokenizer="gpt2")


def test_what_cannot_be_used_is_left_out_where_asked(toy_folders, caplog):
    rows = {"texts": [*TEXTS[:3], None], "labels": np.array([1, 0, 5, 0]), "on_error": "skip"}
    found = score(model=str(toy_folders["target"]), methods="loss", device="cpu", **rows)
    assert found["label"].tolist() == [True, False]
    assert "texts: skipped 1 × label is 5, 1 × no string as its `text`" in caplog.text
    assert len(evaluate(found, **rows, blind=False)) == 3


def test_evaluate_takes_one_models_whole_scores():
    frame = pd.DataFrame({"text": TEXTS, "label": LABELS})
    ids = [str(n) for n in range(len(TEXTS))]
    scores = pd.DataFrame(
        {"example_id": ids, "method": "mine", "variant": "", "score": 1.0, "ranked": True}
    )
    for bad, said in (
        (scores.drop(columns="score"), "^scores: give the data frame of `score`, with example_id"),
        (None, "^scores: give the data frame"),
        (pd.concat([scores, scores]), "^scores: 'mine' has two scores of '0'. Evaluate"),
        (scores.assign(score="a"), "^scores: its column score does not contain numbers"),
        (scores.assign(ranked="True"), "^scores: its column ranked does not contain True or False"),
        (scores.assign(score=np.nan), f"^scores: {len(TEXTS)} scores are missing"),
        (
            pd.concat([scores, scores[1:].assign(method="half")]),
            "^scores: 'half' has no ranked score of '0', but another",
        ),
    ):
        with pytest.raises(DataError, match=said):
            evaluate(bad, frame, blind=False)


def test_evaluate_refuses_other_texts_than_were_scored(toy_folders):
    frame = pd.DataFrame({"text": TEXTS, "label": LABELS})
    scores = score(frame, str(toy_folders["target"]), "loss", device="cpu")
    whole = evaluate(scores, frame, blind=False)
    again = evaluate(pd.read_csv(StringIO(scores.to_csv(index=False))), frame, blind=False)
    pd.testing.assert_frame_equal(whole, again)
    for other in (frame[::-1], frame[2:], frame.assign(text=[f"{text}!" for text in TEXTS])):
        with pytest.raises(DataError, match="is not the text that was scored under this id"):
            evaluate(scores, other, blind=False)
    named = frame.assign(id=[f"t{i}" for i in range(len(TEXTS))])
    scores = score(named, str(toy_folders["target"]), "loss", device="cpu")
    for same in (named[::-1], named):
        assert evaluate(scores, same, blind=False)["value"].equals(whole["value"])


def test_class_labels_go_by_their_names(toy_folders):
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["member", "no"])}
    )
    rows = datasets.Dataset.from_dict({"text": TEXTS, "label": [1 - n for n in LABELS]}, features)
    for texts in (rows, rows.with_format("pandas"), rows.to_iterable_dataset()):
        found = score(texts, str(toy_folders["target"]), "loss", device="cpu")
        assert found["label"].tolist() == [bool(n) for n in LABELS]


def test_each_module_gets_its_mode_back(toy_folders, tokenizer):
    from contamination.core.models import load_model

    loaded = load_model("model.path", str(toy_folders["target"])).train()
    loaded.model.layers[0].eval()
    modes = [module.training for module in loaded.modules()]
    score(TEXTS[:2], loaded, "loss", tokenizer=tokenizer, device="cpu")
    assert [module.training for module in loaded.modules()] == modes


def test_a_folder_tells_loaded_models_apart_by_their_weights(toy_folders, tokenizer, tmp_path):
    from contamination.core.models import load_model

    loaded = [load_model("model.path", str(toy_folders[role])) for role in ("target", "reference")]
    moved = load_model("model.path", str(toy_folders["target"]))
    moved.config.rms_norm_eps = 0.1
    keep = {"methods": "loss", "tokenizer": tokenizer, "device": "cpu", "folder": tmp_path / "runs"}
    first, other, again = (score(TEXTS[:2], one, **keep) for one in (*loaded, loaded[0]))
    assert table(first, "score") == table(again, "score") != table(other, "score")
    score(TEXTS[:2], moved, **keep)
    assert len([*(tmp_path / "runs" / "scores").iterdir()]) == 3

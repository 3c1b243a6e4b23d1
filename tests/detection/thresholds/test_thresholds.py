"""Thresholds that are chosen on one set of texts and judged on another."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare
from sklearn.metrics import roc_auc_score

from contamination.core.errors import ConfigError, DataError
from contamination.core.seeds import unit_hash
from contamination.core.statistics.significance import conformal_p_values
from contamination.data.config import ExamplesConfig
from contamination.data.examples import examples_digest
from contamination.data.texts import Text
from contamination.detection.config import (
    DetectionConfig,
    DetectionStage,
    PrefixConfig,
    ScoredModelConfig,
)
from contamination.detection.evaluation import scores_by_membership
from contamination.detection.examples import open_examples
from contamination.detection.run import run
from contamination.detection.scores import Origin, read_scores, to_arrow, write_score_tables
from contamination.detection.tasks.calibration import calibrate_or_apply
from contamination.detection.tasks.config import ThresholdStage
from contamination.detection.thresholds import (
    apply_thresholds,
    calibrate,
    calibration_split,
    choose_threshold,
)


def write_table(path, table, made_of=Origin()):  # noqa: B008
    """As `out=` writes it."""
    write_score_tables(path, [to_arrow(table)], made_of)


def worth(members, nonmembers, threshold, rule, fpr):
    """What a rule makes of a threshold, by counting."""
    tp, fp = (members >= threshold).sum(), (nonmembers >= threshold).sum()
    return {
        "accuracy": tp / len(members) - fp / len(nonmembers),
        "f1": 2 * tp / (tp + fp + len(members)),
        "fpr": tp / len(members) if fp / len(nonmembers) <= fpr else -1,
    }[rule]


def naive(members, nonmembers, rule, fpr):
    """The best worth over every threshold."""
    thresholds = [*members, *nonmembers, np.inf]
    return max(worth(members, nonmembers, own, rule, fpr) for own in thresholds)


@pytest.mark.parametrize("rule", ["accuracy", "f1", "fpr"])
@pytest.mark.parametrize("seed", range(10))
def test_the_chosen_threshold_is_the_best(rule, seed):
    rng = np.random.default_rng(seed)
    members, nonmembers = rng.normal(1, 1, 30).round(1), rng.normal(0, 1, 25).round(1)
    value = choose_threshold(members, nonmembers, rule, 0.1)
    found = worth(members, nonmembers, value, rule, 0.1)
    assert found == pytest.approx(naive(members, nonmembers, rule, 0.1))


def scored(n, shift, seed=0):
    rng = np.random.default_rng(seed)
    labels = [bool(i % 2) for i in range(n)]
    examples = [Text(str(i), "t", str(i), label) for i, label in enumerate(labels)]
    scores = [float(rng.normal(shift * label)) for label in labels]
    table = pd.DataFrame(
        {"example_id": [e.example_id for e in examples], "method": "m", "variant": "k=0.2",
         "checkpoint_step": -1, "default": True, "score": scores, "flag": "", "ranked": True}
    )  # fmt: skip
    return table, examples


MODELS = {"target": "one" * 20, "reference": "two" * 20}
SETTINGS = {"dtype": "float32", "long_texts": "error", "min_scored_tokens": 5}


@pytest.fixture
def calibrated(tmp_path):
    """Writes the scores and the labelled texts, calibrates, and says where the thresholds are."""

    def make(table, labels, inputs=MODELS, name="one", clusters=None, **more):
        folder = tmp_path / name
        folder.mkdir()
        file = folder / "x.jsonl"
        lines = [{"text": f"t {i}", "id": i, "label": label} for i, label in labels.items()]
        for line in lines if clusters else ():
            line["cluster"] = clusters[line["id"]]
        file.write_text("\n".join(map(json.dumps, lines)))
        texts = {"examples": examples_digest(open_examples(ExamplesConfig(str(file))))}
        write_table(folder / "scores.parquet", table, Origin({**inputs, **texts}, SETTINGS))
        out = folder / "thresholds.json"
        calibrate_or_apply(ThresholdStage(str(folder), examples=str(file), out=str(out), **more))
        return folder, out

    return make


def labels_of(examples):
    return {e.example_id: e.label for e in examples}


def decided(folder, thresholds, *override):
    stage = ThresholdStage(
        str(folder), apply=str(thresholds), out=str(folder / "decided.csv"), override=[*override]
    )
    calibrate_or_apply(stage)
    return pd.read_csv(folder / "decided.csv")


def halves_of(examples):
    """Those that are calibrated on, by their ids."""
    return [e for e in examples if unit_hash(f"0 {e.example_id}") < 0.5]


def spread(members, nonmembers):
    """Ye et al. 2024, table 3: thresholds of random subsets of 10%, 20%, … 50% of each kind."""
    rng = np.random.default_rng(9)
    parts = [
        [rng.permutation(scores)[: int(share * len(scores))] for scores in (members, nonmembers)]
        for share in (0.1, 0.2, 0.3, 0.4, 0.5)
        for _ in range(40)
    ]
    return np.std([choose_threshold(*part, "accuracy") for part in parts])


def test_a_score_that_is_the_threshold_reaches_it():
    table, examples = scored(200, 2.0)
    found = calibrate(table, examples, "accuracy")
    at = [replace(one, value=table["score"][7]) for one in found]
    assert apply_thresholds(table, at)["member"].tolist() == [
        s >= table["score"][7] for s in table["score"]
    ]


def test_calibration_is_judged_on_other_texts():
    table, examples = scored(2_000, 2.0)
    fit = {e.example_id for e in halves_of(examples)}
    members, nonmembers = scores_by_membership(table, halves_of(examples))
    other_members, others = scores_by_membership(
        table, [e for e in examples if e.example_id not in fit]
    )
    own = np.sort(np.concatenate([members, nonmembers]))
    for rule in ("accuracy", "f1", "fpr"):
        (found,) = calibrate(table, examples, rule, fpr=0.05)
        below, above = own[np.searchsorted(own, found.value) + [-1, 0]]
        assert found.value == (below + above) / 2  # between two texts of the one split
        assert worth(members, nonmembers, found.value, rule, 0.05) == pytest.approx(
            naive(members, nonmembers, rule, 0.05)
        )
        tpr, fpr = (other_members >= found.value).mean(), (others >= found.value).mean()
        assert (found.tpr, found.fpr) == (tpr, fpr)  # of the other
        assert found.accuracy == pytest.approx((tpr + 1 - fpr) / 2)
        assert found.f1 == pytest.approx(worth(other_members, others, found.value, "f1", 0.05))
    (found,) = calibrate(table, examples, "accuracy")
    assert found.stability == pytest.approx(spread(members, nonmembers), rel=0.25)
    assert found.stability / found.stability_relative == pytest.approx(own.std(ddof=0))


def test_a_useless_score_is_no_better_than_chance_on_the_other_split():
    found = [calibrate(*scored(200, 0.0, seed), "accuracy")[0].accuracy for seed in range(40)]
    assert np.mean(found) == pytest.approx(0.5, abs=0.02)


def test_thresholds_are_saved_and_applied(calibrated, capsys):
    table, examples = scored(200, 3.0)
    folder, out = calibrated(table, labels_of(examples))
    (saved,) = json.loads(out.read_text())["thresholds"]
    read = decided(folder, out)
    assert (read["member"] == (read["score"] >= saved["value"])).all()
    assert "called members" in capsys.readouterr().out


def test_the_file_says_what_it_was_calibrated_on(calibrated):
    table, examples = scored(300, 1.0)
    labels = labels_of(examples)
    folder, out = calibrated(table, labels, seed=4, share=0.4)
    saved = json.loads(out.read_text())
    (one,) = saved["thresholds"]
    assert saved["models"] == MODELS
    assert (saved["seed"], saved["share"], saved["rule"]) == (4, 0.4, "accuracy")
    fit = {i for i in labels if unit_hash(f"4 {i}") < 0.4}
    members = sum(labels[i] for i in fit)
    assert (saved["members"], saved["nonmembers"]) == (members, len(fit) - members)
    assert saved["test_members"] + saved["test_nonmembers"] == 300 - len(fit)
    scores = table.set_index("example_id")["score"]
    test = [i for i in labels if i not in fit]
    expected = roc_auc_score([labels[i] for i in test], scores[test])
    assert one["auroc"] == pytest.approx(expected, abs=1e-12)
    assert 0.5 < one["auroc_low"] < expected < one["auroc_high"] < 1
    assert one["null"] == sorted(scores[i] for i in fit if not labels[i])
    digests = {saved["examples"]}
    swapped = {**labels, "0": True, "1": False}
    for name, other in (("same", labels), ("swapped", swapped)):
        _, other_out = calibrated(table, other, name=name, seed=4, share=0.4)
        digests.add(json.loads(other_out.read_text())["examples"])
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("thresholds", [], r"thresholds is \[\]"),
        ("thresholds", None, "thresholds is null"),
        ("thresholds", ["x"], r'thresholds\[0\] is "x"'),
        ("settings", None, "settings is null"),
        ("models", None, "models is null"),
        ("models", {"target": 3}, "models.target is 3"),
        ("prefix", 3, "prefix is 3"),
        ("members", "50", 'members is "50"'),
        ("members", None, "members is null"),
        ("members", True, "members is true"),
        ("test_members", 50.5, "test_members is 50.5"),
        ("fpr", "low", 'fpr is "low"'),
        ("settings", ..., "settings is missing"),
        ("note", "mine", "note is unknown"),
        ("thresholds.value", None, r"thresholds\[0\].value is null"),
        ("thresholds.auroc_low", float("nan"), r"thresholds\[0\].auroc_low is NaN"),
        ("thresholds.null", [1.0, "2"], r'thresholds\[0\].null\[1\] is "2"'),
        ("thresholds.null", ..., r"thresholds\[0\].null is missing"),
        ("thresholds.null_clusters", ..., r"thresholds\[0\].null_clusters is missing"),
        ("thresholds.null_clusters", [0, 1], r"m k=0.2 has 2 null_clusters for \d+ scores in null"),
    ],
)
def test_an_older_or_edited_file_is_refused(calibrated, field, value, said):
    table, examples = scored(200, 3.0)
    folder, out = calibrated(table, labels_of(examples))
    saved = json.loads(out.read_text())
    *inner, name = field.split(".")
    node = saved["thresholds"][0] if inner else saved
    node.pop(name, None)
    out.write_text(json.dumps(saved))
    if value is not ...:
        node[name] = value
        out.write_text(json.dumps(saved))
    with pytest.raises(
        DataError, match=rf"apply is '.*thresholds.json', where {said}: an earlier version wrote "
        "it, or it was edited: calibrate again",
    ) as caught:  # fmt: skip
        decided(folder, out, "model", "prefix", "settings", "chance", "size")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "3", '"x"', "{}", '{"auroc": 1}', "\udcff"])
def test_another_file_is_refused(calibrated, text):
    table, examples = scored(200, 3.0)
    folder, out = calibrated(table, labels_of(examples))
    out.write_text(text, errors="surrogateescape")
    with pytest.raises(DataError, match="it is not a file of thresholds .*Give a file that"):
        decided(folder, out)


def test_another_models_scores_are_refused(calibrated, capsys):
    table, examples = scored(400, 3.0)
    folder, out = calibrated(table, labels_of(examples))
    for role, words in (("target", "its target model is oneone"), ("reference", "its reference")):
        another = Origin({**MODELS, role: "another"}, SETTINGS)
        write_table(folder / "scores.parquet", table, another)
        with pytest.raises(DataError, match=rf"{words}.*of the scores another.*override=\[model\]"):
            decided(folder, out)
        assert len(decided(folder, out, "model")) == 400
    write_table(folder / "scores.parquet", table)  # of no known model
    with pytest.raises(DataError, match="that of the scores unknown"):
        decided(folder, out, "settings", "chance", "size")


@pytest.mark.parametrize(
    ("name", "other"), [("dtype", "bfloat16"), ("long_texts", "windowed"), ("min_scored_tokens", 2)]
)
def test_scores_of_other_settings_are_refused(calibrated, name, other):
    table, examples = scored(400, 3.0)
    folder, out = calibrated(table, labels_of(examples))
    for value in (other, "unknown"):
        changed = {n: value if n == name else v for n, v in SETTINGS.items() if value != "unknown"}
        write_table(folder / "scores.parquet", table, Origin(MODELS, changed))
        words = rf"its detection\.{name} is {SETTINGS[name]}, that of the scores {value}"
        with pytest.raises(DataError, match=rf"{words}.*override=\[settings\]"):
            decided(folder, out)
        assert len(decided(folder, out, "settings")) == 400


def test_scores_behind_another_prefix_are_refused(calibrated):
    table, examples = scored(400, 3.0)
    behind = {**MODELS, "prefix_texts": "these" * 8}
    folder, out = calibrated(table, labels_of(examples), behind)
    write_table(folder / "scores.parquet", table, Origin(MODELS, SETTINGS))  # no method asks for it
    assert len(decided(folder, out)) == 400
    other = Origin({**MODELS, "prefix_texts": "those" * 8}, SETTINGS)
    write_table(folder / "scores.parquet", table, other)
    words = r"its prefix \(prefix.path\) is thesetheseth.*that of the scores thosethoseth"
    with pytest.raises(DataError, match=rf"{words}.*override=\[prefix\]"):
        decided(folder, out)
    assert len(decided(folder, out, "prefix")) == 400


def test_thresholds_no_better_than_chance_are_refused(calibrated, capsys):
    table, examples = scored(400, 0.0)
    folder, out = calibrated(table, labels_of(examples))
    words = "m k=0.2 was no better than a guess on its .* test texts: AUROC 0"
    assert "`apply` will refuse the file without an override: m k=0.2" in capsys.readouterr().out
    with pytest.raises(DataError, match=rf"{words}.*override=\[chance\]"):
        decided(folder, out)
    assert len(decided(folder, out, "chance")) == 400
    good = scored(400, 3.0)[0].assign(method="good")
    folder, out = calibrated(pd.concat([table, good]), labels_of(examples), name="both")
    write_table(folder / "scores.parquet", good, Origin(MODELS, SETTINGS))
    assert len(decided(folder, out)) == 400  # the other method is not asked for


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("judged", [True, False])
def test_thresholds_of_a_few_texts_are_refused(calibrated, few, judged):
    table, examples = scored(200, 4.0)
    of_a_kind = [e for e in examples if e.label is few]
    fit = [e for e in of_a_kind if (unit_hash(f"0 {e.example_id}") >= 0.5) == judged]
    assert len(fit) > 20
    for left, refused in ((20, False), (19, True)):
        out_of = {e.example_id for e in fit[left:]}
        labels = {e.example_id: None if e.example_id in out_of else e.label for e in examples}
        folder, out = calibrated(table, labels, name=str(left))
        if refused:
            with pytest.raises(
                DataError, match=r"19 .*fewer than 20 of a label.*override=\[size\]"
            ):
                decided(folder, out)
        assert len(decided(folder, out, *["size"] * refused)) == 200


def test_thresholds_of_many_pieces_of_a_few_things_are_refused(calibrated):
    table, examples = scored(400, 4.0)
    things = {e.example_id: f"{e.label}{int(e.example_id) % 20}" for e in examples}
    folder, out = calibrated(table, labels_of(examples), clusters=things)
    with pytest.raises(DataError, match=r"fewer than 20 of a label.*override=\[size\]"):
        decided(folder, out)
    assert len(decided(folder, out, "size")) == 400


def test_p_values_count_the_calibrations_nonmembers():
    null = [0.0, 1.0, 1.0, 2.0]
    found = conformal_p_values(np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0]), np.array(null))
    assert found.tolist() == [5 / 5, 5 / 5, 4 / 5, 4 / 5, 2 / 5, 1 / 5]


def test_p_values_of_nonmembers_are_uniform():
    """Over calibrations and new non-members, P(p ≤ a) is ⌊a·(n+1)⌋ / (n+1), whatever the scores."""
    rng, n = np.random.default_rng(0), 39
    draws = rng.standard_t(2, (8_000, n + 1)) ** 3
    found = np.array([conformal_p_values(row[:1], row[1:])[0] for row in draws])
    counts = np.bincount(np.rint(found * (n + 1)).astype(int), minlength=n + 2)[1:]
    assert chisquare(counts).pvalue > 0.001
    tied = np.array([conformal_p_values(row[:1].round(), row[1:].round())[0] for row in draws])
    for level in (0.05, 0.25, 0.5):
        assert np.mean(found <= level) == pytest.approx(level, abs=4 * np.sqrt(0.25 / 8_000))
        assert np.mean(tied <= level) <= level + 4 * np.sqrt(level / 8_000)


def test_applied_to_new_nonmembers_few_p_values_are_small(calibrated):
    table, examples = scored(2_000, 1.0)
    folder, out = calibrated(table, labels_of(examples))
    new = scored(2_000, 0.0, seed=1)[0]
    write_table(folder / "scores.parquet", new, Origin(MODELS, SETTINGS))
    found = decided(folder, out)["p_value"]
    assert (found <= 0.05).mean() == pytest.approx(0.05, abs=0.03)
    assert found.mean() == pytest.approx(0.5, abs=0.04)


def test_pieces_of_one_thing_calibrate_or_judge_together():
    """Scores that say nothing but which of 40 things a text is a piece of."""
    table, examples = scored(800, 0.0)
    thing = {e.example_id: f"{e.label}{int(e.example_id) % 40}" for e in examples}
    effect = {name: n for n, name in enumerate(sorted(set(thing.values()), key=unit_hash))}
    table["score"] = table["example_id"].map(thing).map(effect) + 0.01 * table["score"]
    pieces = [replace(e, cluster=thing[e.example_id]) for e in examples]
    fit, judge = calibration_split(table, pieces, 0.5, 0)
    assert not {e.cluster for e in fit} & {e.cluster for e in judge}
    (alone,), (whole,) = (calibrate(table, own, "accuracy") for own in (examples, pieces))
    assert alone.auroc_high - alone.auroc_low < 0.15 < whole.auroc_high - whole.auroc_low
    least = apply_thresholds(table.assign(score=1_000.0), [whole])["p_value"]
    books = len({e.cluster for e in fit if not e.label})
    assert alone.null_clusters == []
    assert len(whole.null_clusters) == len(whole.null)
    np.testing.assert_allclose(least, 1 / (books + 1))
    two = [replace(e, cluster="a" if e.label else e.cluster) for e in pieces]
    with pytest.raises(DataError, match="lacks members|clusters of members"):
        calibrate(table, two, "accuracy")


def test_a_text_that_is_not_ranked_is_in_no_threshold_and_gets_no_verdict(calibrated):
    table, examples = scored(400, 3.0)
    out_of = table["example_id"].isin([str(i) for i in range(50)])
    table.loc[out_of, ["score", "ranked", "flag"]] = [99.0, False, "blank"]
    folder, out = calibrated(table, labels_of(examples))
    saved = json.loads(out.read_text())
    assert max(saved["thresholds"][0]["null"]) < 99
    assert sum(saved[k] for k in saved if k.endswith("members")) == 350
    found = decided(folder, out).set_index("example_id")
    blank = found.loc[range(50)]
    assert blank[["member", "p_value"]].isna().all(axis=None)
    assert found.loc[range(50, 400)][["member", "p_value"]].notna().all(axis=None)


def test_other_texts_than_were_scored_are_refused(calibrated, tmp_path):
    table, examples = scored(200, 3.0)
    folder, _ = calibrated(table, labels_of(examples))
    file = tmp_path / "other.jsonl"
    for text, name in (("another", "0"), ("t 0", "new")):
        lines = [{"text": f"t {e.example_id}", "id": e.example_id, "label": e.label}
                 for e in examples[1:]]  # fmt: skip
        lines.append({"text": text, "id": name, "label": 0})
        file.write_text("\n".join(map(json.dumps, lines)))
        with pytest.raises(DataError, match="these are not the texts of"):
            calibrate_or_apply(ThresholdStage(str(folder), examples=str(file)))


def test_a_users_folder_of_scores_knows_its_model(toy_folders, tmp_path, capsys):
    file = tmp_path / "x.jsonl"
    lines = [{"text": f"The {i}th of all the pears is ripe.", "label": i % 2} for i in range(120)]
    file.write_text("\n".join(map(json.dumps, lines)))
    folders = {}
    for role, model in toy_folders.items():
        stage = DetectionStage(
            runs=str(tmp_path / "runs"), out=str(tmp_path / role),
            examples=ExamplesConfig(str(file)), model=ScoredModelConfig(str(model)),
            method={"loss": {"_target_": "contamination.detection.methods.loss.Loss"}},
            detection=DetectionConfig(device="cpu"),
        )  # fmt: skip
        folders[role] = run(stage).path
    out = tmp_path / "thresholds.json"
    calibrate_or_apply(ThresholdStage(str(tmp_path / "target"), examples=str(file), out=str(out)))
    for folder in (folders["target"], tmp_path / "target"):
        calibrate_or_apply(ThresholdStage(str(folder), apply=str(out), out=str(tmp_path / "d.csv"),
                              override=["chance", "size"]))  # fmt: skip
    for folder in (folders["reference"], tmp_path / "reference"):
        with pytest.raises(DataError, match="its target model is"):
            calibrate_or_apply(ThresholdStage(str(folder), apply=str(out), override=["chance"]))


def test_scores_say_the_settings_and_the_prefix_whatever_the_texts(toy_folders, tmp_path, capsys):
    """The digest of what stands before some texts is of these texts too: others have another."""
    sentence = "The {}th of all the pears in the basket is ripe."
    before = [
        {"text": f"A stone, and the {n}th one, lies there.", "benchmark": "b"} for n in range(9)
    ]
    (tmp_path / "before.jsonl").write_text("\n".join(map(json.dumps, before)))
    recall = {"_target_": "contamination.detection.methods.recall.Recall", "shots": 2}
    origins = []
    for name, count in (("old", 120), ("new", 80)):
        lines = [{"text": sentence.format(f"{name} {i}"), "label": i % 2, "benchmark": "b"}
                 for i in range(count)]  # fmt: skip
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
        stage = DetectionStage(
            runs=str(tmp_path / "runs"), out=str(tmp_path / name), method={"recall": recall},
            examples=ExamplesConfig(str(tmp_path / f"{name}.jsonl")),
            model=ScoredModelConfig(str(toy_folders["target"])),
            prefix=PrefixConfig(str(tmp_path / "before.jsonl")),
            detection=DetectionConfig(device="cpu", long_texts="truncate", min_scored_tokens=3),
        )  # fmt: skip
        origins += [read_scores(folder)[1] for folder in (run(stage).path, tmp_path / name)]
    assert len({each.inputs["prefix"] for each in origins}) == 2
    assert len({each.inputs["prefix_texts"] for each in origins}) == 1
    expected = {
        "dtype": "float32",
        "long_texts": "truncate",
        "min_scored_tokens": 3,
        "scope": "whole",
    }
    assert [each.settings for each in origins] == [expected] * 4


def test_errors_name_what_is_missing(tmp_path):
    table, examples = scored(40, 1.0)
    with pytest.raises(ConfigError, match="rule is 'best'"):
        calibrate(table, examples, "best")
    with pytest.raises(DataError, match="lacks members or non-members"):
        calibrate(table, [e for e in examples if e.label], "accuracy")
    (member, *_), nonmembers = ([e for e in examples if e.label is x] for x in (True, False))
    split_names = set()
    for seed in range(8):
        with pytest.raises(DataError, match="split has .* lacks members") as caught:
            calibrate(table, [member, *nonmembers], "accuracy", seed=seed)
        split_names.add(str(caught.value).split(" has ")[0])
    assert split_names == {"the calibration split", "the evaluation split"}
    thresholds = calibrate(table, examples, "f1")
    with pytest.raises(DataError, match="other k=0.2: the file has no threshold"):
        apply_thresholds(table.assign(method="other"), thresholds)
    with pytest.raises(ConfigError, match="either examples"):
        ThresholdStage("x")
    with pytest.raises(
        ConfigError, match="override is .*choose from model, prefix, settings, chance, size"
    ):
        ThresholdStage("x", apply="y", override=["all"])
    write_table(tmp_path / "scores.parquet", table)
    with pytest.raises(DataError, match="not a file of thresholds"):
        calibrate_or_apply(ThresholdStage(str(tmp_path), apply=str(tmp_path / "none.json")))


@pytest.mark.parametrize("place", [30, 300, -30, -3, None])
def test_a_damaged_file_of_scores_is_said(tmp_path, place):
    file = tmp_path / "scores.parquet"
    write_table(file, scored(40, 1.0)[0])
    content = bytearray(file.read_bytes())
    content[place or 0 : (place or 0) + 20] = b"\xff" * 20
    file.write_bytes(content if place else content[: len(content) // 2])
    with pytest.raises(DataError, match=r"scores is .*scores.parquet is damaged"):
        read_scores(tmp_path)


def test_no_bit_of_a_file_of_scores_can_be_another(tmp_path):
    file = tmp_path / "scores.parquet"
    write_table(file, scored(40, 1.0)[0])
    content = file.read_bytes()
    for place in range(0, len(content), 29):  # its footer, which names the inputs, too
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DataError, match="is damaged"):
            read_scores(tmp_path)

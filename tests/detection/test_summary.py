"""The summary that a detection prints."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from contamination.core.statistics.estimates import Estimate
from contamination.data.texts import Text
from contamination.detection.baselines.blind import BlindBaseline
from contamination.detection.summary import summarise_scores, with_ranks


def scored(labels, benchmarks=("",)):
    rng = np.random.default_rng(0)
    examples = [
        Text(f"x{i}", f"text {i}", str(i), label, benchmarks[i % len(benchmarks)])
        for i, label in enumerate(labels)
    ]
    table = pd.DataFrame(
        [(e.example_id, m, "", rng.normal()) for m in ("a", "b") for e in examples],
        columns=["example_id", "method", "variant", "score"],
    )
    return table.assign(flag="", ranked=True), examples


def test_with_labels_it_prints_the_metrics_of_each_group():
    labels = [i % 3 == 0 for i in range(60)]
    table, examples = scored(labels, ("one", "two"))
    shown = summarise_scores(table, examples)
    assert "all, the mean over 2 benchmarks: 20 members, 40 non-members" in shown
    assert "pooled over all texts: 20 members, 40 non-members" in shown
    assert "one: 10 members" in shown
    expected = roc_auc_score(labels, table[table["method"] == "b"]["score"])
    assert f"{expected:.3f} [" in shown


def test_without_labels_it_prints_the_likeliest_members():
    table, examples = scored([None] * 8)
    best = table[table["method"] == "a"].nlargest(1, "score")["example_id"].item()
    shown = summarise_scores(table, examples)
    assert "8 texts without labels" in shown
    first = next(line for line in shown.splitlines() if line.split()[:1] == ["1"])
    assert best in first
    assert with_ranks(table).groupby("method")["rank"].max().tolist() == [8, 8]


def test_texts_with_one_score_share_the_better_rank():
    table, _ = scored([None] * 4)
    assert with_ranks(table.assign(score=[1.0, 3, 3, 2] * 2))["rank"].tolist() == [4, 1, 1, 3] * 2


def test_a_group_of_one_kind_has_no_metric():
    table, examples = scored([True, False, True, True], ("one", "two"))
    assert "one: 2 members, 0 non-members: no metric without both" in summarise_scores(
        table, examples
    )
    assert "all, the mean over 2 benchmarks: needs non-members in one\n" in summarise_scores(
        table, examples
    )


def test_one_benchmark_is_printed_once():
    table, examples = scored([True, False] * 5)
    assert summarise_scores(table, examples).startswith("texts: 5 members, 5 non-members")
    assert "pooled" not in summarise_scores(table, examples)
    assert "all" not in summarise_scores(table, examples)


def test_a_long_name_leaves_the_columns_in_line():
    table, examples = scored([True, False] * 5)
    table["method"] = table["method"].replace("b", "reference_upper_bound")
    head, *rows = summarise_scores(table, examples).splitlines()[-3:]
    assert head.startswith("method")
    assert {len(row) for row in rows} == {len(head)}


def worded(labels, changed, benchmarks=("",)):
    """As `scored`, each text of random words; `changed` is what happens to the members' texts."""
    rng = np.random.default_rng(1)
    table, examples = scored(labels, benchmarks)
    words = [
        " ".join(rng.choice(["river", "of", "the", "film", "good", "why"], 12)) for _ in labels
    ]
    texts = [changed(w) if e.label else w for w, e in zip(words, examples, strict=True)]
    return table, [replace(e, text=text) for e, text in zip(examples, texts, strict=True)]


def test_texts_that_tell_members_are_said_above_their_table():
    table, examples = worded([True, False] * 20, str.title)
    lines = summarise_scores(table, examples).splitlines()
    assert lines[0].startswith("texts: 20 members")
    assert lines[1].startswith("The texts alone tell members from non-members (blind AUROC 1.00 [")
    assert lines[1].endswith("these figures may measure the texts, not the model.")
    assert lines[2].startswith("method")
    assert lines[-1].split()[:2] == ["blind", "1.000"]


def test_several_benchmarks_are_warned_of_as_one_family(monkeypatch):
    """A blind interval that just excludes 0.5 warns of one benchmark, not of one among several."""
    draws = np.random.default_rng(0).normal(0.605, 0.05, 1000)
    marginal = Estimate(20, 20, 0.605, draws, trials=400)
    monkeypatch.setattr(BlindBaseline, "estimates", lambda self, m, n, wanted, d: {
        each.name: replace(marginal, steps=None) for each in wanted
    })  # fmt: skip
    labels = [True, True, False, False] * 20
    one = summarise_scores(*worded(labels, str))
    assert one.count("(blind AUROC 0.60 [0.51, ") == 1
    assert "texts alone" not in summarise_scores(*worded(labels, str, ["a", "b"]))


def test_sound_texts_have_a_blind_row_and_no_warning():
    table, examples = worded([True, False] * 20, str)
    shown = summarise_scores(table, examples)
    assert "texts alone" not in shown
    blind = shown.splitlines()[-1].split()
    low, high = float(blind[2].strip("[],")), float(blind[3].strip("[],"))
    assert blind[0] == "blind"
    assert low < 0.5 < high


def test_too_few_texts_have_no_blind_row_and_say_why():
    labels = [i < 30 and i % 2 == 0 for i in range(60)]
    table, examples = worded(labels, str)
    examples = [replace(e, benchmark="few" if i < 12 else "many") for i, e in enumerate(examples)]
    mean, few, many, pooled = summarise_scores(table, examples).split("\n\n")
    reason = "no blind row: 6 members and 6 non-members (12 distinct texts) are too few"
    assert few.splitlines()[1].startswith(reason)
    for part, lines in ((few, 0), (mean, 0), (many, 0), (pooled, 1)):
        assert len([line for line in part.splitlines() if line.startswith("blind ")]) == lines
    assert "no blind row: 9 members and 39 non-members" in many


def test_the_mean_over_benchmarks_has_the_mean_blind_auroc():
    table, examples = worded([i % 2 == 0 for i in range(80)], str, ["one"])
    examples = [replace(e, benchmark="one" if i < 40 else "two") for i, e in enumerate(examples)]
    mean, one, two, _ = summarise_scores(table, examples).split("\n\n")
    values = [float(part.splitlines()[-1].split()[1]) for part in (mean, one, two)]
    assert values[0] == pytest.approx((values[1] + values[2]) / 2, abs=1e-3)


def test_labels_of_one_kind_have_no_blind_row_and_say_why():
    table, examples = worded([True] * 12, str)
    assert "without labels of both kinds, so no metric and no blind row" in summarise_scores(
        table, examples
    )


def test_windows_of_one_text_have_no_blind_row():
    table, examples = worded([True, False] * 20, str.title)
    shown = summarise_scores(table, examples, blind=False)
    assert "blind" not in shown


def line_of(shown, start):
    return next(line for line in shown.splitlines() if line.startswith(start))


def test_a_rate_that_so_few_texts_cannot_carry_is_no_number():
    table, examples = scored([i % 3 == 0 for i in range(297)])  # 99 members, 198 non-members
    rates = line_of(summarise_scores(table, examples), "b ").split("]")
    assert len(rates) == 3  # AUROC and TPR at 5%, each with an interval
    assert rates[2].strip() == "needs ≥ 100 members"


def test_the_mean_names_the_benchmark_that_cannot_carry_a_rate():
    table, examples = scored([i % 8 < 4 for i in range(400)], ("one", "two"))
    lacking = [e for e in examples if e.benchmark == "one" or e.label or int(e.example_id[1:]) > 50]
    kept = table[table["example_id"].isin([e.example_id for e in lacking])]
    parts = dict.fromkeys(("all", "one", "two", "pooled"), "")
    for part in summarise_scores(kept, lacking).split("\n\n"):
        parts[part.replace(":", ",").replace(" ", ",").split(",")[0]] = line_of(part, "b ")
    assert "needs ≥ 100 non-members in two" in parts["all"]
    assert "needs" not in parts["one"]
    assert "needs ≥ 100 non-members" in parts["two"]
    assert "needs" not in parts["pooled"]

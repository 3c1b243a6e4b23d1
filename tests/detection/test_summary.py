import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from detection.examples import Text
from detection.summary import ranked, summary


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
    shown = summary(table, examples)
    assert "all, the mean over 2 benchmarks: 20 members, 40 non-members" in shown
    assert "pooled over all texts: 20 members, 40 non-members" in shown
    assert "one: 10 members" in shown
    expected = roc_auc_score(labels, table[table["method"] == "b"]["score"])
    assert f"{expected:.3f} [" in shown


def test_without_labels_it_prints_the_likeliest_members():
    table, examples = scored([None] * 8)
    best = table[table["method"] == "a"].nlargest(1, "score")["example_id"].item()
    shown = summary(table, examples)
    assert "8 texts without labels" in shown
    first = next(line for line in shown.splitlines() if line.split()[:1] == ["1"])
    assert best in first
    assert ranked(table).groupby("method")["rank"].max().tolist() == [8, 8]


def test_a_group_of_one_kind_has_no_metric():
    table, examples = scored([True, False, True, True], ("one", "two"))
    assert "one: 2 members, 0 non-members: no metric without both" in summary(table, examples)
    assert "all, the mean over 2 benchmarks: none, since one lack" in summary(table, examples)


def test_one_benchmark_is_printed_once():
    table, examples = scored([True, False] * 5)
    assert summary(table, examples).startswith("texts: 5 members, 5 non-members")
    assert "pooled" not in summary(table, examples)
    assert "all" not in summary(table, examples)

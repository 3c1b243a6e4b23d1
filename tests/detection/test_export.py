"""Scores for a reader: what stands beside them."""

import json

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from contamination.core.statistics.significance import clustered_p_values
from contamination.detection.__main__ import main
from contamination.detection.summary import p_values
from tests.detection.conftest import MEMORISED, NOUNS, UNSEEN


def by_loop(rows):
    """Each text against the other ranked non-members of its benchmark."""
    found = []
    for i, row in enumerate(rows):
        null = [
            other["score"] for j, other in enumerate(rows)
            if j != i and other["ranked"] and other["label"] is False
            and other["benchmark"] == row["benchmark"]
        ]  # fmt: skip
        known = row["ranked"] and (null or row["label"] is False)
        reaching = sum(score >= row["score"] for score in null)
        found.append((1 + reaching) / (1 + len(null)) if known else float("nan"))
    return found


@pytest.mark.parametrize("digits", [1, 12])
def test_p_values_are_those_of_a_loop(digits):
    rng = np.random.default_rng(digits)
    rows = [
        {
            "score": round(rng.normal(), digits),
            "ranked": bool(rng.random() < 0.9),
            "label": [True, False, None][rng.integers(3)],
            "benchmark": ["a", "b", "no non-members"][min(2, int(rng.integers(5)))],
        }
        for _ in range(300)
    ]
    for row in rows:
        if row["benchmark"] == "no non-members" and row["label"] is False:
            row["label"] = None
    table = pd.DataFrame(rows, index=[f"t{i}" for i in range(len(rows))])
    table["label"] = table["label"].astype("boolean")
    np.testing.assert_allclose(p_values(table), by_loop(rows), rtol=1e-12)


def test_p_values_of_pieces_count_whole_clusters():
    rng = np.random.default_rng(0)
    cluster, label = rng.integers(9, size=80), rng.integers(2, size=80).astype(bool)
    label[cluster == 8] = True  # a cluster without a non-member
    scores = rng.normal(size=80).round(1)
    frame = {"score": scores, "ranked": True, "benchmark": "", "label": label, "cluster": cluster}
    expected = []
    for own, score in zip(cluster, scores, strict=True):
        others = [scores[(cluster == k) & ~label] for k in range(8) if k != own]
        expected.append((1 + sum(np.mean(each >= score) for each in others)) / (1 + len(others)))
    np.testing.assert_allclose(p_values(pd.DataFrame(frame)), expected, rtol=1e-9)
    alone = {**frame, "cluster": np.arange(80)}
    single = {name: values for name, values in frame.items() if name != "cluster"}
    assert p_values(pd.DataFrame(alone)).tolist() == p_values(pd.DataFrame(single)).tolist()


def test_the_highest_of_twenty_clusters_has_the_least_p_value_whatever_their_sizes():
    """Shares such as 49 × 1/49 don't sum up to 1, but p is 1/20 all the same: it is ≤ 0.05."""
    cluster = np.repeat(np.arange(20), np.arange(31, 51))
    frame = {"score": cluster, "ranked": True, "benchmark": "", "label": False, "cluster": cluster}
    found = p_values(pd.DataFrame(frame).astype({"label": "boolean"}))
    assert found.tolist() == [(20 - k) / 20 for k in cluster]


@pytest.mark.parametrize("common", [0.3, 1.0])
def test_however_alike_pieces_are_few_new_ones_have_small_p_values(common):
    """A text of an eleventh cluster; the ten others have 2 to 38 pieces."""
    rng, sizes = np.random.default_rng(1), 2 + 4 * np.arange(10)
    found = []
    for _ in range(1_000):
        cluster = np.append(np.repeat(np.arange(10), rng.permutation(sizes)), 10)
        parts = rng.normal(size=11)[cluster], rng.normal(size=len(cluster))
        scores = np.sqrt(common) * parts[0] + np.sqrt(1 - common) * parts[1]
        found += [*clustered_p_values(scores[-1:], cluster[-1:], scores[:-1], cluster[:-1])]
    for level in (0.01, 0.05, 0.1, 0.2, 0.5):
        assert (np.array(found) <= level).mean() <= level + 4 * np.sqrt(level / 1_000)


def test_a_text_that_is_like_the_nonmembers_has_a_uniform_p_value():
    """Over 1,000 draws of 19 non-members and one more text: each of 20 values 1 time in 20."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(1_000, 20))
    label = pd.array([False] * 19 + [None], "boolean")
    frame = {"ranked": True, "benchmark": "", "label": label}
    found = np.stack([p_values(pd.DataFrame({"score": row, **frame})) for row in scores])
    for column in (0, 19):  # one of the non-members; the other text
        values, counts = np.unique(found[:, column].round(9), return_counts=True)
        assert len(values) == 19 + (column == 19)
        assert np.abs(counts / 1000 - 1 / len(values)).max() < 4 * np.sqrt(0.05 / 1000)


def test_out_holds_what_was_given_and_the_printed_numbers(toy_folders, tmp_path, capsys):
    rows = [{"text": MEMORISED, "label": "member", "benchmark": "=b"}]
    rows += [
        {"text": f"A {n} sits by the old road.", "label": "no", "benchmark": "=b"} for n in NOUNS
    ]
    rows += [{"text": UNSEEN, "benchmark": "=b"}, {"text": UNSEEN, "benchmark": "=b"}]
    rows += [{"text": MEMORISED.upper(), "label": 0, "benchmark": "=b"}]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "runs": str(tmp_path / "runs"), "out": str(tmp_path / "out"), "out_text": True,
        "examples": {"path": str(tmp_path / "texts.jsonl")}, "detection": {"device": "cpu"},
        "model": {"path": str(toy_folders["target"])},
        "method": {"loss": {"_target_": "contamination.detection.methods.loss.Loss"}},
    }  # fmt: skip
    main(OmegaConf.create(config))
    shown = capsys.readouterr().out
    repeated, near, *_ = shown.splitlines()
    assert repeated.startswith("1 of 12 texts are exact duplicates of another one, such as 10 of 9")
    assert near.startswith("1 members and 1 non-members are near-duplicates of one another (")
    table = pd.read_parquet(tmp_path / "out" / "scores.parquet")
    assert table["text"].tolist() == [row["text"] for row in rows]
    assert table["label"].tolist() == [True, *[False] * 8, None, None, False]
    assert table["p_value"][0] == pytest.approx(1 / 10)
    csv = pd.read_csv(tmp_path / "out" / "scores.csv")
    assert set(csv["benchmark"]) == {"'=b"}  # no formula
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    (auroc,) = [row for row in results["results"] if row["metric"] == "auroc"]
    assert f"{auroc['value']:.3f} [{auroc['low']:.3f}, {auroc['high']:.3f}]" in shown
    assert results["notes"][:2] == [repeated, near]
    assert any("no blind row" in note for note in results["notes"])

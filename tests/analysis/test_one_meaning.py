"""The mean over benchmarks is called "all": in the report, on the command line and in wandb."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from analysis.cells import make_cell
from analysis.config import AnalysisConfig
from analysis.inference.curves import histogram_table, samples
from analysis.inference.results import results_table
from analysis.mirror import keys
from detection.examples import Text
from detection.summary import summary

LEVEL = {"boolq": 0.0, "imdb": 3.0}
"""One benchmark's texts score far above the other's: a pooled AUROC is another number."""


@pytest.fixture(scope="module")
def parts():
    from tests.analysis.conftest import simulate_parts

    made = simulate_parts()
    examples = made["corpus"].examples
    few = examples["benchmark"].eq("imdb") & ~examples["member"]  # unequal sizes
    kept = examples[~few | (few.groupby(few).cumcount() < 24)]
    made["corpus"] = replace(made["corpus"], examples=kept)
    level = examples.set_index("example_id")["benchmark"].map(LEVEL)
    for name in ("clean", "contaminated"):
        table = made[name].table
        table = table[table["example_id"].isin(kept["example_id"])]
        score = table["score"] + table["example_id"].map(level)
        made[name] = replace(made[name], table=table.assign(score=score))
    return made


@pytest.fixture(scope="module")
def expected(parts):
    """AUROC of Min-K%: the mean over benchmarks, and pooled (scikit-learn)."""
    table = parts["contaminated"].table.query("method == 'min_k'").set_index("example_id")
    examples = parts["corpus"].examples
    scored = examples.assign(score=table["score"][examples["example_id"]].to_numpy())
    by = [roc_auc_score(p["member"], p["score"]) for _, p in scored.groupby("benchmark")]
    pooled = roc_auc_score(scored["member"], scored["score"])
    assert abs(np.mean(by) - pooled) > 0.02  # else the test could not tell
    return {"all": np.mean(by), "pooled": pooled}


@pytest.fixture(scope="module")
def results(parts):
    return results_table("trial", 0, [make_cell(**parts)], AnalysisConfig(draws=50))


def printed(parts):
    """The command line's tables: their first word → Min-K%'s line."""
    texts = [
        Text(row.example_id, row.text, row.example_id, bool(row.member), row.benchmark)
        for row in parts["corpus"].examples.itertuples()
    ]
    found = {}
    for part in summary(parts["contaminated"].table, texts).split("\n\n"):
        line = next(line for line in part.splitlines() if line.startswith("min_k "))
        found[part.replace(",", " ").replace(":", " ").split()[0]] = line
    return found


def test_all_is_the_mean_over_benchmarks_in_the_report_and_wandb(results, expected):
    chosen = results.query("metric == 'auroc' and benchmark == 'all' and occurrences == 'any'")
    chosen = chosen.query("checkpoint == 'contaminated' and method == 'min_k'")
    assert chosen["value"].item() == pytest.approx(expected["all"], abs=1e-12)
    assert keys.summary(results)["auroc/min_k/all"] == pytest.approx(expected["all"], abs=1e-12)


def test_the_command_line_prints_the_same_all_and_calls_the_pooled_figure_pooled(parts, expected):
    lines = printed(parts)
    assert f" {expected['all']:.3f} [" in lines["all"]
    assert f" {expected['pooled']:.3f} [" in lines["pooled"]
    assert list(lines) == ["all", "boolq", "imdb", "pooled"]


def test_a_histogram_of_all_is_the_mean_of_the_benchmarks_shares(parts):
    bins = histogram_table(samples([make_cell(**parts)], 0))
    bins = bins.query("checkpoint == 'contaminated' and method == 'loss' and side == 'non-members'")
    wide = bins.pivot(index="centre", columns="benchmark", values="share")
    np.testing.assert_allclose(wide["all"], wide[["boolq", "imdb"]].mean(axis=1))

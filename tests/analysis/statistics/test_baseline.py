"""The blind baseline of a cell's benchmarks, and its place in the results."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pandas as pd

from contamination.analysis.cells import make_cell
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.statistics.results_table import make_blind_baseline
from contamination.detection.baselines.blind import blind_obstacle
from tests.analysis.conftest import results_table

WORDS = np.array([f"word{i}" for i in range(60)])


def texts(n: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 25)) for _ in range(n)]


def table(text: list[str], member: np.ndarray, benchmark: str = "boolq") -> pd.DataFrame:
    return pd.DataFrame({"benchmark": benchmark, "text": text, "member": member})


def test_places_are_a_function_of_the_seed_and_of_each_benchmark_alone(caplog):
    """Also of the same texts, and beside a benchmark of too few, which is left out and said."""
    one = table(texts(40, 7), np.arange(40) % 2 == 0)
    few = table(["a", "", "b c"], np.array([True, False, False]), "arc")
    with caplog.at_level(logging.WARNING):
        found = make_blind_baseline(
            pd.concat([one.assign(benchmark="imdb"), few, one]), 4, 3
        ).percentiles
    same, lacking, own = np.split(found, [40, 43])
    np.testing.assert_array_equal(make_blind_baseline(one, folds=4, seed=3).percentiles, own)
    others = make_blind_baseline(one, folds=5, seed=3), make_blind_baseline(one, 4, 4)
    for other in (same, *(blind.percentiles for blind in others)):
        assert (other != own).any()
        assert not np.isnan(other).any()
    assert np.isnan(lacking).all()
    why = blind_obstacle(few["text"].tolist(), few["member"].to_numpy())
    assert caplog.messages == [f"arc: {why}; it is left out."]


def test_a_shift_in_the_texts_shows_in_the_results(make_parts):
    """Members in upper case: the baseline's interval leaves 0.5 out, by dose and over all."""
    parts = make_parts(benchmarks=["boolq"], doses=[1, 4])
    examples = parts["corpus"].examples
    upper = examples["text"].str.upper().where(examples["member"], examples["text"])
    shifted = replace(parts["corpus"], examples=examples.assign(text=upper))
    cells = [make_cell(**parts), make_cell(**{**parts, "corpus": shifted})]
    before, after = (
        results_table("trial", 0, [cell], AnalysisConfig(draws=100)).set_index("method")
        for cell in cells
    )
    blind = after.loc["blind"].query("metric == 'auroc'")
    assert set(blind["occurrences"]) == {"1", "4", "any"}
    assert (blind["value"] > 0.95).all()
    assert (blind["ci_low"] > 0.5).all()
    assert (before.loc["blind"].query("metric == 'auroc'")["ci_low"] < 0.5).all()
    for method in ("loss", "min_k"):  # no detector's figure depends on the baseline
        np.testing.assert_array_equal(before.loc[method, "value"], after.loc[method, "value"])

"""The mean over benchmarks is called "all": in the report, on the command line and in wandb."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from contamination.analysis.cells import make_cell
from contamination.analysis.charts.gallery import charts_of_condition, charts_over_conditions
from contamination.analysis.config import AnalysisConfig, AnalysisStage, CellPaths
from contamination.analysis.page.build import page_data
from contamination.analysis.report_files import gather_findings
from contamination.analysis.statistics.curves import histogram_table, roc_table, score_samples
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.analysis.wandb import keys
from contamination.data.texts import Text
from contamination.detection.summary import summarise_scores
from tests.analysis.conftest import results_table

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


def shown(parts):
    """What the command line prints."""
    texts = [
        Text(row.example_id, row.text, row.example_id, bool(row.member), row.benchmark)
        for row in parts["corpus"].examples.itertuples()
    ]
    return summarise_scores(parts["contaminated"].table, texts)


def printed(parts):
    """The command line's tables: their first word → Min-K%'s line."""
    found = {}
    for part in shown(parts).split("\n\n"):
        line = next(line for line in part.splitlines() if line.startswith("min_k "))
        found[part.replace(",", " ").replace(":", " ").split()[0]] = line
    return found


def test_all_is_the_mean_over_benchmarks_in_the_report_and_wandb(results, expected):
    chosen = results.query("metric == 'auroc' and benchmark == 'all' and occurrences == 'any'")
    chosen = chosen.query("checkpoint == 'contaminated' and method == 'min_k'")
    assert chosen["value"].item() == pytest.approx(expected["all"], abs=1e-12)
    assert keys.summary_values(results)["auroc/min_k/all"] == pytest.approx(
        expected["all"], abs=1e-12
    )


def test_the_command_line_prints_the_same_all_and_calls_the_pooled_figure_pooled(parts, expected):
    lines = printed(parts)
    assert f" {expected['all']:.3f} [" in lines["all"]
    assert f" {expected['pooled']:.3f} [" in lines["pooled"]
    assert list(lines) == ["all", "boolq", "imdb", "pooled"]


def test_a_histogram_of_all_is_the_mean_of_the_benchmarks_shares(parts):
    bins = histogram_table(score_samples([make_cell(**parts)]))
    bins = bins.query("checkpoint == 'contaminated' and method == 'loss' and side == 'non-members'")
    wide = bins.pivot(index="centre", columns="benchmark", values="share")
    np.testing.assert_allclose(wide["all"], wide[["boolq", "imdb"]].mean(axis=1))


LACKS = {"members": "members in imdb", "non-members": "non-members in imdb"}


def lacking(kind, learning_rate=1e-3):
    """A cell's parts in which imdb has no examples of this kind."""
    from tests.analysis.conftest import simulate_parts

    made = simulate_parts(learning_rate=learning_rate)
    examples = made["corpus"].examples
    gone = examples["benchmark"].eq("imdb") & examples["member"].eq(kind == "members")
    made["corpus"] = replace(made["corpus"], examples=examples[~gone])
    for name in ("clean", "contaminated"):
        table = made[name].table
        kept = table["example_id"].isin(examples["example_id"][~gone])
        made[name] = replace(made[name], table=table[kept])
    return made


@pytest.mark.parametrize("kind", LACKS)
def test_where_a_benchmark_lacks_a_kind_all_has_no_number_and_names_it_everywhere(kind):
    parts = lacking(kind)
    results = results_table("trial", 0, [make_cell(**parts)], AnalysisConfig(draws=20))
    over = results.query("metric == 'auroc' and benchmark == 'all'")
    assert set(over["occurrences"]) == {"1", "2", "4", "8", "any"}
    assert set(over["method"]) == {"blind", "loss", "min_k", "min_k_plus_plus"}
    assert over[["value", "ci_low", "ci_high"]].isna().all(axis=None)
    assert set(over["needs"]) == {LACKS[kind]}
    members = over["occurrences"].eq("any").map({True: 32, False: 8})
    assert (over["n_members"] == members * (1 + (kind == "non-members"))).all()
    assert set(results["benchmark"]) == {"all", "boolq"}
    rates = results.query("metric != 'auroc' and benchmark == 'all'")
    assert rates["value"].isna().all()
    assert rates["needs"].str.contains("imdb|per benchmark").all()
    logged = keys.summary_values(results)
    assert logged["needs/auroc/min_k/all"] == LACKS[kind]
    assert "auroc/min_k/all" not in logged
    assert shown(parts).startswith(f"all, the mean over 2 benchmarks: needs {LACKS[kind]}\n\n")


def test_a_seed_that_lacks_a_kind_leaves_the_condition_without_all():
    from tests.analysis.conftest import simulate_parts

    short = lacking("non-members")
    short["corpus"] = replace(short["corpus"], config={**short["corpus"].config, "seed": 1})
    cells = [make_cell(**simulate_parts()), make_cell(**short)]
    pooled = compute_statistics("trial", 0, cells, AnalysisConfig(draws=20)).pooled
    rows = pooled.query("metric == 'auroc' and occurrences == 'any' and method == 'loss'")
    assert set(rows.query("benchmark == 'all'")["needs"]) == {LACKS["non-members"]}
    assert rows.query("benchmark != 'all'")["value"].notna().all()


def test_a_report_without_all_says_so_and_draws_the_benchmarks_that_it_has():
    cells = [make_cell(**lacking("non-members", rate)) for rate in (1e-3, 1e-4)]
    where = [CellPaths("corpus", "model", "clean", "contaminated")]
    stage = AnalysisStage("trial", 0, cells=where, analysis=AnalysisConfig(draws=20))
    made = compute_statistics("trial", 0, cells, stage.analysis)
    findings = gather_findings(stage, cells, made, [])
    words, *controls = next(iter(findings.sentences.values()))
    assert words == "all, the mean over benchmarks: needs non-members in imdb."
    assert all("worst benchmark: boolq, " in said for said in controls)
    first, second = (findings.restrict_to_condition(name) for name in findings.rows_by_condition)
    drawn = chain(
        charts_of_condition(first), charts_of_condition(second), charts_over_conditions(findings)
    )
    assert {chart.name.split("-")[0] for chart in drawn} == {"auroc_by_benchmark"}
    texts = [table.markdown() for table in chain(*findings.tables.values())]
    assert any("needs non-members in imdb" in text for text in texts)
    assert "all" in page_data(findings)["benchmarks"]  # its captions say what is not shown


def test_the_curves_of_all_are_there_only_where_every_benchmark_is():
    for kind in LACKS:
        found = score_samples([make_cell(**lacking(kind))])
        for table in (histogram_table(found), roc_table(found, AnalysisConfig(draws=20), 0)):
            assert set(table["benchmark"]) == {"boolq"}

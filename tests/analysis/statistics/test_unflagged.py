"""Results with and without the examples that a corpus holds beside their copies."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.cells import CLEAN, CONTAMINATED, make_cell
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.statistics.flagged import unflagged_sentences
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.analysis.summary import sentences_by_condition
from contamination.analysis.tables.statistical import condition_tables
from contamination.core.statistics.metrics import AUROC
from contamination.injection.contamination_table import CONTAMINATION_COLUMN

CONFIG = AnalysisConfig(draws=50, fpr=[0.25], tpr=[0.75])


def flagged_cell(make_parts, **how):
    """Three of BoolQ's non-members score above all others, and are flagged with one member."""
    parts = make_parts(**how)
    examples = parts["corpus"].examples
    names = ["boolq-000", "boolq-040", "boolq-041", "boolq-042"]
    column = examples["example_id"].isin(names).map({True: "base: 13-gram", False: ""})
    parts["corpus"].examples[CONTAMINATION_COLUMN] = column
    table = parts["contaminated"].table
    table.loc[table["example_id"].isin(names[1:]), "score"] += 50
    return make_cell(**parts), names


def plain_auroc(cell, method, benchmark, without=()):
    own = cell.examples[(cell.examples["benchmark"] == benchmark)]
    own = own[~own["example_id"].isin(without)]
    table = cell.scores[CONTAMINATED].xs(method, axis=1, level="method").iloc[:, 0]
    scores = table.loc[own["example_id"]].to_numpy()
    member = own["member"].to_numpy(bool)
    pairs = scores[member][:, None] - scores[~member][None]
    return float(np.mean((pairs > 0) + 0.5 * (pairs == 0)))


def test_the_table_is_that_of_the_other_examples(make_parts):
    cell, names = flagged_cell(make_parts)
    made = compute_statistics("trial", 0, [cell], CONFIG)
    rows = made.unflagged.set_index(["checkpoint", "method", "benchmark"])
    for method in ("loss", "min_k"):
        boolq = rows.loc[(CONTAMINATED, method, "boolq"), :]
        assert boolq["value"] == plain_auroc(cell, method, "boolq", names)
        assert boolq["value"] > plain_auroc(cell, method, "boolq") + 0.05
        assert (boolq["n_members"], boolq["n_nonmembers"]) == (31, 29)
        assert (boolq["flagged_members"], boolq["flagged_nonmembers"]) == (1, 3)
        imdb = rows.loc[(CONTAMINATED, method, "imdb"), :]
        assert imdb["value"] == plain_auroc(cell, method, "imdb")
        assert (imdb["n_members"], imdb["flagged_members"]) == (32, 0)
        mean = rows.loc[(CONTAMINATED, method, "all"), :]
        assert mean["value"] == (boolq["value"] + imdb["value"]) / 2
    assert {CLEAN, CONTAMINATED} == {*made.unflagged["checkpoint"]}
    assert {*made.unflagged["metric"]} == {AUROC.name}


def test_the_report_says_how_many_and_shows_both(make_parts):
    cell, _ = flagged_cell(make_parts)
    made = compute_statistics("trial", 0, [cell], CONFIG)
    (sentence,) = unflagged_sentences(made.pooled, made.unflagged, cell.condition)
    start = (
        "Examples that share text with a corpus beside their copies: boolq (1 member, 3 "
        "non-members). Without them the AUROC of "
    )
    assert sentence.startswith(start)
    assert sentence in sentences_by_condition(made, 0.95)[cell.condition]
    (table,) = [t for t in condition_tables(made, cell.condition) if t.name == "without_flagged"]
    assert table.header[1:] == [
        "all examples, contaminated model",
        "without the flagged, contaminated model",
        "all examples, clean model",
        "without the flagged, clean model",
    ]
    values = {
        (row["method"], kind): f"{row['value']:.2f}"
        for kind, rows in (("all", made.pooled), ("left", made.unflagged))
        for row in rows[
            (rows["checkpoint"] == CONTAMINATED)
            & (rows["benchmark"] == "all")
            & (rows["occurrences"] == "any")
            & (rows["metric"] == AUROC.name)
        ].to_dict("records")
    }
    for line in table.lines:
        assert line[1].startswith(values[line[0].split(" ")[0], "all"])
        assert line[2].startswith(values[line[0].split(" ")[0], "left"])


def test_nothing_is_said_where_nothing_is_flagged(make):
    cell = make()
    assert (cell.examples[CONTAMINATION_COLUMN] == "").all()
    made = compute_statistics("trial", 0, [cell], CONFIG)
    assert made.unflagged.empty
    assert unflagged_sentences(made.pooled, made.unflagged, cell.condition) == []
    assert "without_flagged" not in [t.name for t in condition_tables(made, cell.condition)]


def test_the_intervals_are_those_corrected_for_the_choice_of_the_best_method(make_parts):
    cell, _ = flagged_cell(make_parts)
    made = compute_statistics("trial", 0, [cell], CONFIG)
    (sentence,) = unflagged_sentences(made.pooled, made.unflagged, cell.condition)
    assert sentence.endswith(" (intervals corrected for the choice among 3 methods).")
    method = sentence.partition("the AUROC of ")[2].partition(" ")[0]
    for rows in (made.unflagged, made.pooled):
        row = rows.query(
            f"method == '{method}' and metric == 'auroc' and benchmark == 'all'"
            " and occurrences == 'any' and checkpoint == 'contaminated'"
        ).iloc[0]
        assert row["joint_low"] < row["ci_low"]
        assert f"{row['value']:.2f} [{row['joint_low']:.2f}, {row['joint_high']:.2f}]" in sentence


def test_seeds_are_pooled_and_an_example_that_both_flag_counts_once(make_parts):
    cells = [flagged_cell(make_parts, seed=seed)[0] for seed in (0, 1)]
    examples = cells[1].examples
    examples.loc[examples["example_id"] == "boolq-001", CONTAMINATION_COLUMN] = "base: 13-gram"
    made = compute_statistics("trial", 0, cells, CONFIG)
    assert (made.unflagged["n_seeds"] == 2).all()
    assert "boolq (2 members, 3 non-members)" in unflagged_sentences(
        made.pooled, made.unflagged, cells[0].condition
    )[0]  # fmt: skip
    whole = made.unflagged[made.unflagged["benchmark"] == "all"]
    assert set(zip(whole["flagged_members"], whole["flagged_nonmembers"], strict=True)) == {(2, 3)}


def test_where_all_non_members_are_flagged_it_says_what_is_lacking(make_parts):
    parts = make_parts()
    examples = parts["corpus"].examples
    flagged = (examples["benchmark"] == "boolq") & ~examples["member"].astype(bool)
    examples[CONTAMINATION_COLUMN] = flagged.map({True: "corpus: verbatim", False: ""})
    cell = make_cell(**parts)
    made = compute_statistics("trial", 0, [cell], CONFIG)
    (sentence,) = unflagged_sentences(made.pooled, made.unflagged, cell.condition)
    assert "is not known (it needs non-members in boolq), with them 0." in sentence


def test_a_benchmark_whose_examples_are_all_flagged_is_stated(make_parts):
    """The mean is over both benchmarks, or not known."""
    parts = make_parts()
    examples = parts["corpus"].examples
    flagged = examples["benchmark"] == "boolq"
    examples[CONTAMINATION_COLUMN] = flagged.map({True: "corpus: verbatim", False: ""})
    cell = make_cell(**parts)
    made = compute_statistics("trial", 0, [cell], CONFIG)
    (sentence,) = unflagged_sentences(made.pooled, made.unflagged, cell.condition)
    assert "beside their copies: boolq (32 members, 32 non-members). Without them" in sentence
    assert "is not known (it needs non-members and members in boolq), with them 0." in sentence
    rows = made.unflagged.set_index(["checkpoint", "method", "benchmark"])
    row = rows.loc[(CONTAMINATED, "loss", "boolq"), :]
    assert (row["n_members"], row["n_nonmembers"], row["flagged_members"]) == (0, 0, 32)
    assert np.isnan(row["value"])
    assert row["needs"] == "non-members and members"
    assert rows.loc[(CONTAMINATED, "loss", "imdb"), "value"] > 0
    (table,) = [t for t in condition_tables(made, cell.condition) if t.name == "without_flagged"]
    assert "(32 members and 32 non-members share text" in table.title
    assert all("in boolq" in line[2] for line in table.lines)


@pytest.mark.parametrize("side", ["members", "non-members", "both"])
def test_where_no_benchmark_is_left_the_sentence_still_counts_the_flags(make_parts, side):
    parts = make_parts()
    examples = parts["corpus"].examples
    member = examples["member"].astype(bool)
    flagged = {"members": member, "non-members": ~member, "both": member | True}[side]
    examples[CONTAMINATION_COLUMN] = flagged.map({True: "corpus: verbatim", False: ""})
    cell = make_cell(**parts)
    made = compute_statistics("trial", 0, [cell], CONFIG)
    (sentence,) = unflagged_sentences(made.pooled, made.unflagged, cell.condition)
    counted = {"members": "32 members", "non-members": "32 non-members",
               "both": "32 members, 32 non-members"}[side]  # fmt: skip
    assert f"beside their copies: boolq ({counted}); imdb ({counted}). Without them" in sentence
    assert "is not known (it needs " in sentence
    assert "per benchmark), with them 0." in sentence


def test_seeds_of_which_one_has_lost_a_benchmark_have_no_mean_over_it(make_parts):
    cells = []
    for seed in (0, 1):
        parts = make_parts(seed=seed)
        examples = parts["corpus"].examples
        flagged = (examples["benchmark"] == "boolq") & (seed == 1)
        examples[CONTAMINATION_COLUMN] = flagged.map({True: "corpus: verbatim", False: ""})
        cells.append(make_cell(**parts))
    made = compute_statistics("trial", 0, cells, CONFIG)
    rows = made.unflagged.set_index(["checkpoint", "method", "benchmark"])
    for benchmark, known in {"boolq": False, "imdb": True, "all": False}.items():
        row = rows.loc[(CONTAMINATED, "loss", benchmark), :]
        assert (row["needs"] == "", not np.isnan(row["value"])) == (known, known)
    (sentence,) = unflagged_sentences(made.pooled, made.unflagged, cells[0].condition)
    assert "boolq (32 members, 32 non-members)" in sentence


def test_other_results_are_the_same_with_flags_as_without(make_parts):
    plain = compute_statistics("trial", 0, [make_cell(**make_parts())], CONFIG)
    parts = make_parts()
    parts["corpus"].examples[CONTAMINATION_COLUMN] = "base: 13-gram"
    parts["corpus"].examples.loc[10:, CONTAMINATION_COLUMN] = ""
    flagged = compute_statistics("trial", 0, [make_cell(**parts)], CONFIG)
    for name in ("results", "pooled", "comparisons", "trends"):
        pd.testing.assert_frame_equal(getattr(plain, name), getattr(flagged, name))
    assert replace(plain, unflagged=flagged.unflagged).unflagged is flagged.unflagged

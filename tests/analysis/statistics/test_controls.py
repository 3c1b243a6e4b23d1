"""When a control is off, and what is then said."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations as permutations_of
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from contamination.analysis.config import AnalysisConfig
from contamination.analysis.statistics.controls import (
    RELABELINGS,
    ControlKey,
    _iter_relabelled_roles,
    _relabelled_aurocs,
    control_aurocs,
    control_warning,
    distances_from_chance,
    group_by_control,
    mean_control_aurocs,
    mean_control_rows,
    off_control_rows,
    with_control_p_values,
)
from contamination.analysis.statistics.results_table import BlindBaselines
from contamination.analysis.statistics.shared_permutations import (
    ids_by_benchmark,
    induced_permutations,
)
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.core.statistics.metrics import auroc_value
from contamination.detection.baselines.blind import SHUFFLES, BlindBaseline

QUICK = AnalysisConfig(draws=40, blind_folds=3, fpr=[], tpr=[])


def no_blind(cell) -> BlindBaseline:
    return BlindBaseline(np.full((len(cell.examples), 1 + SHUFFLES), np.nan))


def shifted(cell, **by_benchmark: float):
    """The cell with the clean scores of these benchmarks' members higher by so much."""
    clean = cell.scores["clean"].copy()
    member = cell.examples["member"].to_numpy()
    for benchmark, shift in by_benchmark.items():
        clean[member & (cell.examples["benchmark"] == benchmark).to_numpy()] += shift
    return replace(cell, scores={**cell.scores, "clean": clean})


def test_errors_of_opposite_signs_do_not_cancel(cell):
    """The clean model at an AUROC of about 0.06 and 0.93, which are 0.5 on average."""
    pooled = compute_statistics("trial", 0, [shifted(cell, boolq=-2.2, imdb=2.1)], QUICK).pooled
    means = mean_control_rows(pooled).query("method != 'blind'")
    assert ((means["ci_low"] < 0.5) & (means["ci_high"] > 0.5)).all()
    off = off_control_rows(pooled)
    assert set(off["benchmark"]) == {"boolq", "imdb"}
    assert set(off["method"]) == {"loss", "min_k", "min_k_plus_plus"}
    words = control_warning(pooled)
    first = off.iloc[0]
    assert words.startswith(
        f"CONTROL OFF: The clean model's AUROC differs from 0.5 (worst benchmark: "
        f"{first['benchmark']}, {first['method']} {first['value']:.2f} "
        f"[{first['ci_low']:.2f}, {first['ci_high']:.2f}], corrected p = 0.001)"
    )


def test_a_small_error_that_all_benchmarks_share_shows_in_their_mean(make):
    names = ["a", "b", "c", "d", "e", "f"]
    cell = make(benchmarks=names, doses=[1, 2])
    member = cell.examples["member"].to_numpy()
    grid = norm.ppf((np.arange(16) + 0.5) / 16)  # of 16 members or non-members of a benchmark
    scores = np.resize(grid, len(member))[:, None] + 0.53 * member[:, None]
    one = pd.MultiIndex.from_tuples([("loss", "")])
    clean = pd.DataFrame(scores, cell.scores["clean"].index, one)
    aurocs = control_aurocs(replace(cell, scores={"clean": clean}), no_blind(cell), 0)
    table = rows_of(aurocs)
    tested = with_control_p_values(table, "cell", {"c": distances_from_chance(aurocs)})
    assert set(off_control_rows(tested)["benchmark"]) == {"all"}
    words = control_warning(tested)
    assert "(mean over benchmarks: loss 0.64 [0.64, 0.64], corrected p = 0.0" in words
    assert "; worst benchmark: " in words


def rows_of(aurocs) -> pd.DataFrame:
    """A results table of these AUROCs of controls, with intervals of no width."""
    rows = [
        {**look._asdict(), "value": own[0], "ci_low": own[0], "ci_high": own[0]}
        for look, own in aurocs.items()
    ]
    facts = {"cell": "c", "metric": "auroc", "checkpoint": "clean", "occurrences": "any"}
    return pd.DataFrame(rows).assign(needs="", **facts)


def test_among_equal_p_values_the_control_farthest_from_chance_is_the_worst():
    rows = pd.DataFrame({
        "benchmark": ["near", "far", "below", "sure"], "value": [0.6, 0.9, 0.2, 0.55],
        "p_control": [0.002, 0.002, 0.002, 0.001],
    })  # fmt: skip
    assert off_control_rows(rows)["benchmark"].tolist() == ["sure", "far", "below", "near"]


def test_the_aurocs_are_those_of_the_labels_first_as_they_are(cell, results):
    found = control_aurocs(cell, no_blind(cell), 0)
    assert {len(own) for own in found.values()} == {1 + RELABELINGS}
    rows = results.query("checkpoint == 'clean' and metric == 'auroc' and occurrences == 'any'")
    for row in rows.query("method != 'blind'").itertuples():
        own = found[ControlKey(row.method, row.variant, row.benchmark)]
        assert own[0] == pytest.approx(row.value)
        assert own[1:].mean() == pytest.approx(0.5, abs=0.02)


def test_relabelings_keep_sizes_and_count_ties_half(cell):
    """Scores 1 for one member, else 0: its AUROC is above 0.5 where that text is a member."""
    clean = cell.scores["clean"] * 0
    member = cell.examples["member"].to_numpy()
    clean.iloc[np.flatnonzero(member)[0]] = 1.0
    found = control_aurocs(replace(cell, scores={"clean": clean}), no_blind(cell), 0)
    of_one = found[ControlKey("loss", "", "boolq")]
    high = auroc_value(np.eye(1, 32)[0], np.zeros(32))
    assert sorted(set(of_one.round(9))) == pytest.approx([1 - high, high])
    assert (of_one > 0.5).mean() == pytest.approx(0.5, abs=0.06)
    assert set(found[ControlKey("loss", "", "imdb")]) == {0.5}  # all are tied: never off
    table = rows_of(found)
    p_values = with_control_p_values(table, "cell", {"c": distances_from_chance(found)})[
        "p_control"
    ]
    assert (p_values[table["benchmark"] == "imdb"] == 1).all()


def test_members_and_non_members_that_change_places_are_relabelled_alike(make):
    """So a cell and its swapped replicate, whose clean AUROCs are v and 1 − v, count as one."""
    both = [control_aurocs(cell, no_blind(cell), 0) for cell in (make(), make(swapped=True))]
    for look, own in both[0].items():
        np.testing.assert_allclose(own, 1 - both[1][look])
    alone = with_control_p_values(rows_of(both[0]), "cell", {"c": distances_from_chance(both[0])})
    together = {
        "c": distances_from_chance(both[0]),
        "swapped": distances_from_chance(both[1]),
    }
    with_other = with_control_p_values(rows_of(both[0]), "cell", together)
    pd.testing.assert_frame_equal(alone, with_other)


def with_copies(cell, seed: int):
    """The cell with other numbers of copies: some members have none and are left out."""
    member = cell.examples["member"].to_numpy()
    copies = np.random.default_rng(seed).poisson(1, len(member)) * member
    return replace(cell, examples=cell.examples.assign(occurrences=copies), seed=seed)


def test_seeds_that_share_their_members_are_relabelled_together(make):
    """Though each inserts another part of them. So their mean is no more certain than one seed."""
    cells = [with_copies(make(a_dose=25), seed) for seed in range(3)]
    blinds = BlindBaselines(QUICK.blind_folds, 0)
    of_seeds = [control_aurocs(cell, blinds(cell), 0) for cell in cells]
    mean = mean_control_aurocs(of_seeds)
    for look, own in of_seeds[0].items():
        assert mean[look][1:].std() > 0.8 * own[1:].std(), look
        assert np.corrcoef(own[1:], of_seeds[1][look][1:])[0, 1] > 0.6, look


def with_few_nonmembers(cell, number: int):
    """The cell with the first so many non-members of each benchmark alone."""
    examples = cell.examples
    place = examples.groupby(["benchmark", "member"]).cumcount()
    kept = (examples["member"].astype(bool) | (place < number)).to_numpy()
    scores = {name: table[kept] for name, table in cell.scores.items()}
    return replace(cell, examples=examples[kept].reset_index(drop=True), scores=scores)


def test_a_relabelled_non_member_is_one_in_all_seeds_that_share_their_members(make):
    """The text of the highest score takes half a fifth from the AUROC, in all seeds or in none.

    Where each seed drew its non-members anew, the mean over seeds varied too little, and 12% of
    sound reports with 100 members, 5 non-members and 3 seeds were off.
    """
    cells = [with_copies(with_few_nonmembers(make(a_dose=25), 5), seed) for seed in range(3)]
    highest = (np.arange(len(cells[0].examples)) == 0)[:, None].astype(float)
    for place, cell in enumerate(cells):
        clean = pd.DataFrame(highest, columns=pd.MultiIndex.from_tuples([("loss", "")]))
        cells[place] = replace(cell, scores={"clean": clean})
    of_one = mean_control_aurocs([control_aurocs(cell, no_blind(cell), 0) for cell in cells])
    aurocs = of_one[ControlKey("loss", "", cells[0].examples["benchmark"].iloc[0])]
    assert sorted(set(aurocs[aurocs < 0.5 - 1e-9].round(9))) == [0.4]


def test_relabelled_aurocs_are_those_of_permuted_roles(make):
    """Against all pairs, with ties; those that were never inserted are on neither side."""
    cell = with_copies(make(a_dose=5), 0)
    rows = np.flatnonzero(cell.examples["benchmark"] == "imdb")
    examples = cell.examples.iloc[rows]
    scores = np.random.default_rng(0).normal(size=(len(rows), 2)).round(1)
    ids = ids_by_benchmark([cell])["imdb"]
    aurocs = _relabelled_aurocs(scores, _iter_relabelled_roles(examples, ids, 0))
    inserted, nonmember = (
        np.hstack(side) for side in zip(*_iter_relabelled_roles(examples, ids, 0), strict=True)
    )
    assert inserted.shape == (len(rows), 1 + RELABELINGS)
    assert len(set(inserted.sum(axis=0))) == len(set(nonmember.sum(axis=0))) == 1
    assert 0 < inserted[:, 0].sum() < examples["member"].sum()
    for method, relabeling in product(range(2), range(0, 1 + RELABELINGS, 97)):
        sides = (scores[role[:, relabeling], method] for role in (inserted, nonmember))
        assert aurocs[method, relabeling] == pytest.approx(auroc_value(*sides))


def test_seeds_that_draw_their_members_apart_are_relabelled_as_alike_as_their_members_are(make):
    cells = [make(a_dose=25), make(a_dose=25)]
    member = np.random.default_rng(0).permuted(
        cells[0].examples["member"].to_numpy().reshape(2, -1), axis=1
    )
    cells[1].examples["member"] = member.ravel()
    cells[1].examples["occurrences"] = member.ravel().astype(int)
    first, second = (control_aurocs(cell, no_blind(cell), 0) for cell in cells)
    alike = np.corrcoef(*(c.examples["member"].to_numpy(float).reshape(2, -1) for c in cells))
    for look, aurocs in first.items():
        rows = {"boolq": alike[0, 2], "imdb": alike[1, 3]}
        expected = rows.get(look.benchmark, np.mean([*rows.values()]))
        correlation = np.corrcoef(aurocs[1:], second[look][1:])[0, 1]
        assert correlation == pytest.approx(expected, abs=0.1), look


def without_one(cell, place: int):
    """The cell without one of the first benchmark's examples."""
    kept = np.arange(len(cell.examples)) != place
    scores = {name: table[kept] for name, table in cell.scores.items()}
    return replace(cell, examples=cell.examples[kept].reset_index(drop=True), scores=scores)


def with_one_pair_exchanged(cell, place: int):
    """The cell where a member and a non-member of the first benchmark have changed places."""
    rows = np.arange(len(cell.examples))
    half = (cell.examples["benchmark"] == cell.examples["benchmark"].iloc[0]).sum() // 2
    rows[[place, half + place]] = half + place, place
    drawn = ["member", "occurrences"]
    examples = cell.examples.copy()
    examples[drawn] = examples[drawn].iloc[rows].to_numpy()
    return replace(cell, examples=examples.astype({"member": bool, "occurrences": int}))


@pytest.mark.parametrize("change", [without_one, with_one_pair_exchanged])
def test_seeds_that_share_almost_all_members_are_relabelled_together(make, change):
    """Else their mean looks more certain than it is: 30% of sound reports were off."""
    cells = [change(make(a_dose=25), place) for place in (3, 40, 77)]
    ids = ids_by_benchmark(cells)
    of_seeds = [control_aurocs(cell, no_blind(cell), 0, ids) for cell in cells]
    for look, aurocs in of_seeds[0].items():
        assert np.corrcoef(aurocs[1:], of_seeds[1][look][1:])[0, 1] > 0.9, look
        assert mean_control_aurocs(of_seeds)[look][1:].std() > 0.95 * aurocs[1:].std(), look


def test_blind_baselines_of_almost_the_same_members_share_their_shuffled_labels(make):
    """Else their mean over seeds looks more certain than it is, as above."""
    cells = [without_one(make(benchmarks=["boolq"]), place) for place in (3, 40)]
    ids = ids_by_benchmark(cells)
    blinds = BlindBaselines(QUICK.blind_folds, 0, ids)
    first, second = (
        control_aurocs(cell, blinds(cell), 0, ids)[ControlKey("blind", "", "boolq")]
        for cell in cells
    )
    assert np.corrcoef(first[1:], second[1:])[0, 1] > 0.5


def test_a_cell_that_lacks_examples_is_permuted_uniformly():
    """All 6 permutations of the 3 examples that a cell has out of 5."""
    every = np.tile(np.arange(5, dtype=np.int32), (6000, 1))
    permutations = np.random.default_rng(0).permuted(every, axis=1)
    sources = induced_permutations(permutations, np.array([4, 0, 2]))
    orders, counts = np.unique(sources, axis=0, return_counts=True)
    assert sorted(map(tuple, orders.tolist())) == sorted(permutations_of(range(3)))
    assert np.abs(counts - 1000).max() < 4 * 1000**0.5


def test_conditions_of_one_clean_model_are_corrected_once_and_others_together(make):
    cells = [make(learning_rate=rate) for rate in (1e-4, 1e-3)]
    both = compute_statistics("trial", 0, cells, QUICK).pooled
    alone = compute_statistics("trial", 0, cells[:1], QUICK).pooled
    first = both[both["condition"] == both["condition"].iloc[0]]
    np.testing.assert_array_equal(first["p_control"], alone["p_control"])
    other = compute_statistics("trial", 0, [cells[0], make(benchmarks=["arc"])], QUICK).pooled
    same = other[other["condition"] == alone["condition"].iloc[0]]
    of_clean = (same["method"] != "blind").to_numpy() & same["p_control"].notna().to_numpy()
    assert (same["p_control"].to_numpy() >= alone["p_control"].to_numpy())[of_clean].all()
    assert (same["p_control"].to_numpy() > alone["p_control"].to_numpy())[of_clean].any()


def test_seeds_are_averaged_where_they_were_looked_at():
    one, two = ControlKey("loss", "", "a"), ControlKey("loss", "", "b")
    found = mean_control_aurocs(
        [{one: np.array([0.4, 0.6])}, {one: np.array([0.6, 0.6]), two: np.ones(2)}]
    )
    np.testing.assert_allclose(found[one], [0.5, 0.6])
    np.testing.assert_allclose(found[two], [1, 1])


def test_a_benchmark_without_non_members_does_not_hide_another(make):
    cell = shifted(make(), boolq=3.0)
    lonely = (cell.examples["benchmark"] == "imdb") & ~cell.examples["member"]
    kept = ~lonely.to_numpy()
    scores = {name: table[kept] for name, table in cell.scores.items()}
    short = replace(cell, examples=cell.examples[kept].reset_index(drop=True), scores=scores)
    pooled = compute_statistics("trial", 0, [short], QUICK).pooled
    assert set(off_control_rows(pooled)["benchmark"]) == {"boolq"}
    assert "(worst benchmark: boolq, " in control_warning(pooled)


def test_sound_controls_have_no_stamp(sound):
    assert off_control_rows(sound).empty
    assert control_warning(sound) is None
    assert set(group_by_control(sound)) == {"clean", "blind"}


def test_nothing_looked_at_has_no_stamp(results):
    unknown = results.assign(p_control=np.nan)
    assert group_by_control(unknown) == {}
    assert control_warning(unknown) is None


def test_a_blind_baseline_that_is_off_says_what_the_figures_may_measure(sound):
    off = sound.copy()
    of_texts = (off["method"] == "blind") & (off["metric"] == "auroc")
    off.loc[of_texts, ["value", "ci_low", "ci_high"]] = 0.66, 0.6, 0.7
    off.loc[of_texts & (off["benchmark"] == "imdb") & (off["occurrences"] == "any"),
            "p_control"] = 0.0099  # fmt: skip
    said = (
        "The texts alone tell members from non-members (blind AUROC, worst benchmark: imdb, 0.66 "
        "[0.60, 0.70], corrected p = 0.010): these figures may measure the texts, not the model."
    )
    assert control_warning(off) == f"CONTROL OFF: {said}"

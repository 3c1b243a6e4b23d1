"""What was swept is found, named and told; what couldn't be measured stands beside, with why."""

from __future__ import annotations

import pytest

from contamination.analysis.cells import make_cell, name_apart, series_settings
from contamination.analysis.charts.gallery import charts_of_condition, charts_over_conditions
from contamination.analysis.config import AnalysisConfig, AnalysisStage, CellPaths
from contamination.analysis.headline import headlines
from contamination.analysis.page.build import page_data, render_page
from contamination.analysis.report_files import OVER_CONDITIONS, gather_findings
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.analysis.summary import sentences_by_condition
from contamination.analysis.sweeps import find_sweeps, format_short
from contamination.core.errors import DataError
from tests.analysis.conftest import simulate_parts

QUICK = AnalysisConfig(draws=20, fpr=[0.25], tpr=[])
ONE = {"benchmarks": ["boolq"]}
DESIGN = "injection.occurrences."


def fixed(count: int, **more):
    """A cell whose members are all inserted `count` times."""
    design = {"_target_": DESIGN + "Fixed", "count": count}
    return make_cell(**simulate_parts(**{**ONE, "doses": [count], **more}, occurrences=design))


def told(cells, config=QUICK):
    """The sweeps of the cells, and the headlines."""
    cells = name_apart(cells)
    made = compute_statistics("trial", 0, cells, config)
    sweeps = find_sweeps(made.pooled, made.trends, series_settings(cells))
    return sweeps, headlines(
        sweeps, sentences_by_condition(made, config.confidence), made.replicates
    )


@pytest.fixture(scope="module")
def findings():
    """A sweep of 8, 2 and 0 occurrences."""
    cells = name_apart([fixed(8), fixed(2), fixed(0)])
    where = [CellPaths("corpus", "model", "clean", "contaminated")]
    stage = AnalysisStage("trial", 0, cells=where, analysis=QUICK)
    return gather_findings(stage, cells, compute_statistics("trial", 0, cells, QUICK), [])


def test_occurrences_are_a_factor_and_what_has_no_member_is_told_with_the_reason(findings):
    (sweep,) = findings.sweeps
    assert sweep.levels == [2, 8]
    assert sweep.reason_by_level == {0: "no members: nothing to detect"}
    assert sweep.trends["slope"].notna().all()
    (said,) = findings.headline
    assert said.startswith("AUROC of ")
    assert (
        " mean occurrences of a member from 2 to 8 (tiny_llama, learning rate 0.001, "
        "400,000 tokens), from "
    ) in said
    assert said.endswith("; no value at 0 (no members: nothing to detect).")


def test_the_table_and_the_chart_are_along_the_occurrences(findings):
    table = findings.tables[OVER_CONDITIONS][0]
    assert table.header == ["method", "0", "2", "8", "slope", "clean model"]
    assert {line[1] for line in table.lines} == {"no members"}
    assert all("[" in text for line in table.lines for text in line[2:4])
    (chart,) = charts_over_conditions(findings)
    (axes,) = [axes for axes in chart.figure.axes if axes.get_xscale() == "log"]
    assert axes.get_xlabel() == "mean occurrences of a member"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "8"]
    assert chart.caption.endswith("No value at 0 (no members: nothing to detect).")


def test_a_condition_without_members_is_in_the_results_the_page_and_its_cells(findings):
    name = "tiny_llama-lr0.001-tokens400000-occurrences0"
    rows = findings.rows_by_condition[name]
    assert set(rows["needs"][rows["metric"] == "auroc"]) == {"members per benchmark"}
    assert rows["value"].isna().all()
    assert rows["n_members"].eq(0).all()
    assert findings.sentences[name][0] == "No members: nothing to detect."
    assert not list(charts_of_condition(findings.restrict_to_condition(name)))
    assert [facts["occurrences"] for facts in findings.cells] == ["0", "2", "8"]
    text = render_page(findings, {})
    assert f"{name}-seed0</td>" in text
    assert "<li>No members: nothing to detect.</li>" in text
    (factor,) = page_data(findings)["factors"]
    assert factor["without"] == " No value at 0 (no members: nothing to detect)."
    assert (factor["levels"], factor["column"]) == ([2, 8], "mean_occurrences")


def test_alone_it_is_told_beside_the_others():
    sweeps, said = told([fixed(8), fixed(0)])
    assert not sweeps
    assert said[0] == "tiny_llama-lr0.001-tokens400000-occurrences0: No members: nothing to detect."
    with pytest.raises(DataError, match="nothing to compare"):
        told([fixed(0)])


@pytest.mark.parametrize(
    ("design", "field", "values", "doses", "means"),
    [
        ("Ladder", "rungs", ([1, 2], [1, 8]), ([1, 2], [1, 8]), [1.5, 4.5]),
        ("Poisson", "rate", (1.0, 4.0), ([0, 2], [3, 6]), [1.0, 4.5]),
        ("Share", "share", (0.01, 0.1), ([0, 1], [4, 5]), [0.5, 4.5]),
    ],
)
def test_any_design_is_swept_by_the_mean_of_what_was_inserted(design, field, values, doses, means):
    cells = [
        make_cell(**simulate_parts(**ONE, doses=some, a_dose=12,
                                   occurrences={"_target_": DESIGN + design, field: value}))
        for value, some in zip(values, doses, strict=True)
    ]  # fmt: skip
    (sweep,), (said,) = told(cells)
    assert sweep.levels == means
    assert f" from {means[0]:g} to {means[1]:g} " in said


def test_two_designs_are_no_series():
    poisson = {"_target_": DESIGN + "Poisson", "rate": 2.0}
    other = make_cell(**simulate_parts(**ONE, doses=[1, 2], occurrences=poisson))
    sweeps, said = told([fixed(8), other])
    assert not sweeps
    assert len(said) == 2


def test_seeds_that_drew_other_numbers_are_one_condition_of_their_mean():
    design = {"_target_": DESIGN + "Poisson"}
    drawn = {2.0: ([1, 2], [2, 4]), 8.0: ([8, 9], [8, 9])}
    cells = [
        make_cell(**simulate_parts(**ONE, doses=doses, seed=seed,
                                   occurrences={**design, "rate": rate}))
        for rate, seeds in drawn.items()
        for seed, doses in enumerate(seeds)
    ]  # fmt: skip
    cells.append(make_cell(**simulate_parts(  # drew for itself too, and is no seed of theirs
        **ONE, doses=[6, 8], swapped=True, occurrences={**design, "rate": 2.0})))  # fmt: skip
    (sweep,), _ = told(cells)
    assert sweep.levels == [(1.5 + 3) / 2, 8.5]
    assert sweep.conditions == [f"tiny_llama-lr0.001-tokens400000-occurrences{x}" for x in
                                ("2.25", "8.5")]  # fmt: skip
    assert set(sweep.line_rows.query("method == 'loss'")["n_seeds"]) == {2}


def test_sweeps_of_a_grid_say_which_they_are_of():
    sweeps, said = told([fixed(n, learning_rate=r) for n in (2, 8) for r in (1e-3, 1e-4)])
    assert [sweep.shared_text for sweep in sweeps] == [
        "tiny_llama, 400,000 tokens, mean occurrences 2",
        "tiny_llama, 400,000 tokens, mean occurrences 8",
        "tiny_llama, learning rate 0.0001, 400,000 tokens",
        "tiny_llama, learning rate 0.001, 400,000 tokens",
    ]
    assert len(set(said)) == 4


def test_a_sweep_of_swapped_replicates_says_so():
    cells = [make_cell(**simulate_parts(**ONE, learning_rate=r, swapped=s))
             for r in (1e-3, 1e-4) for s in (False, True)]  # fmt: skip
    sweeps, (plain, swapped, *pairs) = told(cells)
    assert [said.partition(" ")[0] for said in pairs] == [
        f"tiny_llama-lr{rate}-tokens400000" for rate in ("0.0001", "0.001")
    ]
    assert "(tiny_llama, 400,000 tokens)" in plain
    assert "(members and non-members swapped)" in swapped  # the rest is said above
    assert [sweep.distinguishing_text(sweeps) for sweep in sweeps] == [
        "tiny_llama, 400,000 tokens",  # nothing that the other lacks: all of it
        "members and non-members swapped",
    ]


def test_a_report_of_before_the_occurrences_were_a_fact_still_shows_its_sweeps():
    cells = name_apart([fixed(2, learning_rate=rate) for rate in (1e-3, 1e-4)])
    made = compute_statistics("trial", 0, cells, QUICK)
    old = made.pooled.drop(columns="mean_occurrences")
    (sweep,) = find_sweeps(old, made.trends, series_settings(cells))
    assert sweep.shared_text == "tiny_llama, 400,000 tokens"


def test_numbers_on_an_axis_are_short():
    values = (0, 0.0001, 0.5, 3.97254, 8, 600_000, 2e6)
    assert list(map(format_short, values)) == ["0", "1e-4", "0.5", "3.97", "8", "600k", "2M"]

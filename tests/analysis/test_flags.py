"""What the scores flag is left out or counted, and said wherever the figures are."""

from __future__ import annotations

import logging
from dataclasses import replace

import pandas as pd
import pytest

from contamination.analysis.cells import make_cell
from contamination.analysis.config import AnalysisConfig, AnalysisStage, CellPaths
from contamination.analysis.report_folder import open_report
from contamination.analysis.run import write_report
from contamination.analysis.statistics.flagged import flag_notes, flags_table
from tests.analysis.conftest import results_table

BLANK = ["boolq-001", "boolq-040"]  # a member and a non-member
FELL_BACK = [f"imdb-{i:03d}" for i in range(10)]


def flagged(parts):
    """The parts with two blank texts, whose scores stand out, and some that min_k fell back on."""
    changed = {}
    for name in ("clean", "contaminated"):
        table = parts[name].table.copy()
        blank = table["example_id"].isin(BLANK)
        table.loc[blank, ["score", "flag", "ranked"]] = [99.0, "blank", False]
        fell_back = table["example_id"].isin(FELL_BACK) & (table["method"] == "min_k")
        table.loc[fell_back, "flag"] = "fell back"
        changed[name] = replace(parts[name], table=table)
    return {**parts, **changed}


def without(parts, ids):
    """The parts as they would be had these examples never been there."""
    examples = parts["corpus"].examples
    kept = replace(parts["corpus"], examples=examples[~examples["example_id"].isin(ids)])
    tables = {
        name: replace(parts[name], table=table[~table["example_id"].isin(ids)])
        for name, table in ((n, parts[n].table) for n in ("clean", "contaminated"))
    }
    return {**parts, "corpus": kept, **tables}


def test_what_is_not_ranked_is_in_no_estimate(make_parts):
    config = AnalysisConfig(draws=40)
    cells = make_cell(**flagged(make_parts())), make_cell(**without(make_parts(), BLANK))
    found, expected = (results_table("trial", 0, [cell], config) for cell in cells)
    pd.testing.assert_frame_equal(found, expected)
    whole = results_table("trial", 0, [make_cell(**make_parts())], config)
    assert not found["value"].equals(whole["value"])


def test_flags_are_counted_over_the_seeds_of_a_condition(make_parts):
    parts = make_parts()
    cells = [
        make_cell(**{**flagged(parts), "clean": parts["clean"]}), make_cell(**make_parts(seed=1)),
    ]  # fmt: skip
    flags = flags_table(cells)
    assert flags.index.is_unique
    assert flag_notes(flags, cells[0].condition) == [
        "not ranked, and in no metric: 2 of 256 texts: blank.",
        "min_k k=0.2: 10 of 256 texts: fell back.",
    ]
    assert flag_notes(flags, "another") == []


@pytest.mark.parametrize("change", [flagged, lambda parts: parts])
def test_the_report_the_page_and_the_terminal_say_them(make_parts, change, tmp_path, caplog):
    where = CellPaths("corpus", "model", "clean", "contaminated")
    stage = AnalysisStage(
        name="trial", seed=0, runs=str(tmp_path), cells=[where], analysis=AnalysisConfig(draws=40)
    )
    with caplog.at_level(logging.INFO):
        folder = write_report(stage, [make_cell(**change(make_parts()))]).path
    for said in ("10 of 128 texts: fell back", "2 of 128 texts: blank"):
        for shown in (
            (folder / "report.md").read_text(), (folder / "report.html").read_text(), caplog.text,
        ):  # fmt: skip
            assert (said in shown) == (change is flagged)
    assert (set(open_report(folder).flags["flag"]) - {""} == {"fell back", "blank"}) == (
        change is flagged
    )

"""README's quickstart table is that of a stored run, and a new run is compared with it."""

import pandas as pd
import pytest

from contamination.analysis.statistics.seed_pooling import COLUMNS
from contamination.core.errors import ArtifactError
from perf.readme import (
    BEGIN,
    END,
    FIGURES,
    README,
    TOLERANCE,
    differences,
    find_differences,
    newest_report,
    read_rows,
    render_table,
    table_rows,
    with_table,
)


class Reported:
    """A report with the stored rows, and others that its main table does not show."""

    def __init__(self, rows):
        other = rows.assign(benchmark="boolq")
        self.pooled = pd.concat([rows, other, rows.assign(metric="tpr")]).reindex(columns=COLUMNS)


@pytest.fixture
def rows():
    return read_rows()


def changed(rows, by):
    """The value of one estimate moved."""
    new = rows.copy()
    new.loc[3, "value"] += by
    return new


def test_readme_shows_the_stored_table(rows):
    """It fails where README was edited by hand: `make readme` writes it."""
    text = README.read_text()
    assert with_table(text, rows) == text


def test_the_table_has_the_reports_own_rounding(rows):
    new = rows.copy()
    at = (new["checkpoint"] == "contaminated") & (new["method"] == "loss")
    new.loc[at & (new["occurrences"] == "1"), [*FIGURES]] = 0.54494, 0.535, 0.545001
    assert "| loss            | 0.54 [0.54, 0.55] |" in render_table(new)


def test_a_run_within_the_tolerance_is_in_step(rows):
    assert [*differences(rows, changed(rows, 0.9 * TOLERANCE))] == []
    assert find_differences(Reported(rows)) == []


def test_a_run_beyond_the_tolerance_is_named(rows):
    (found,) = differences(rows, changed(rows, -1.1 * TOLERANCE))
    key = " ".join(rows.loc[3, ["checkpoint", "method", "variant", "occurrences"]])
    assert found.startswith(f"{key}: value is ")
    assert find_differences(Reported(changed(rows, 0.02))) != []


def test_a_missing_and_a_new_method_are_named(rows):
    renamed = rows.replace({"method": {"zlib": "zip"}})
    found = [*differences(rows, renamed)]
    assert any("zip" in line and "not in the stored table" in line for line in found)
    assert any("zlib" in line and "not in the new run" in line for line in found)


def test_a_figure_that_is_gone_is_named(rows):
    assert len([*differences(rows, changed(rows, float("nan")))]) == 1


def test_only_the_rows_of_the_main_table_are_stored(rows):
    pd.testing.assert_frame_equal(table_rows(Reported(rows)), rows, check_dtype=False)


def test_a_table_edited_by_hand_is_noticed(rows, monkeypatch, tmp_path):
    (tmp_path / "README.md").write_text(README.read_text().replace("| loss ", "| lost "))
    monkeypatch.setattr("perf.readme.README", tmp_path / "README.md")
    (found,) = find_differences(Reported(rows))
    assert found == "README.md: its table is not that of docs/results/quickstart.csv"


def test_what_stands_around_the_markers_stays(rows):
    text = f"before\n{BEGIN}old\n{END}\nafter\n"
    assert with_table(text, rows) == f"before\n{BEGIN}{render_table(rows)}{END}\nafter\n"


@pytest.mark.parametrize("text", ["", BEGIN, END])
def test_a_missing_marker_is_an_error(rows, text):
    with pytest.raises(ArtifactError, match="lacks the line"):
        with_table(text, rows)


def test_without_a_report_the_remedy_is_named(tmp_path):
    with pytest.raises(ArtifactError, match=r"there is no report\. Run make quickstart"):
        newest_report(tmp_path)

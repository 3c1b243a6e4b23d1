"""The further charts: their numbers, captions and stamps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.cells import make_cell, series_settings
from contamination.analysis.charts import gallery
from contamination.analysis.charts.curves import histogram_chart
from contamination.analysis.charts.gallery import (
    charts_of_condition,
    charts_over_conditions,
    save_charts,
)
from contamination.analysis.charts.losses import loss_caption, loss_chart
from contamination.analysis.charts.occurrences import factor_chart
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.plain_summary import plain_sentences
from contamination.analysis.provenance import has_losses, ledger_counts, loss_table
from contamination.analysis.statistics.controls import mean_control_rows
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.analysis.sweeps import find_sweeps

CONFIG = AnalysisConfig(draws=40)


@pytest.fixture(scope="module")
def sweep(two_rates):
    return two_rates, compute_statistics("trial", 0, two_rates, CONFIG)


def test_a_line_runs_over_the_learning_rates(sweep):
    cells, made = sweep
    (found,) = find_sweeps(made.pooled, made.trends, series_settings(cells))
    rows = found.rows
    axes, clean = factor_chart(found, CONFIG).axes
    line = next(line for line in axes.get_lines() if line.get_label() == "loss")
    own = rows[(rows["method"] == "loss") & (rows["checkpoint"] == "contaminated")]
    np.testing.assert_allclose(line.get_xdata(), [1e-4, 1e-3], rtol=0.05)  # beside the others
    expected = own.sort_values("learning_rate")["value"]
    np.testing.assert_allclose(line.get_ydata(), expected)
    assert axes.get_xscale() == "log"
    shown = {line.get_ydata()[0] for line in clean.get_lines() if len(line.get_ydata()) == 1}
    assert shown == set(mean_control_rows(rows)["value"])


def test_a_histogram_has_the_contaminated_models_shares(findings):
    part = findings.restrict_to_condition(next(iter(findings.rows_by_condition)))
    bins = part.bins.query("benchmark == 'all' and checkpoint == 'contaminated'")
    panels = [axes for axes in histogram_chart(part.bins, part.pooled).axes if axes.get_visible()]
    assert {axes.get_title("left") for axes in panels} == set(bins["method"])
    for axes in panels:
        own = bins[bins["method"] == axes.get_title("left")]
        for side, stairs in zip(("members", "non-members"), axes.patches, strict=True):
            np.testing.assert_array_equal(
                stairs.get_data().values, own.loc[own["side"] == side, "share"]
            )


def test_cells_with_late_copies_are_a_series_of_their_own(make_parts):
    cells = []
    for rate in (1e-4, 1e-3):
        for last in (None, 200_000):
            parts = make_parts(learning_rate=rate)
            if last is not None:
                parts["corpus"].config["injection"]["last_tokens"] = last
            cells.append(make_cell(**parts))
    assert len({cell.condition for cell in cells}) == 4
    made = compute_statistics("trial", 0, cells, CONFIG)
    first, second = find_sweeps(made.pooled, made.trends, series_settings(cells))
    assert [first.name, second.name] == ["auroc_by_learning_rate", "auroc_by_learning_rate-2"]
    for found, last in ((first, None), (second, 200_000)):
        assert found.rows["last_tokens"].dropna().unique().tolist() == [last] * (last is not None)
        words = " ".join(text.get_text() for text in factor_chart(found, CONFIG).texts)
        assert ("copies in the last 200,000 tokens" in words) == (last is not None)
    answers = plain_sentences(made.pooled, made.trends, [first, second], CONFIG)
    assert " Series: copies not limited to the last tokens. Method: " in answers[0]
    assert " Series: copies in the last 200,000 tokens. Method: " in answers[1]


def test_conditions_that_differ_in_more_have_no_chart(sweep, caplog):
    cells, made = sweep
    same = made.pooled.assign(learning_rate=1e-3)
    assert not find_sweeps(same, made.trends, series_settings(cells))
    assert "learning_rate: conditions differ in more" in caplog.text
    assert not find_sweeps(made.pooled, made.trends, {})


def check_texts_are_beside_the_panels(figure):
    """The whole of each text is in the picture, and none covers a panel or its labels."""
    panels = [axes.get_tightbbox() for axes in figure.axes if axes.get_visible()]
    for text in figure.texts:
        box = text.get_window_extent()
        assert figure.bbox.contains(box.x0, box.y0), text
        assert figure.bbox.contains(box.x1, box.y1), text
        assert not box.count_overlaps(panels), text


def test_every_chart_says_its_seeds_its_band_and_whether_a_control_is_off(one_off):
    records = dict.fromkeys(one_off.rows_by_condition, next(filter(None, one_off.records.values())))
    one_off = replace(one_off, records=records)
    parts = [one_off.restrict_to_condition(condition) for condition in one_off.rows_by_condition]
    first, second = (list(charts_of_condition(part)) for part in parts)
    over = list(charts_over_conditions(one_off))
    for charts, off in ((first, False), (second, True), (over, True)):
        for chart in charts:
            words = [text.get_text() for text in chart.figure.texts]
            assert ("CONTROL OFF: see the report" in words) == off, chart.name
    drawn = [*first, *second, *over]
    names = {chart.name.partition("-")[0] for chart in drawn}
    assert names == {
        *("auroc_by_occurrences", "auroc_by_benchmark", "roc", "scores", "losses"),
        "auroc_by_learning_rate",
    }
    for chart in drawn:
        assert "seed" in chart.caption
        assert any(word in chart.caption for word in ("interval", "bands"))
    for chart in {chart.name.partition("-")[0]: chart for chart in drawn}.values():
        check_texts_are_beside_the_panels(chart.figure)


@pytest.mark.slow
def test_several_processes_write_the_same_files(findings, tmp_path, monkeypatch):
    alone = save_charts(findings, tmp_path / "alone")
    monkeypatch.setattr(gallery, "FEW", 1)
    monkeypatch.setattr(gallery.joblib, "cpu_count", lambda: 2)
    together = save_charts(findings, tmp_path / "together")
    assert [saved.title for saved in together] == [saved.title for saved in alone]
    for one, two in zip(alone, together, strict=True):
        assert [path.read_bytes() for path in one.paths] == [p.read_bytes() for p in two.paths]


def test_a_condition_with_a_slash_is_a_file_of_the_folder(findings, tmp_path):
    part = findings.restrict_to_condition(next(iter(findings.rows_by_condition)))
    names = []
    for name in ("meta-llama/Llama-3", "meta-llama-Llama-3", "../up"):
        pooled, curves, bins = (
            table.assign(condition=name) for table in (part.pooled, part.curves, part.bins)
        )
        words = {"records": {}, "tables": {}, "sentences": {name: []}}
        one = replace(part, pooled=pooled, curves=curves, bins=bins, **words)
        saved = next(charts_of_condition(one)).save(tmp_path)
        assert {path.parent for path in saved.paths} == {tmp_path}
        names += saved.paths
    assert len(set(names)) == len(names) == len(list(tmp_path.iterdir()))


def test_losses_are_the_mean_over_seeds_with_their_range(record):
    losses = record.evaluations.set_index("step")
    seeds = [replace(record, evaluations=(losses + x).reset_index()) for x in (0, 1, 5)]
    table = loss_table(seeds)
    first = table[(table["side"] == "members") & (table["step"] == 0)].iloc[0]
    assert (first["low"], first["loss"], first["high"]) == (5.0, 7.0, 10.0)
    assert "3 seeds" in loss_caption(seeds)


def test_losses_need_two_evaluations(record):
    assert has_losses([record])
    assert not has_losses([])
    assert not has_losses([replace(record, evaluations=record.evaluations.head(1))])


def test_exposures_stand_below_the_losses(record, findings):
    rows = findings.pooled
    copies, _ = loss_chart([record], rows, False).axes
    assert sum(bar.get_height() for bar in copies.patches) == len(record.exposures)


def test_the_ledger_is_counted():
    ledger = pd.DataFrame(
        {
            "example_id": ["a", "a", "b"],
            "document_id": ["x", "y", "y"],
            "truncated": [False, True, False],
            "reworded": [None, "again", None],
        }
    )
    counts = ledger_counts(ledger, {"members": 2, "pool": {}})
    assert counts == {
        "members": 2,
        "inserted copies": 3,
        "examples inserted": 2,
        "documents that carry a copy": 2,
        "copies cut short": 1,
        "copies reworded": 1,
    }

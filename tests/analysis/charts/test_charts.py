"""Charts: the same bytes every time, the numbers of the results, captions that say what is what."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.charts import base
from contamination.analysis.charts.heat_map import heat_map
from contamination.analysis.charts.occurrences import (
    has_occurrences,
    occurrences_caption,
    occurrences_chart,
)
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.statistics.controls import mean_control_rows

CONFIG = AnalysisConfig(draws=200)


def test_files_are_the_same_bytes_every_time(results, tmp_path):
    one, two = (
        base.save_figure(occurrences_chart(results, CONFIG), tmp_path / name, "chart")
        for name in "ab"
    )
    assert [path.name for path in one] == ["chart.png", "chart.svg", "chart.pdf"]
    for first, second in zip(one, two, strict=True):
        assert first.read_bytes() == second.read_bytes()
    assert "<dc:date>" not in one[1].read_text()


def test_lines_and_bars_are_the_results_and_no_bar_covers_another(results):
    dosed, _ = occurrences_chart(results, CONFIG).axes
    line = next(line for line in dosed.get_lines() if line.get_label() == "min_k")
    rows = results.query(
        "metric == 'auroc' and benchmark == 'all' and method == 'min_k'"
        " and checkpoint == 'contaminated' and occurrences != 'any'"
    )
    np.testing.assert_allclose(line.get_xdata(), [1, 2, 4, 8])
    np.testing.assert_array_equal(line.get_ydata(), rows["value"])
    *bars, band = dosed.collections  # the blind baseline's is a band
    ends = [np.array(each.get_segments()) for each in bars]
    np.testing.assert_array_equal(ends[1][:, :, 1], rows[["ci_low", "ci_high"]])
    places = np.array([each[:, 0, 0] for each in ends])
    assert np.diff(places, axis=0).min() > 0.02
    np.testing.assert_allclose(np.log2(places).mean(axis=0), [0, 1, 2, 3], atol=1e-12)
    low, high = dosed.get_xlim()
    assert low < places.min() < places.max() < high
    assert band.get_paths()[0].get_extents().x0 == 1


def test_a_cell_of_the_heat_map_says_the_value_and_its_interval(results):
    axes = heat_map(results, CONFIG).axes[0]
    methods, benchmarks = (
        [label.get_text() for label in labels]
        for labels in (axes.get_yticklabels(), axes.get_xticklabels())
    )
    found = {}
    for text in axes.texts:
        column, row = map(round, text.get_position())
        found.setdefault((methods[row], benchmarks[column]), []).append(text.get_text())
    rows = results.query("metric == 'auroc' and occurrences == 'any'")
    rows = rows[(rows["checkpoint"] == "contaminated") | (rows["method"] == "blind")]
    names = rows["method"].replace("blind", "blind (no model)")
    assert found == {
        (name, row.benchmark): [f"{row.value:.2f}", f"[{row.ci_low:.2f}, {row.ci_high:.2f}]"]
        for name, row in zip(names, rows.itertuples(), strict=True)
    }


def test_the_controls_are_in_the_picture(results):
    dosed, clean = occurrences_chart(results, CONFIG).axes
    assert "blind (no model)" in [line.get_label() for line in dosed.get_lines()]
    shown = {line.get_ydata()[0] for line in clean.get_lines() if len(line.get_ydata()) == 1}
    assert shown == set(mean_control_rows(results)["value"])


@pytest.mark.parametrize("off", [False, True])
def test_a_chart_whose_control_is_off_is_stamped(sound, off):
    results = sound.copy()
    results.loc[results["method"] == "blind", "p_control"] = 0.01 if off else 0.06
    texts = [text.get_text() for text in occurrences_chart(results, CONFIG).texts]
    assert ("CONTROL OFF: see the report" in texts) == off


def test_a_single_dose_is_a_point_with_a_bar(results, tmp_path):
    one = results[results["occurrences"].isin(["4", "any"])]
    assert (
        base.save_figure(occurrences_chart(one, CONFIG), tmp_path, "one")[0].stat().st_size > 10_000
    )


def test_no_common_dose_has_no_chart(results):
    assert has_occurrences(results)
    assert not has_occurrences(results[results["occurrences"] == "any"])


def test_each_of_many_methods_has_its_line_and_its_name(results):
    """Also those that are unknown, whose looks are drawn by their names."""
    names = ["loss", *(f"new_{i:02d}" for i in range(15))]
    loss = results[(results["method"] == "loss") | (results["method"] == "blind")]
    more = [
        loss[loss["method"] == "loss"].assign(method=name, value=loss["value"] * (1 - i / 99))
        for i, name in enumerate(names[1:], 1)
    ]
    dosed, _ = occurrences_chart(pd.concat([loss, *more]), CONFIG).axes
    lines = {line.get_label(): line for line in dosed.get_lines()}
    doses = loss[(loss["occurrences"] != "any") & (loss["checkpoint"] == "contaminated")]
    doses = doses[(doses["metric"] == "auroc") & (doses["benchmark"] == "all")]
    for i, name in enumerate(names):
        np.testing.assert_allclose(lines[name].get_ydata(), doses["value"] * (1 - i / 99))
    assert [text.get_text() for text in dosed.get_legend().get_texts()] == [
        *names, "blind (no model)",
    ]  # fmt: skip
    sizes = {line.get_marker(): line.get_markersize() for line in lines.values()}
    for thin in ("*", "P", "X"):  # covers less of its box than a circle
        assert sizes[thin] > sizes["o"]


def test_the_caption_says_sizes_seed_and_band(results):
    caption = occurrences_caption(results, CONFIG)
    assert "16 at 1 ×, 16 at 2 ×, 16 at 4 ×, 16 at 8 ×; non-members: 64. Seed 0." in caption
    assert "95% bootstrap intervals over examples (200 draws)" in caption
    assert "mean over 2 benchmarks (boolq, imdb)" in caption

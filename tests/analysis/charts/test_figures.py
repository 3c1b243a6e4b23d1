"""What each figure shows, drawn from rows that are written out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from contamination.analysis.charts import base
from contamination.analysis.charts.curves import histogram_chart, roc_chart
from contamination.analysis.charts.gallery import charts_of_condition, charts_over_conditions
from contamination.analysis.charts.heat_map import heat_map
from contamination.analysis.charts.losses import loss_chart
from contamination.analysis.charts.occurrences import factor_chart, occurrences_chart
from contamination.analysis.charts.stages import (
    has_several_panels,
    rows_by_condition_family,
    stage_chart,
)
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.factors import BY_COLUMN
from contamination.analysis.statistics.curves import EDGES
from contamination.analysis.sweeps import Sweep
from tests.analysis import small_report
from tests.analysis.small_report import condition_rows, row

CONFIG = AnalysisConfig(draws=1500, fpr=[0.05], tpr=[])
LOSS, ZLIB, BLIND = "#0072b2", "#e69f00", "#7f7f7f"
ON = "trial: tiny, learning rate 0.001, 300,000 tokens"
GREY = "#555555"
BAND = "95% bootstrap intervals over examples (1,500 draws)"


def texts_of(figure):
    """Each text of the figure on one line, in order."""
    return [" ".join(text.get_text().split()) for text in figure.texts]


def check_texts(figure, title, subtitle, caption, *, stamped=False, axis_names=()):
    """Title, subtitle and caption, behind the names of shared axes."""
    stamp = ["CONTROL OFF: see the report"] * stamped
    assert texts_of(figure) == [*axis_names, title, subtitle, caption, *stamp]


def named_lines(axes):
    """Label → x, y, colour and dashes of the lines that have a name."""
    return {
        line.get_label(): (
            line.get_xdata(), list(line.get_ydata()), to_hex(line.get_color()),
            line.get_linestyle(),
        )
        for line in axes.get_lines() if not line.get_label().startswith("_")
    }  # fmt: skip


def labels(texts):
    return [text.get_text() for text in texts]


def extents(collection):
    """Left, right, bottom and top of a band or a histogram."""
    box = collection.get_paths()[0].get_extents()
    return [box.x0, box.x1, box.y0, box.y1]


def control_points(axes):
    """(x, AUROC, low, high) of each control."""
    bars, points = [], []
    for line in axes.get_lines():
        x, y = line.get_data()
        if len(x) == 1:
            points.append((float(x[0]), float(y[0])))
        elif len(x) and x[0] == x[1]:
            bars.append((float(y[0]), float(y[1])))
    return [(*point, *bar) for point, bar in zip(points, bars, strict=True)]


CAPTION = (
    "Left: the model before the contaminated training, on all members. Grey: a text classifier "
    "that never sees the model (its interval is from shuffled labels)."
)


def test_auroc_against_occurrences():
    figure = occurrences_chart(condition_rows(), CONFIG)
    numbered, clean = figure.axes
    check_texts(
        figure, "Detection by occurrences", ON,
        "AUROC of members against non-members, imdb. Members: 40 at 1 ×, 40 at 2 ×, 40 at 10 ×; "
        f"non-members: 50. 1 seed. Bars and band: {BAND}. {CAPTION}",
        stamped=True,
    )  # fmt: skip
    lines = named_lines(numbered)
    assert list(lines) == ["loss", "zlib", "blind (no model)"]
    for name, values, colour, dashes in [
        ("loss", [0.55, 0.6, 0.8], LOSS, "-"), ("zlib", [0.5, 0.52, 0.56], ZLIB, "-"),
        ("blind (no model)", [0.48, 0.47, 0.46], BLIND, "--"),
    ]:  # fmt: skip
        x, *style = lines[name]
        np.testing.assert_allclose(x, [1, 2, 10], rtol=0.05)
        assert style == [values, colour, dashes]
    assert (lines["loss"][0] < lines["zlib"][0]).all()  # two bars side by side
    *bars, band = numbered.collections
    for bar, colour, values in zip(bars, (LOSS, ZLIB), ([0.55, 0.6, 0.8], [0.5, 0.52, 0.56]),
                                   strict=True):  # fmt: skip
        ends = [segment[:, 1].tolist() for segment in bar.get_segments()]
        np.testing.assert_allclose(ends, [[value - 0.1, value + 0.1] for value in values])
        assert to_hex(bar.get_colors()[0]) == colour
    assert to_hex(band.get_facecolor()[0]) == BLIND
    assert extents(band) == pytest.approx([1, 10, 0.36, 0.58])
    low, high = numbered.get_xlim()
    assert low < lines["loss"][0][0]
    assert high > lines["zlib"][0][-1]
    assert numbered.get_xscale() == "log"
    assert labels(numbered.get_xticklabels()) == ["1", "2", "10"]
    assert numbered.get_xticks().tolist() == [1, 2, 10]
    assert numbered.get_xlabel() == "occurrences of a member in the training corpus"
    legend = numbered.get_legend()
    assert labels(legend.get_texts()) == ["loss", "zlib", "blind (no model)"]
    assert legend.get_title().get_text() == "in order at 10 ×"
    axes_box, legend_box = numbered.get_window_extent(), legend.get_window_extent()
    assert axes_box.x1 < legend_box.x0 < axes_box.x1 + 0.1 * axes_box.width
    chance = numbered.get_lines()[0]
    assert list(chance.get_ydata()) == [0.5, 0.5]
    assert to_hex(chance.get_color()) == GREY

    np.testing.assert_allclose(
        control_points(clean),
        [(2, 0.49, 0.39, 0.59), (0, 0.51, 0.41, 0.61), (1, 0.49, 0.39, 0.59)],
    )
    low, high = clean.get_xlim()
    assert low < 0 < 2 < high
    low, high = clean.get_ylim()
    assert low < 0.36 < 0.9 < high
    assert clean.get_ylabel() == "AUROC"
    assert clean.get_xlabel() == "controls: clean\nmodel, and blind"
    assert len(clean.get_xticks()) == 0
    assert numbered.get_ylim() == clean.get_ylim()


def test_the_axis_reaches_below_all_intervals_and_to_0_at_most():
    rows = condition_rows()
    high = rows.assign(ci_low=0.6)
    low = rows.assign(ci_low=0.01)
    tables = (high, rows, low)
    bottoms = [occurrences_chart(table, CONFIG).axes[1].get_ylim()[0] for table in tables]
    assert 0 < bottoms[0] < 0.5  # a guess is within it
    assert 0 < bottoms[1] < 0.36
    assert bottoms[2] == 0


def test_a_single_number_of_occurrences_is_a_point_of_each_method():
    rows = condition_rows()
    one_number = rows[rows["occurrences"].isin(["10", "any"])]
    axes, _ = occurrences_chart(one_number, CONFIG).axes
    points = np.array(control_points(axes))
    np.testing.assert_allclose(
        points[:, 1:], [(0.8, 0.7, 0.9), (0.56, 0.46, 0.66), (0.46, 0.36, 0.56)]
    )
    np.testing.assert_allclose(points[:, 0], 10, rtol=0.05)
    assert (np.diff(points[:, 0]) > 0).all()
    low, high = axes.get_xlim()
    assert low < points[0, 0] < points[-1, 0] < high
    names = labels(axes.get_legend().get_texts())
    assert names == ["loss", "zlib", "blind (no model)"]


def rate_sweep() -> Sweep:
    rows = [
        row(value, condition=f"lr{rate:g}", learning_rate=rate, n_members=members, **where)
        for rate, members, shift in ((1e-4, 40, 0.0), (1e-2, 44, 0.1))
        for value, where in [
            (0.6 + shift, {}), (0.7 - shift, {"method": "zlib"}),
            (0.51, {"checkpoint": "clean", "p_control": 0.2}),
            (0.47 + shift, {"checkpoint": "clean", "method": "blind"}),
        ]
    ]  # fmt: skip
    unmeasured = row(np.nan, learning_rate=1e-5, n_members=0, needs="members")
    tables = pd.DataFrame(rows), pd.DataFrame(), pd.DataFrame([unmeasured])
    return Sweep(BY_COLUMN["learning_rate"], "auroc_by_learning_rate", *tables)


def test_auroc_along_a_factor():
    figure = factor_chart(rate_sweep(), CONFIG)
    axes, clean = figure.axes
    check_texts(
        figure, "Detection by learning rate", "trial: tiny, 300,000 tokens",
        "AUROC of all members (40 to 44) against non-members (50), mean over benchmarks, "
        f"contaminated model. 1 seed per point. Bars and band: {BAND}. Left: the models before the "
        "contaminated training. Grey: a text classifier that never sees the model. No value at "
        "1e-5 (no members: nothing to detect).",
    )  # fmt: skip
    lines = named_lines(axes)
    np.testing.assert_allclose(lines["loss"][0], [1e-4, 1e-2], rtol=0.1)
    assert lines["loss"][1] == pytest.approx([0.6, 0.7])
    assert lines["loss"][2:] == (LOSS, "-")
    assert lines["zlib"][1] == pytest.approx([0.7, 0.6])
    assert lines["blind (no model)"][1] == pytest.approx([0.47, 0.57])
    assert axes.get_xscale() == "log"
    assert labels(axes.get_xticklabels()) == ["1e-4", "0.01"]
    assert axes.get_xlabel() == "peak learning rate"
    legend = axes.get_legend()
    assert legend.get_title().get_text() == "in order at 0.01"
    assert labels(legend.get_texts()) == ["loss", "zlib", "blind (no model)"]
    points = [(x, value) for x, value, _, _ in control_points(clean)]
    np.testing.assert_allclose(points, [(0, 0.51), (2, 0.47), (2, 0.57)])  # the clean one once
    charts = list(charts_over_conditions(small_report.findings(sweeps=[rate_sweep()])))
    assert [(chart.name, chart.condition, chart.title) for chart in charts] == [
        ("auroc_by_learning_rate", "", "AUROC against the peak learning rate")
    ]


def curve(method, checkpoint, tprs):
    return [
        {"condition": "b", "checkpoint": checkpoint, "benchmark": benchmark, "method": method,
         "variant": "", "fpr": fpr, "tpr": tpr, "ci_low": tpr - 0.1, "ci_high": tpr + 0.1}
        for benchmark in ("all", "imdb")
        for fpr, tpr in zip((0.04, 0.2, 1.0), tprs, strict=True)
        if benchmark == "all" or fpr < 1
    ]  # fmt: skip


def test_roc_curves_on_log_axes():
    curves = pd.DataFrame([
        *curve("loss", "contaminated", (0.3, 0.6, 1.0)), *curve("loss", "clean", (0.05, 0.25, 1.0)),
        *curve("zlib", "contaminated", (0.0, 0.5, 1.0)), *curve("zlib", "clean", (0.04, 0.2, 1.0)),
    ])  # fmt: skip
    figure = roc_chart(curves, condition_rows(), CONFIG)
    loss, zlib, *unused = figure.axes
    check_texts(
        figure, "ROC on log axes", ON,
        "Mean over benchmarks of the true-positive rate at each false-positive rate; 40 members "
        "and 50 non-members of all benchmarks, 1 seed. Colour: contaminated model; grey: the model "
        "before that training; dashed: a guess. Curves start where each benchmark expects 5 false "
        f"alarms. Bands: {base.describe_curve_intervals(condition_rows(), CONFIG)}.",
        stamped=True, axis_names=("false-positive rate", "true-positive rate"),
    )  # fmt: skip
    assert [axes.get_visible() for axes in figure.axes] == [True, True, False, False]
    assert len(unused) == 2
    guess, clean, contaminated = loss.get_lines()
    assert guess.get_xydata().tolist() == [[0.04, 0.04], [1, 1]]
    assert to_hex(guess.get_color()) == GREY
    assert clean.get_xydata().tolist() == [[0.04, 0.05], [0.2, 0.25], [1, 1]]
    assert to_hex(clean.get_color()) == "#9a9a9a"
    assert contaminated.get_xydata().tolist() == [[0.04, 0.3], [0.2, 0.6], [1, 1]]
    assert to_hex(contaminated.get_color()) == LOSS
    assert contaminated.get_drawstyle() == "steps-post"
    low = zlib.get_lines()[2].get_ydata()
    assert 0 < low[0] < 0.04  # 0 has no place on a log axis
    assert low[1:].tolist() == [0.5, 1.0]
    _, of_contaminated = loss.collections
    assert to_hex(of_contaminated.get_facecolor()[0]) == LOSS
    assert extents(of_contaminated) == pytest.approx([0.04, 1, 0.2, 1.1])
    assert (loss.get_xscale(), loss.get_yscale()) == ("log", "log")
    assert loss.get_xlim() == (0.04, 1)
    bottom, top = loss.get_ylim()
    assert bottom <= 0.04 < 1 <= top
    ticks = ["0.05", "0.1", "0.2", "0.5", "1"]
    assert labels(loss.get_xticklabels()) == ticks
    assert labels(loss.get_yticklabels()) == ticks
    titles = [axes.get_title("left") for axes in (loss, zlib)]
    assert titles == ["loss", "zlib"]
    (title,) = loss.findobj(lambda artist: isinstance(artist, Text) and artist.get_text() == "loss")
    assert to_hex(title.get_color()) == LOSS
    fine = roc_chart(curves.replace({"fpr": {0.04: 0.01}}), condition_rows(), CONFIG).axes[0]
    assert labels(fine.get_xticklabels()) == ["0.01", "0.1", "1"]
    coarse = roc_chart(curves.replace({"fpr": {0.04: 0.02}}), condition_rows(), CONFIG).axes[0]
    assert labels(coarse.get_xticklabels()) == ["0.02", *ticks]


def test_histograms_of_scores():
    number = len(EDGES) - 1
    shares = {"members": np.zeros(number), "non-members": np.zeros(number)}
    shares["members"][-1], shares["non-members"][:2] = 1.0, 0.5
    bins = pd.DataFrame([
        {"condition": "b", "checkpoint": checkpoint, "benchmark": "all", "method": "loss",
         "variant": "", "side": side, "centre": i, "share": share * scale,
         "ci_low": share * 0.8, "ci_high": share * 1.2}
        for checkpoint, scale in (("contaminated", 1), ("clean", 0.1))
        for side, of_side in shares.items() for i, share in enumerate(of_side)
    ])  # fmt: skip
    figure = histogram_chart(bins, condition_rows())
    check_texts(
        figure, "Scores of members and non-members", ON,
        "Orange: members; blue, dashed: non-members; 40 members and 50 non-members of all "
        "benchmarks, 1 seed. Mean over benchmarks of the share in each bin; seeds put together. "
        "Scores are standardised within each benchmark and seed; the outermost bins include all "
        "scores beyond. Bands: 95% Wilson intervals of a bin's share. Higher scores indicate "
        "members.",
        stamped=True,
        axis_names=("score, in standard deviations of the non-members", "share"),
    )  # fmt: skip
    axes = figure.axes[0]
    for stairs, side, colour in zip(axes.patches, shares, ("#d55e00", "#0072b2"), strict=True):
        np.testing.assert_array_equal(stairs.get_data().values, shares[side])
        np.testing.assert_array_equal(stairs.get_data().edges, EDGES)
        assert to_hex(stairs.get_edgecolor()) == colour
        assert (stairs.get_linestyle() == "-") == (side == "members")
    for band, colour in zip(axes.collections, ("#d55e00", "#0072b2"), strict=True):
        assert to_hex(band.get_facecolor()[0]) == colour
    assert extents(axes.collections[0]) == pytest.approx([*EDGES[-2:], 0.8, 1.2])
    assert axes.get_xlim() == (EDGES[0], EDGES[-1])
    assert axes.get_ylim()[0] == 0


def test_the_heat_map_has_each_estimate_in_its_place():
    rows = condition_rows()
    rows = rows[(rows["method"] != "zlib") | (rows["benchmark"] != "imdb")]
    certain = (rows["method"] == "loss") & (rows["benchmark"] == "imdb")
    rows["value"] = rows["value"].mask(certain & (rows["checkpoint"] == "contaminated"), 0.9)
    figure = heat_map(rows, CONFIG)
    check_texts(
        figure, "Detection by benchmark", ON,
        f"AUROC of all members against non-members (imdb 40/50), contaminated model. 1 seed. In "
        f"brackets: {BAND}. White is a guess (0.5), orange is better, purple worse.",
        stamped=True,
    )  # fmt: skip
    axes, bar = figure.axes
    assert labels(axes.get_xticklabels()) == ["imdb", "all"]
    names = labels(axes.get_yticklabels())
    assert names == ["loss", "zlib", "blind (no model)"]
    (image,) = axes.get_images()
    values = [[0.9, 0.65], [np.nan, 0.54], [0.49, 0.49]]
    np.testing.assert_array_equal(image.get_array().filled(np.nan), values)
    assert image.get_clim() == (0, 1)
    cell_texts = [
        (text.get_text(), *map(round, text.get_position()), text.get_color()) for text in axes.texts
    ]
    assert cell_texts == [
        ("0.90", 0, 0, "white"), ("[0.60, 0.80]", 0, 0, "white"),
        ("0.65", 1, 0, "black"), ("[0.55, 0.75]", 1, 0, "black"),
        ("–", 0, 1, base.GREY),
        ("0.54", 1, 1, "black"), ("[0.44, 0.64]", 1, 1, "black"),
        ("0.49", 0, 2, "black"), ("[0.39, 0.59]", 0, 2, "black"),
        ("0.49", 1, 2, "black"), ("[0.39, 0.59]", 1, 2, "black"),
    ]  # fmt: skip
    assert list(axes.get_lines()[0].get_xdata()) == [0.5, 0.5]
    assert bar.get_ylabel() == "AUROC"


def test_losses_with_the_copies_below():
    records = [small_report.record("m", [3, 1, 3, 8]), small_report.record("n", [2])]
    records[1].evaluations["loss_members"] += 2
    figure = loss_chart(records, condition_rows(), True)
    check_texts(
        figure, "Loss during training", ON,
        "Mean loss per token of members, non-members and validation text; 2 seeds. Bands: from the "
        "lowest to the highest seed. Below: inserted copies that the optimizer saw, by step (4 in "
        "all, first seed).",
        stamped=True,
    )  # fmt: skip
    copies, losses = figure.axes
    lines = named_lines(losses)
    assert list(lines) == ["members", "non-members"]  # none of validation text
    assert lines["members"][1:3] == ([6.0, 2.0], "#d55e00")
    assert lines["non-members"][1:3] == ([5.0, 3.0], "#0072b2")
    assert list(lines["members"][0]) == [0, 8]
    assert lines["members"][3] == "-"
    assert [line.get_marker() for line in losses.get_lines()] == ["o", "s"]
    assert extents(losses.collections[0]) == pytest.approx([0, 8, 1, 7])
    assert len(losses.collections) == 2
    assert losses.get_ylabel() == "loss per token"
    assert (copies.get_ylabel(), copies.get_xlabel()) == ("copies", "optimizer step")
    names = labels(losses.get_legend().get_texts())
    assert names == ["members", "non-members"]
    heights = [int(bar.get_height()) for bar in copies.patches]
    assert [height for height in heights if height] == [1, 2, 1]  # at 1, 3 and 8
    assert to_hex(copies.patches[0].get_facecolor()) == "#999999"
    texts_of_one = texts_of(loss_chart(records[:1], condition_rows(), False))
    assert texts_of_one[2].endswith(
        "1 seed. No bands: one seed. Below: inserted copies that the optimizer saw, by step (4 in "
        "all)."
    )


def stage_rows():
    return pd.DataFrame([
        row(value + 0.05 * epochs, stage=stage, scope=scope, epochs=epochs,
            condition=f"a-{stage}-epochs{epochs}-{scope}", **where)
        for stage in ("finetuning", "pretraining") for scope in ("whole", "output")
        for epochs in (1, 4)
        for value, where in [(0.6, {}), (0.45, {"checkpoint": "clean", "method": "blind"})]
    ]).astype({"stage": "string"})  # fmt: skip


def test_a_panel_of_each_stage_and_scope():
    rows = stage_rows()
    figure = stage_chart(rows, CONFIG, "a")
    check_texts(
        figure, "Detection by stage, scope and epochs",
        "trial, a: where the members were, and what was scored",
        "AUROC of all members (40) against non-members (50), mean over benchmarks, the fine-tuned "
        f"model. 1 seed per point. Bars: {BAND}. Whole: the mean over all tokens. Output: its "
        "tokens given the input. Input: its own tokens. Grey, with its band: a text classifier "
        "that never sees the model.",
    )  # fmt: skip
    titles = [axes.get_title("left") for axes in figure.axes]
    assert titles == [
        f"members in {stage}\n{scope} scored"
        for scope in ("whole", "output") for stage in ("pretraining", "fine-tuning")
    ]  # fmt: skip
    assert [axes.get_ylabel() for axes in figure.axes] == ["AUROC", "", "AUROC", ""]
    x_names = [axes.get_xlabel() for axes in figure.axes]
    assert x_names == ["", "", "", "epochs of fine-tuning"]
    for axes in figure.axes:
        lines = named_lines(axes)
        assert lines["loss"][1] == pytest.approx([0.65, 0.8])
        assert lines["blind (no model)"][1] == pytest.approx([0.5, 0.65])
        assert axes.get_xscale() == "log"
        assert labels(axes.get_xticklabels()) == ["1", "4"]
    legend = figure.axes[1].get_legend()
    assert labels(legend.get_texts()) == ["loss", "blind (no model)"]
    assert texts_of(stage_chart(rows, CONFIG))[1].startswith("trial: where the members were")
    assert has_several_panels(rows)
    one_panel = rows[(rows["stage"] == "finetuning") & (rows["scope"] == "whole")]
    assert not has_several_panels(one_panel)
    other_family = rows.assign(condition=rows["condition"].str.replace("a-", "z-"))
    families = rows_by_condition_family(pd.concat([other_family, rows, condition_rows()]))
    assert [(name, len(table)) for name, table in families.items()] == [("a", 16), ("z", 16)]
    two_families = small_report.findings(pooled=pd.concat([other_family, rows]))
    charts = list(charts_over_conditions(two_families))
    assert [chart.name for chart in charts] == ["auroc_by_stage-a", "auroc_by_stage-z"]
    assert {chart.title for chart in charts} == {"AUROC by stage, scope and epochs"}
    (chart,) = charts_over_conditions(small_report.findings(pooled=rows))
    assert chart.name == "auroc_by_stage"


def test_a_condition_has_the_charts_that_it_has_numbers_for():
    findings = small_report.findings()
    number = len(EDGES) - 1
    bins = pd.concat([findings.bins[findings.bins["condition"] == "b"]] * number, ignore_index=True)
    with_all_bins = small_report.findings(bins=bins).restrict_to_condition("b")
    assert [(c.name, c.condition, c.title) for c in charts_of_condition(with_all_bins)] == [
        ("auroc_by_occurrences-b", "b", "AUROC against occurrences"),
        ("auroc_by_benchmark-b", "b", "AUROC by benchmark"),
        ("roc-b", "b", "ROC on log axes"),
        ("scores-b", "b", "Score histograms"),
        ("losses-b", "b", "Loss during training"),
    ]
    without_numbers = findings.restrict_to_condition("a")
    no_curves = {"curves": findings.curves.head(0), "bins": findings.bins.head(0)}
    empty = small_report.findings(pooled=without_numbers.pooled, **no_curves, records={})
    assert list(charts_of_condition(empty)) == []

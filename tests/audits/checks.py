"""What tests of audits share: made-up tables, what charts and documents show, what audits read."""

from typing import NamedTuple

import pandas as pd


def frame(columns, *rows):
    """A table of these rows; `columns` has their names with blanks between them."""
    return pd.DataFrame(rows, columns=columns.split())


def with_ends(name, value, low, high):
    """A value with the ends of its interval, as reports read them."""
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def words_of(document):
    """The words of a document, whatever the widths of its tables' columns."""
    return [word if word.strip("-") else "-" for word in document.split()]


class Series(NamedTuple):
    """A line of a chart with its error bars.

    Attributes:
        points: x and y, rounded.
        ends: the lower and the upper end of each error bar, rounded.
        style: dashes, colour and marker.
    """

    label: str
    points: list
    ends: list
    style: tuple


def error_bar_series(axes, along="y"):
    """The series with error bars in the order in which they were drawn; bars lie along x or y."""
    series = []
    for container in axes.containers:
        line, _, (bars,) = container.lines
        points = [(round(float(x), 9), round(float(y), 9)) for x, y in line.get_xydata()]
        ends = [
            tuple(round(float(end["xy".index(along)]), 9) for end in bar)
            for bar in bars.get_segments()
        ]
        style = line.get_linestyle(), line.get_color(), line.get_marker()
        series.append(Series(container.get_label(), points, ends, style))
    return series


def ticks(axis):
    """The place of each tick by its label."""
    labels = [label.get_text() for label in axis.get_ticklabels()]
    return dict(zip(labels, axis.get_ticklocs().tolist(), strict=True))


def legend_labels(chart):
    (legend,) = chart.figure.legends
    return [text.get_text() for text in legend.get_texts()]


def legend_columns(chart):
    """How many columns the legend's labels stand in."""
    (legend,) = chart.figure.legends
    return len({round(text.get_window_extent().x0) for text in legend.get_texts()})


def cell_digests(cells):
    """The inputs of an audit of cells: all their digests."""
    return {
        f"{cell.name}/{name}": digest
        for cell in cells
        for name, digest in cell.cell.digests.items()
    }


def check_preparation(prepared, cells, revision, stage):
    """Checks that an audit is named by its first model, and that all it reads names its folder."""
    assert prepared.slug == cells[0].cell.model
    assert prepared.inputs == cell_digests(cells)
    assert prepared.settings == {"revision": revision, "detection": stage.detection.pass_settings}

"""Each method's style: its own, the same every time, with colours that the colour-blind can tell.

`python -m tests.analysis.test_methods` prints the distances of the palette.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from contamination import core
from contamination.analysis.methods import (
    COLOURS,
    MARKERS,
    ORDER,
    method_label,
    method_style,
    sort_methods,
)
from contamination.detection.config import METHODS_FOLDER

PAIRS = [("blind", ""), ("new", ""), ("min_k", "k=0.4"), ("min_k", "k=0.2"), ("loss", "")]
DEUTERANOPIA = np.array(
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]
)
"""Machado, Oliveira and Fernandes 2009, table 1, severity 1.0, of linear RGB."""
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
FIRST, APART = 8, 10.0
PAGES = ("#fff", "#15181d")
"""The background of the page, light and dark."""


def as_seen(colour: str) -> np.ndarray:
    """CIELAB (D65) of an sRGB colour as a reader with deuteranopia sees it."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(DEUTERANOPIA @ linear, 0, 1) / (0.95047, 1, 1.08883)
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def ciede2000(one: np.ndarray, two: np.ndarray) -> float:
    """ΔE00 of two CIELAB colours (Sharma, Wu and Dalal 2005, eq. 2 to 22)."""
    chroma = np.mean([np.hypot(*lab[1:]) for lab in (one, two)])
    stretch = 1.5 - 0.5 * np.sqrt(chroma**7 / (chroma**7 + 25**7))
    (c1, h1), (c2, h2) = (
        (np.hypot(a * stretch, b), np.degrees(np.arctan2(b, a * stretch)) % 360)
        for _, a, b in (one, two)
    )
    turn = (h2 - h1 + 180) % 360 - 180
    hue = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    light, c = (one[0] + two[0]) / 2, (c1 + c2) / 2
    weight = 1 + sum(
        f * np.cos(np.radians(n * hue + at))
        for f, n, at in ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.2, 4, -63))
    )
    around = 30 * np.exp(-(((hue - 275) / 25) ** 2))
    rotation = -2 * np.sin(np.radians(2 * around)) * np.sqrt(c**7 / (c**7 + 25**7))
    d_light = (two[0] - one[0]) / (1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2))
    d_chroma = (c2 - c1) / (1 + 0.045 * c)
    d_hue = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * c * weight)
    return float(np.sqrt(d_light**2 + d_chroma**2 + d_hue**2 + rotation * d_chroma * d_hue))


def distances(colours: list[str]) -> np.ndarray:
    seen = [as_seen(colour) for colour in colours]
    return np.array([[ciede2000(one, two) for two in seen] for one in seen])


@pytest.mark.parametrize(  # of the paper's table 1
    ("one", "two", "expected"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((50, 2.49, -0.001), (50, -2.49, 0.0011), 7.2195),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_distance_is_the_published_one(one, two, expected):
    assert ciede2000(np.array(one), np.array(two)) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("colours", [COLOURS[:FIRST], COLOURS])
def test_any_two_colours_are_told_apart_with_deuteranopia(colours):
    apart = distances(list(colours)) + 100 * np.eye(len(colours))
    assert apart.min() >= APART, apart.round(1)


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2, from 0 to 1."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(TO_XYZ[1] @ linear)


@pytest.mark.parametrize("page", PAGES)
def test_every_colour_is_seen_on_a_light_and_on_a_dark_page(page):
    for colour in COLOURS:
        darker, lighter = sorted((luminance(colour), luminance(page)))
        assert (lighter + 0.05) / (darker + 0.05) >= 2, colour


def test_the_pages_are_those_of_the_style_sheet():
    style = (Path(core.__file__).parent / "report" / "page.css").read_text()
    assert f"--paper: light-dark({', '.join(PAGES)});" in style


def test_every_method_of_the_package_has_a_look_of_its_own():
    slow = {"cdd", "samia"}  # what they read is written by the model, at length
    assert {path.stem for path in METHODS_FOLDER.glob("*.yaml")} - slow <= {*ORDER}


def test_an_upper_bound_looks_like_its_method_unless_both_are_there():
    bound, method = ("wbc_upper_bound", ""), ("wbc", "")
    assert method_style("wbc_upper_bound", [bound]) == method_style("wbc", [method])
    both = [method, bound]
    assert method_style("wbc_upper_bound", both) != method_style("wbc", both)
    assert sort_methods([("dc_pdd", ""), bound, method, ("loss", "")]) == [
        ("loss", ""), method, bound, ("dc_pdd", "")
    ]  # fmt: skip


def test_no_two_methods_look_alike():
    many = [(name, "") for name in (*ORDER, *map(str, range(3 * len(ORDER))))]
    looks = [method_style(method, many) for method, _ in many]
    assert len({(each.colour, each.marker) for each in looks}) == len(many)
    known = [method_style(name, [(name, "")]) for name in ORDER]
    assert known == looks[: len(ORDER)]
    assert len({each.colour for each in known}) == len(COLOURS) == len(MARKERS) == len(ORDER)


def test_an_unknown_method_takes_the_first_look_that_is_free():
    assert method_style("new", PAIRS) == method_style("zlib", [("zlib", "")])
    assert method_style("new", [("new", "")]) == method_style("loss", [("loss", "")])


def test_order_is_known_then_others_then_blind():
    expected = [("loss", ""), ("min_k", "k=0.2"), ("min_k", "k=0.4"), ("new", ""), ("blind", "")]
    assert sort_methods(PAIRS) == expected


def test_a_variant_is_named_where_there_are_several():
    assert method_label("min_k", "k=0.2", PAIRS) == "min_k (k=0.2)"
    assert method_label("loss", "", PAIRS) == "loss"


if __name__ == "__main__":
    print(" " * 8 + " ".join(COLOURS))
    for colour, row in zip(COLOURS, distances(list(COLOURS)), strict=True):
        print(colour, " ".join(f"{value:7.1f}" for value in row))

"""report.html: whole, self-contained, and holding the numbers of the tables."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from analysis.page.build import page

LOADS = {"src", "href", "data", "action", "poster", "srcset"}
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(HTMLParser):
    """Collects ids, what is loaded, and whether tags are closed in order."""

    def __init__(self):
        super().__init__()
        self.ids, self.loads, self.open, self.wrong = [], [], [], []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.loads += [value for name, value in attrs if name in LOADS]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.fixture(scope="module")
def text(findings):
    return page(findings, {"name": "a </script> name", "seed": 0})


@pytest.fixture(scope="module")
def read(text):
    reader = Reader()
    reader.feed(text)
    return reader


def data(text):
    start = '<script type="application/json" id="data">'
    return json.loads(text.partition(start)[2].partition("</script>")[0])


def test_no_name_reads_as_markup(findings):
    name = "<!--<script>&amp;\u2028\u2029"
    named = {part: getattr(findings, part).copy() for part in ("pooled", "curves", "bins")}
    for table in named.values():
        table["benchmark"] = table["benchmark"].replace({findings.pooled["benchmark"].min(): name})
    text = page(replace(findings, **named), {"name": name})
    inside = text.partition('id="data">')[2].partition("</script>")[0]
    assert name in json.dumps(json.loads(inside), ensure_ascii=False)
    assert not set(inside) & set("<>&\u2028\u2029")


def test_it_is_well_formed_and_has_every_part(read):
    assert not read.open
    assert not read.wrong
    assert len(set(read.ids)) == len(read.ids)
    parts = {"summary", "charts", "tables", "ledger", "config", "benchmarks", "methods"}
    assert parts < set(read.ids)


def test_nothing_is_loaded_from_elsewhere(read, text):
    assert all(value.startswith(("#", "data:")) for value in read.loads)
    own = text.replace(re.search(r"<script>(.+?)</script>", text, re.S).group(1), "")
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest", own)


def test_the_data_are_the_pooled_results(findings, text):
    columns = data(text)["estimates"]["columns"]
    assert len(columns["value"]) == len(findings.pooled)
    values = [None if np.isnan(v) else float(f"{v:.4g}") for v in findings.pooled["value"]]
    assert columns["value"] == values
    needs = columns["needs"]
    said = [needs["levels"][code] for code in needs["codes"]]
    assert [bool(text) for text in said] == [value is None for value in values]
    assert "≥ 5,000 non-members" in said
    labels = columns["label"]
    assert [labels["levels"][code] for code in labels["codes"]][-1] == "blind (no model)"


def test_filters_have_their_choices(findings, text):
    found = data(text)
    assert found["benchmarks"] == ["all", "boolq", "imdb"]
    assert found["conditions"] == list(findings.conditions)
    assert [each["column"] for each in found["factors"]] == ["learning_rate"]
    assert "blind (no model)" not in found["scored"]


def shade(scale, value):
    """Red less blue of a value's colour: above 0 orange, below 0 purple, 0 white."""
    channels = [[int(colour[i : i + 2], 16) for colour in dict(scale).values()] for i in (1, 5)]
    red, blue = (np.interp(value, list(dict(scale)), channel) for channel in channels)
    return red - blue


@pytest.mark.parametrize(
    ("metric", "guess", "worse", "better"),
    [
        ("auroc", 0.5, [0.2, 0.49], [0.51, 0.8]),
        ("tpr_at_fpr_0.05", 0.05, [0.0, 0.04], [0.06, 0.37]),
        ("tpr_at_fpr_0.01", 0.01, [], [0.02, 0.37, 1.0]),
        ("fpr_at_tpr_0.95", 0.95, [0.97, 1.0], [0.0, 0.5, 0.9]),  # lower is better
    ],
)
def test_colours_turn_at_the_metrics_own_guess(text, metric, guess, worse, better):
    found = data(text)["metrics"][metric]
    scale = found["colours"]
    assert found["guess"] == guess
    assert [scale[0][0], scale[-1][0]] == [0, 1]
    assert shade(scale, guess) == pytest.approx(0, abs=1e-9)
    assert all(shade(scale, value) < 0 for value in worse)
    assert all(shade(scale, value) > 0 for value in better)


@pytest.mark.parametrize(("metric", "end"), [("tpr_at_fpr_0.05", 0), ("fpr_at_tpr_0.95", -1)])
def test_a_hair_worse_than_a_guess_is_nearly_white(text, metric, end):
    """A scale that is stretched on the side with little room would show chance as strong colour."""
    _, colour = data(text)["metrics"][metric]["colours"][end]
    assert min(int(colour[i : i + 2], 16) for i in (1, 3, 5)) > 230


def test_tables_ledger_and_config_are_shown(findings, text):
    for tables in findings.tables.values():
        for table in tables:
            assert f"<summary>{html.escape(table.title)}</summary>" in text
    assert "<td>1,500</td>" in text
    assert "name: a &lt;/script&gt; name" in text


def test_without_records_it_says_so(findings):
    from dataclasses import replace

    shown = page(replace(findings, records={}), {})
    assert "corpora were not at hand" in shown
    assert data(shown)["losses"]["length"] == 0

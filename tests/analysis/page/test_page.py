"""report.html: whole, self-contained, and holding the numbers of the tables."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.page.build import page_data, render_page
from contamination.detection.methods.loss import Loss

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
    return render_page(findings, {"command": "python -m launch 'a </script> name'"})


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
    text = render_page(replace(findings, **named), {"name": name})
    inside = text.partition('id="data">')[2].partition("</script>")[0]
    assert name in json.dumps(json.loads(inside), ensure_ascii=False)
    assert not set(inside) & set("<>&\u2028\u2029")


def test_it_is_well_formed_and_has_every_part(read):
    assert not read.open
    assert not read.wrong
    assert len(set(read.ids)) == len(read.ids)
    parts = {"summary", "charts", "tables", "cells", "ledger", "glossary", "config", "run"}
    assert {*parts, "benchmarks", "methods"} < set(read.ids)


def test_nothing_is_loaded_from_elsewhere(read, text):
    assert all(value.startswith(("#", "data:")) for value in read.loads)
    own = text.replace(re.search(r"<script>(.+?)</script>", text, re.S).group(1), "")
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest", own)


def decoded(packed):
    """The rows as the page's script reads them: {column: value}."""
    columns = {
        name: column if isinstance(column, list) else [column["levels"][i] for i in column["codes"]]
        for name, column in packed["columns"].items()
    }
    assert {len(column) for column in columns.values()} == {packed["length"]}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def shown(row, columns, **renamed):
    """A frame's row as the page must hold it: numbers to 4 digits, nothing as null."""
    made = {name: row[renamed.get(name, name)] for name in columns if name != "label"}
    for name, value in made.items():
        if isinstance(value, float | np.floating) or value is pd.NA:
            made[name] = None if pd.isna(value) else float(f"{value:.4g}")
    return {**made, "label": "blind (no model)" if row["method"] == "blind" else row["method"]}


@pytest.mark.parametrize(
    ("part", "table", "renamed"),
    [("estimates", "pooled", {}), ("curves", "curves", {"value": "tpr"}), ("bins", "bins", {})],
)
def test_the_data_are_the_frames_row_by_row(findings, text, part, table, renamed):
    rows, frame = decoded(data(text)[part]), getattr(findings, table)
    keys = {
        "method",
        "variant",
        "experiment",
        "default",
        "model",
        "last_tokens",
        "tpr",
        "stage",
        "scope",
        "joint_low",
        "joint_high",
        "p_control",
    }
    assert set(frame.columns) - keys <= rows[0].keys()
    expected = [shown(row, rows[0], **renamed) for row in frame.to_dict("records")]
    assert rows == expected
    assert len({tuple(row.items()) for row in rows}) == len(rows)


def test_the_losses_are_those_of_the_records(findings, record):
    _, name = findings.rows_by_condition
    found = data(render_page(replace(findings, records={name: [record]}), {}))
    sides = {"members": "loss_members", "non-members": "loss_nonmembers",
             "validation": "loss_validation"}  # fmt: skip
    expected = {
        (name, side, int(step), float(f"{loss:.4g}"))
        for side, column in sides.items()
        for step, loss in zip(record.evaluations["step"], record.evaluations[column], strict=True)
    }
    rows = decoded(found["losses"])
    assert {(r["condition"], r["side"], r["step"], r["loss"]) for r in rows} == expected
    assert found["exposures"] == {name: [[step, 50] for step in range(30)]}


def test_a_control_that_is_off_is_said_for_its_condition_alone(one_off):
    text = render_page(one_off, {})
    first, second = one_off.rows_by_condition
    said = (
        "CONTROL OFF: The texts alone tell members from non-members (blind AUROC, "
        "worst benchmark: boolq, 0.66 [0.60, 0.72], corrected p = 0.010): these "
        "figures may measure the texts, not the model."
    )
    assert data(text)["stamps"] == {first: None, second: said}
    summary = text.partition('<section id="summary">')[2].partition("</section>")[0]
    assert re.findall('<p class="off">(.+?)</p>', summary) == [f"{second}: {said}"]


def test_filters_have_their_choices(findings, text):
    found = data(text)
    assert found["benchmarks"] == ["all", "boolq", "imdb"]
    assert found["conditions"] == list(findings.rows_by_condition)
    assert [each["column"] for each in found["factors"]] == ["learning_rate"]
    assert "blind (no model)" not in found["scored"]


def shade(scale, value):
    """Red, green and blue of a value's colour."""
    channels = [[int(colour[i : i + 2], 16) for colour in dict(scale).values()] for i in (1, 3, 5)]
    return np.array([np.interp(value, list(dict(scale)), channel) for channel in channels])


def test_aurocs_colours_turn_at_a_guess(text):
    found = data(text)["metrics"]["auroc"]
    red_less_blue = [shade(found["colours"], x) @ (1, 0, -1) for x in (0.2, 0.49, 0.5, 0.51, 0.8)]
    assert (np.sign(red_less_blue) == [-1, -1, 0, 1, 1]).all()
    assert "White is a guess (0.5)" in found["scale"]


@pytest.mark.parametrize(
    ("metric", "better", "words"),
    [("tpr_at_fpr_0.05", 1, "reaches 0.05"), ("fpr_at_tpr_0.75", -1, "reaches 0.75")],
)
def test_a_rates_colours_go_one_way_and_the_best_is_the_strongest(text, metric, better, words):
    found = data(text)["metrics"][metric]
    light = [shade(found["colours"], value).sum() for value in np.linspace(0, 1, 11)[::better]]
    assert (np.diff(light) < 0).all()
    assert words in found["scale"]


def test_the_roc_axis_starts_at_the_lowest_rate(findings, text):
    found = data(text)
    assert found["least"] == pytest.approx(min(found["curves"]["columns"]["fpr"]), rel=1e-3)
    assert page_data(replace(findings, curves=findings.curves.head(0)))["least"] == 0.1


def test_tables_ledger_and_config_are_shown(findings, text):
    for tables in findings.tables.values():
        for table in tables:
            assert f"<summary>{html.escape(table.title)}</summary>" in text
    assert "<td>1,500</td>" in text
    assert "name: a &lt;/script&gt; name" in text


def test_the_ledgers_counts_are_the_first_seeds(findings, record):
    seeds = [record, *(replace(record, ledger={"inserted copies": n}) for n in (2500, 3500))]
    text = render_page(replace(findings, records={"one": seeds}), {})
    assert "<tr><td>seeds</td><td>3</td></tr>" in text
    assert "<tr><td>inserted copies</td><td>1,500</td></tr>" in text


def test_without_records_it_says_so(findings):
    shown = render_page(replace(findings, records={}), {})
    assert "corpora were not at hand" in shown
    assert data(shown)["losses"]["length"] == 0


def test_the_answer_comes_first(findings, text):
    (answer,), (headline,) = findings.answer, findings.headline
    body = html.unescape(text.partition("<body>")[2]).replace("\u00a0", " ")
    body = re.sub("</?strong>", "**", body)  # a control may be off by chance
    parts = [answer, findings.plain_controls, '<section id="charts">', headline, findings.controls]
    places = [body.index(part) for part in parts]
    assert places == sorted(places)
    assert body.index('<figure id="figure-factor">') < body.index(
        '<figure id="figure-occurrences">'
    )


def section(text, name):
    return text.partition(f'<section id="{name}">')[2].partition("</section>")[0]


def test_it_says_what_each_cell_is_and_what_wrote_it(findings, text):
    cells = section(text, "cells")
    assert "<tr><td>corpus tokens</td><td>400,000</td></tr>" in cells  # of both
    for facts in findings.cells:
        own = (facts.get(name, "–") for name in ("cell", "learning rate", "steps", "code"))
        assert "".join(f"<td>{value}</td>" for value in own) in cells
    assert {"learning rate", "corpus tokens", "occurrences", "seed"} < set(findings.cells[0])
    assert "<dt>command</dt><dd>python -m launch &#39;a &lt;/script&gt;" in section(text, "run")


def test_one_cell_has_no_line_of_its_own(findings):
    text = render_page(replace(findings, cells=findings.cells[:1]), {})
    assert section(text, "cells").count("<table>") == 1


def test_the_glossary_is_made_of_the_classes_own_words(text):
    glossary = html.unescape(section(text, "glossary"))
    assert f"<dt>loss</dt><dd>{Loss.__doc__.partition(chr(10))[0]}<pre>score(x) = " in glossary
    assert "<dt>min_k</dt><dd>Its class is not one of this project's.</dd>" in glossary


@pytest.mark.parametrize(("methods", "coloured"), [(3, 3), (9, 6)])
def test_the_best_methods_are_coloured_at_first_and_six_at_most(findings, methods, coloured):
    loss = findings.pooled[findings.pooled["method"] == "loss"]
    names = [f"m{i}" for i in range(methods)]
    many = [loss.assign(method=name, value=0.5 + i / 100) for i, name in enumerate(names)]
    none = {"curves": findings.curves.head(0), "bins": findings.bins.head(0)}
    found = page_data(replace(findings, pooled=pd.concat(many), **none))
    assert found["highlighted"] == names[-coloured:]

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

from contamination.analysis.factors import BY_COLUMN
from contamination.analysis.page.build import page_data, render_page
from contamination.analysis.plain_summary import TERMS
from contamination.analysis.summary import reading_guide
from contamination.analysis.sweeps import Sweep
from contamination.detection.methods.loss import Loss
from tests.analysis import small_report

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


@pytest.fixture(scope="module")
def small_page():
    """The page of findings that are written out."""
    return render_page(small_report.findings(), {"command": "x"})


def details(title, inside, opened=False):
    return f"<details{' open' * opened}><summary>{title}</summary>{inside}</details>"


def texts_in(text, tag):
    """The texts of a table's cells (td) or of its header (th)."""
    return re.findall(rf"<{tag}(?: [^>]*)?>(.*?)</{tag}>", text)


def test_each_part_of_the_page_is_that_of_the_findings(small_page):
    assert "<title>trial &lt;1&gt;: detection of contamination</title>" in small_page
    assert '<p class="answer">Members are <strong>found</strong>.</p>' in small_page
    assert "Controls: fine." in small_page
    terms = re.sub(r"\*\*(.+?)\*\*", r"<dfn>\1</dfn>", html.escape(TERMS))
    assert terms in small_page
    guide = html.escape(reading_guide(small_report.findings().config))
    assert re.sub("`(.+?)`", r"<code>\1</code>", guide) in small_page
    off = section(small_page, "summary").partition('<p class="off">')[2].partition("</p>")[0]
    assert off.startswith("b: CONTROL OFF: The clean model&#x27;s AUROC differs from 0.5 (worst")


def test_sentences_of_the_headline_are_not_repeated(small_page):
    summary = section(small_page, "summary")
    nbsp = "\u00a0"
    assert f"<p>In b: 0.65{nbsp}[0.55,{nbsp}0.75].</p>\n<p>Controls: as by chance.</p>" in summary
    assert details("a", "<ul><li>No members.</li></ul>") in summary
    assert details("b", "<ul><li>It rises.</li></ul>") in summary
    one_condition = small_report.findings().restrict_to_condition("b")
    summary = section(render_page(one_condition, {}), "summary")
    assert details("b", "<ul><li>It rises.</li></ul>", opened=True) in summary


def test_the_first_table_is_open_and_empty_conditions_have_no_tables(small_page):
    tables = section(small_page, "tables")
    titles = re.findall(r"<details( open)?><summary>(.+?)</summary>", tables)
    assert titles == [
        (" open", "Over all conditions"), (" open", "Title of over"), ("", "Title of more"),
        ("", "b"), ("", "Title of one"), ("", "Title of two"),
    ]  # fmt: skip


def test_what_cells_share_is_said_once(small_page):
    cells = section(small_page, "cells")
    assert texts_in(cells, "th") == ["all cells", "", "cell", "steps"]
    assert texts_in(cells, "td") == ["seed", "0", "a-seed0", "–", "b-seed0", "8"]
    assert "Examples, token by token" not in cells
    pages = ["examples/a b.html", "examples/<c>.html"]
    one_cell = small_report.findings(cells=[{"cell": "a"}], examples=pages)
    cells = section(render_page(one_cell, {}), "cells")
    assert texts_in(cells, "th") == ["the cell", ""]
    assert (
        "<h3>Examples, token by token</h3><ul>"
        '<li><a href="examples/a%20b.html">examples/a b.html</a></li>'
        '<li><a href="examples/%3Cc%3E.html">examples/&lt;c&gt;.html</a></li></ul>'
    ) in cells


def test_methods_settings_and_counts_are_written(small_page):
    assert (
        "<dl><dt>loss</dt><dd>The &lt;mean&gt;.<pre>a &lt; b</pre></dd>"
        "<dt>zlib</dt><dd>Its class is not one of this project&#x27;s.</dd></dl>"
    ) in section(small_page, "glossary")
    config = section(small_page, "config")
    titles = re.findall(r"<details( open)?><summary>(.+?)</summary>", config)
    assert titles == [("", "analysis"), ("", "b")]
    assert "<pre>draws: 1500\n" in config
    assert "<pre>training:\n  name: a &lt;b&gt;\n</pre>" in config
    ledger = section(small_page, "ledger")
    assert "<p>Counts of the first seed.</p>" in ledger
    assert texts_in(ledger, "th") == ["", "b"]
    assert texts_in(ledger, "td") == ["seeds", "2", "inserted copies", "1,234"]
    records = dict(small_report.findings().records)
    records["a"] = [small_report.record("o", [1], ledger={"y": 2})]
    ledger = section(render_page(small_report.findings(records=records), {}), "ledger")
    assert texts_in(ledger, "td") == [
        "seeds", "1", "2", "y", "2", "–", "inserted copies", "–", "1,234"
    ]  # fmt: skip
    config_without_records = section(render_page(small_report.findings(records={}), {}), "config")
    assert re.findall(r"<details( open)?><summary>", config_without_records) == [" open"]


def test_the_scripts_data_are_those_of_the_findings():
    findings = small_report.findings()
    data_of_page = page_data(findings)
    assert data_of_page["highlighted"] == ["loss", "zlib"]
    assert data_of_page["summaries"] == {"loss": "The <mean>.", "zlib": ""}
    assert data_of_page["methods"] == [
        {"label": "loss", "colour": "#0072B2", "symbol": "circle", "dash": "solid", "blind": False},
        {"label": "zlib", "colour": "#E69F00", "symbol": "square", "dash": "solid", "blind": False},
        {"label": "blind (no model)", "colour": "#7F7F7F", "symbol": "diamond-tall",
         "dash": "dash", "blind": True},
    ]  # fmt: skip
    assert data_of_page["scored"] == ["loss", "zlib"]
    assert data_of_page["benchmarks"] == ["all", "imdb"]
    assert data_of_page["conditions"] == ["b", "a"]  # those with numbers first
    metrics = data_of_page["metrics"]
    assert {name: (metric["title"], metric["guess"]) for name, metric in metrics.items()} == {
        "auroc": ("AUROC", 0.5), "tpr_at_fpr_0.05": ("TPR at FPR ≤ 0.05", 0.05)
    }  # fmt: skip
    assert data_of_page["band"] == (
        "Bars and bands: 95% bootstrap intervals over examples (1,500 draws). Point at a method "
        "for its band."
    )
    assert data_of_page["curveBand"].endswith(" draws). Point at a method for its band.")
    assert data_of_page["sides"] == {"members": "#D55E00", "non-members": "#0072B2"}
    assert data_of_page["least"] == 0.05
    assert data_of_page["stamps"]["a"] is None
    assert data_of_page["stamps"]["b"].startswith("CONTROL OFF: The clean model's")
    assert data_of_page["curves"] == {
        "length": 2,
        "columns": {
            "condition": {"levels": ["a", "b"], "codes": [0, 1]},
            **{
                name: {"levels": [level], "codes": [0, 0]}
                for name, level in [("checkpoint", "contaminated"), ("benchmark", "all"),
                                    ("label", "loss")]
            },
            "fpr": [0.25, 0.05], "value": [0.5, 0.5], "ci_low": [0.4123] * 2, "ci_high": [0.6] * 2,
        },
    }  # fmt: skip
    assert list(data_of_page["bins"]["columns"]) == [
        "condition", "checkpoint", "benchmark", "label", "side", "centre", "share", "ci_low",
        "ci_high",
    ]  # fmt: skip
    assert list(data_of_page["estimates"]["columns"]) == [
        "condition", "checkpoint", "benchmark", "label", "occurrences", "metric", "n_members",
        "n_nonmembers", "n_seeds", "value", "ci_low", "ci_high", "needs", "learning_rate",
        "budget_tokens", "parameters", "example_max_tokens", "epochs", "mean_occurrences",
    ]  # fmt: skip
    assert data_of_page["losses"] == {
        "length": 4,
        "columns": {
            "condition": {"levels": ["b"], "codes": [0] * 4},
            "side": {"levels": ["members", "non-members"], "codes": [0, 0, 1, 1]},
            "step": [0, 8, 0, 8], "loss": [5.0, 1.0, 5.0, 3.0],
            "low": [5.0, 1.0, 5.0, 3.0], "high": [5.0, 1.0, 5.0, 3.0],
        },
    }  # fmt: skip
    assert data_of_page["lossSides"] == {
        "members": "#D55E00", "non-members": "#0072B2", "validation": "#4D4D4D"
    }  # fmt: skip
    assert data_of_page["lossDashes"] == {
        "members": "solid", "non-members": "dash", "validation": "dot"
    }  # fmt: skip
    assert data_of_page["exposures"] == {"b": [(1, 1), (3, 2)]}
    assert data_of_page["lossCaption"] == {
        "b": "Mean loss per token of members, non-members and validation text; 2 seeds. Bands: "
        "from the lowest to the highest seed. Below: inserted copies that the optimizer saw, by "
        "step (3 in all, first seed)."
    }
    assert data_of_page["factors"] == []


def test_variants_of_a_method_differ_in_their_dashes():
    rows = small_report.condition_rows()
    loss = rows[rows["method"] == "loss"]
    variants = [loss.assign(variant=f"k={i}") for i in range(5)]
    no_curves = {"curves": small_report.findings().curves.head(0)}
    no_curves["bins"] = small_report.findings().bins.head(0)
    methods = page_data(small_report.findings(pooled=pd.concat(variants), **no_curves))["methods"]
    assert [method["label"] for method in methods] == [f"loss (k={i})" for i in range(5)]
    assert [method["dash"] for method in methods] == ["solid", "dash", "dot", "dashdot", "solid"]
    assert len({method["colour"] for method in methods}) == 1


def test_series_of_a_factor_are_told_apart_where_there_are_several():
    def series(tokens):
        rows = [
            small_report.row(0.7, learning_rate=rate, condition=name, budget_tokens=tokens)
            for rate, name in ((1e-3, "b"), (1e-4, "a"))
        ]
        unmeasured = small_report.row(np.nan, learning_rate=1e-5, n_members=0, needs="members")
        tables = pd.DataFrame(rows), pd.DataFrame(), pd.DataFrame([unmeasured])
        return Sweep(BY_COLUMN["learning_rate"], "auroc_by_learning_rate", *tables)

    factor = {
        "name": "peak learning rate", "axis": "peak learning rate",
        "fixed": "tiny, 1,000 tokens",
        "without": " No value at 1e-5 (no members: nothing to detect).",
        "levels": [1e-4, 1e-3], "texts": ["1e-4", "1e-3"], "column": "learning_rate",
        "conditions": ["a", "b"],
    }  # fmt: skip
    assert page_data(small_report.findings(sweeps=[series(1000)]))["factors"] == [factor]
    factors = page_data(small_report.findings(sweeps=[series(1000), series(2000)]))["factors"]
    assert factors[0] == {**factor, "name": "peak learning rate: 1,000 tokens"}
    assert factors[1]["name"] == "peak learning rate: 2,000 tokens"

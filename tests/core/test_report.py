"""HTML pages and documents: escaping, what is trusted, and empty parts."""

import dataclasses
import html
import math
import re
from types import SimpleNamespace

import jinja2
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from contamination.core.report.charts import ACCENT, InlineChart, chart_files, page_figure
from contamination.core.report.document import (
    ReportContent,
    html_document,
    markdown_document,
    save_charts,
)
from contamination.core.report.html import (
    bold_markup,
    definition_list,
    fill_html_template,
    html_table,
    json_for_script,
    keep_intervals_together,
    read_report_file,
    render_template,
)
from contamination.core.report.tables import (
    Table,
    escape_markdown,
    format_estimate,
    write_tables,
)

NAME = '<b>a & "b"</b>'
ESCAPED = "&lt;b&gt;a &amp; &#34;b&#34;&lt;/b&gt;"


def test_values_are_escaped_unless_they_are_markup():
    assert (
        render_template("{{ name }} {{ html }}", {"name": NAME, "html": Markup("<i>")})
        == f"{ESCAPED} <i>"
    )


def test_a_name_without_a_value_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="'title' is undefined"):
        render_template('{% extends "skeleton.html" %}', {"css": ""})


def test_parts_of_a_filled_template_are_html_and_are_not_templates_themselves():
    assert (
        fill_html_template("<p>{{one}}</p>\n", {"one": "<b>{{two}}</b>"})
        == "<p><b>{{two}}</b></p>\n"
    )


def test_tables_and_facts_are_strings_that_can_be_joined():
    table, facts = html_table([NAME], [["**1**", NAME]]), definition_list({NAME: NAME})
    assert "<td><strong>1</strong></td><td>&lt;b&gt;a" in table
    assert facts == f"<dl><dt>{ESCAPED}</dt><dd>{ESCAPED}</dd></dl>"
    assert ("<p>" + table).startswith("<p><div")


def test_a_document_without_parts_has_no_empty_sections():
    content = ReportContent(NAME, ["Yes."])
    page = html_document(content)
    assert "<section" not in page
    assert f"<title>{ESCAPED}</title>" in page
    assert markdown_document(content) == f"# {NAME.replace('<', '&lt;')}\n\nYes.\n"


def test_a_table_of_a_document_has_its_note():
    table = Table("t", "Title", ["a"], [["1"]], pd.DataFrame({"a": [1]}), note="Read **it**.")
    content = ReportContent("x", [], tables=[table])
    assert '<p class="note">Read <strong>it</strong>.</p>' in html_document(content)
    assert markdown_document(content).endswith("Read **it**.\n")


def test_a_warning_that_begins_in_bold_is_not_made_bold_twice():
    content = ReportContent("Title", ["c"], ["**Few items.** Give more.", "Plain."], [])
    text = markdown_document(content)
    assert "\n**Few items.** Give more.\n" in text
    assert "\n**Plain.**\n" in text


LINKS = [
    "[a](http://b.c)", "![a](b)", "[a][b]", "[a]: /b", "[^1]: a", "<http://a.b>",
    "<a href='x'>y</a>", "http://a.b/c_d?e=*f*", "HTTPS://a.b", "ftp://a.b", "(www.a.b)",
    "_www.a.b", "me@a.b", "mailto:me@a.b", "[![a](b)](c)", "\\[a](b)", "[a\\](b)", "http\\://a.b",
]  # fmt: skip
FORMATS = [
    "_a_ __b__ c_d_e", "*a*", "***a***", "`a`", "~~a~~ ~b~", "# a", "> a", "- a", "1. a", "---",
    "===", "[x] a", "$a$", "&lt; &#64;", "<b>a</b>", "<!-- a -->", "a|b",
    "\\* \\| c:\\new\\_d", "a\\",
]  # fmt: skip
PIECES = [
    *"[]()<>!*_`~|\\ #-+=:$&x1.", "http://a.b", "www.a.b", "me@a.b", "mailto:", "&lt;",
]  # fmt: skip


def shown(markdown):
    """What a reader of the rendered Markdown sees."""
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark", {"html": True})
    page = parser.enable(["table", "strikethrough"]).render(markdown)
    assert not re.search("<(a|img|em|code|s|h1|ul|ol|hr|blockquote|b|pre)[ >/]", page)
    return html.unescape(re.sub("<!--.*?-->|</?(p|strong)>", "", page)).strip()


@pytest.mark.parametrize("text", [*LINKS, *FORMATS])
def test_markdown_shows_a_text_as_it_is_written(text):
    assert shown(escape_markdown(text)) == text
    assert escape_markdown(text) != text or text == "a\\"


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_markdown_shows_any_text_as_it_is_written(text):
    if "**" not in text:
        assert shown(escape_markdown(text)) == " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("see https://a.b", r"see https\://a.b"),  # a backslash keeps GitHub from making a link
        ("www.a.b WWW.a.b", r"www\.a.b WWW\.a.b"),
        ("me@a.b", "me<!-- -->@a.b"),  # but not of an e-mail address
        ("[a](b)", r"[a\](b)"),
    ],
)
def test_an_address_is_no_link_on_github(text, escaped):
    assert escape_markdown(text) == escaped


@pytest.mark.parametrize(
    "text", ["**0.9** [0.8, 1.0], p < 0.05", "min_k_plus_plus", "2 * 3 - 1", "-0.1", "runs/a.csv"]
)
def test_what_markdown_shows_as_it_is_stays(text):
    assert escape_markdown(text) == text


LINK = "[a](http://b.c)"


def test_no_part_of_a_document_is_a_link(tmp_path):
    table = Table("t", LINK, [LINK], [[LINK]], pd.DataFrame({"a": [1]}), note=LINK)
    content = ReportContent(LINK, [LINK], [LINK], tables=[table], limits=[LINK], facts={LINK: LINK})
    write_tables(tmp_path, {LINK: [table]})
    for text in (markdown_document(content), (tmp_path / "t.md").read_text()):
        assert LINK not in text
        assert text.count(r"[a\](http\://b.c)") == text.count("b.c") > 3
    assert "<a" not in html_document(content)


DATA = pd.DataFrame({"cell": ["a"], "value": [0.125]})
FITTED = Table(
    "t", "Sizes & <b>", ["Size", "n [of]"], [["x_1", "[1]"], ["long", "20"]], DATA, ["n [of]"]
)


@pytest.mark.parametrize(
    ("condition", "caption", "label"),
    [("", r"Sizes \& \textless{}b\textgreater{}", "t"),
     ("Cell B/1.5", r"Sizes \& \textless{}b\textgreater{} (Cell B/1.5)", "Cell-B-1.5-t")],
)  # fmt: skip
def test_a_table_of_a_paper(condition, caption, label):
    assert FITTED.latex(condition).split("\n") == [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{label}}}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"Size & n [of] \\",
        r"\midrule",
        r"x\_1 & {[}1] \\",
        r"long & 20 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    assert condition or FITTED.latex() == FITTED.latex("")


MARKDOWN = """\
| Size | n [of] |
| ---- | ------ |
| x_1  | \\[1]   |
| long | 20     |"""


def test_a_table_is_markdown_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr("contamination.core.report.tables.terminal_width", lambda: None)
    assert FITTED.terminal_text() == FITTED.markdown() == MARKDOWN
    for name in ("report.tables", "terminal"):
        monkeypatch.setattr(f"contamination.core.{name}.terminal_width", lambda: 11)
    note = "(not in 11 columns: n [of]; `| cat` shows all)"
    assert FITTED.terminal_text().split("\n") == ["Size", "x_1", "long", note]


def test_tables_of_the_same_name_share_their_files(tmp_path):
    folder = tmp_path / "tables"
    second_table = dataclasses.replace(FITTED, title="Others", data=DATA.assign(cell="b"))
    alone = dataclasses.replace(FITTED, name="alone")
    for _ in range(2):  # the files of an earlier run are replaced
        paths = write_tables(folder, {"": [FITTED, alone], "cell_b": [second_table]})
    names = [f"{name}.{suffix}" for name in ("t", "alone") for suffix in ("md", "csv", "tex")]
    assert paths == [folder / name for name in names]
    assert sorted(folder.iterdir()) == sorted(paths)
    first_markdown = f"Sizes & &lt;b>\n\n{MARKDOWN}\n"
    assert paths[0].read_text() == f"{first_markdown}\n## cell_b\n\nOthers\n\n{MARKDOWN}\n"
    assert paths[1].read_text() == '"cell","value"\n"a",0.125\n"b",0.125\n'
    assert paths[2].read_text() == f"{FITTED.latex()}\n\n{second_table.latex('cell_b')}\n"
    assert paths[3].read_text() == first_markdown


def test_an_estimate_has_its_interval_or_says_what_it_needs():
    assert format_estimate(0.914, 0.875, 0.9351, "") == "0.91 [0.88, 0.94]"
    assert format_estimate(math.nan, math.nan, math.nan, "≥ 20 items") == "needs ≥ 20 items"


def chart(name="curve", label='Loss & "rank"'):
    with page_figure(3, 2) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=ACCENT)
        axes.set_title("Costs $5")
    return InlineChart(name, f"The {name}", figure, label, "What *it* shows.")


def test_equal_names_of_charts_get_numbers():
    charts = [SimpleNamespace(name=name) for name in ("a", "b", "a", "a", "b")]
    files = chart_files(charts)
    assert [*files] == ["a", "b", "a-2", "a-3", "b-2"]
    assert [*files.values()] == charts


LABELLED = '<svg role="img" aria-label="Loss &amp; &quot;rank&quot;" '


def test_a_chart_of_a_page_has_the_pages_colours():
    svg = chart().svg
    assert svg.startswith(LABELLED)
    assert svg.endswith("</svg>")
    assert "var(--accent)" in svg
    assert ACCENT not in svg
    assert "Costs $5" in svg
    assert "<metadata>" not in svg
    assert svg.count("<svg") == 1


def test_the_files_of_a_chart_are_the_same_every_time(tmp_path):
    saved_chart = chart()
    paths = [tmp_path / name for name in ("a.svg", "b.svg", "a.pdf", "b.pdf")]
    for path in paths:
        saved_chart.save(path)
    svg, second_svg, pdf, second_pdf = (path.read_bytes() for path in paths)
    assert (svg, pdf) == (second_svg, second_pdf)
    text = svg.decode()
    assert text.startswith(LABELLED)
    assert text.endswith("</svg>\n")
    assert text.partition(">")[2].startswith('<rect width="100%" height="100%" fill="white"/>')
    assert text.count("<rect width") == 1
    assert ACCENT in text
    assert pdf.startswith(b"%PDF")
    assert not re.search(b"/(CreationDate|Creator|Producer) ?[(/]", pdf)


@pytest.fixture(scope="module")
def content():
    """A document that has all parts."""
    tables = [dataclasses.replace(FITTED, note="Read it.")]
    return ReportContent(
        "A *title*", ["**Yes**, _it_ is.", "And more."], ["Few items."], tables,
        [chart(), chart(label="Other")], ["No *proof*."], {"Model": "a_b", "Seeds": "_3_"},
    )  # fmt: skip


BEGINNING = f"""\
# A \\*title\\*

**Yes**, \\_it\\_ is.

And more.

**Few items.**

## Sizes & &lt;b>

{MARKDOWN}

Read it.
"""
CHARTS = """
## The curve

![Loss & "rank"](charts/curve.svg)

What \\*it\\* shows.

## The curve

![Other](charts/curve-2.svg)

What \\*it\\* shows.
"""
END = """
## What this can't prove

- No \\*proof\\*.

## What it is based on

- Model: a_b
- Seeds: \\_3\\_
"""


def test_a_document_has_its_parts_in_order(tmp_path, content):
    assert markdown_document(content) == BEGINNING + END
    assert markdown_document(content, has_charts=True) == BEGINNING + CHARTS + END
    names = [f"charts/{name}" for name in ("curve.svg", "curve.pdf", "curve-2.svg", "curve-2.pdf")]
    assert save_charts(content, tmp_path) == names
    assert {path.name for path in tmp_path.glob("charts/*")} == {name[7:] for name in names}
    assert 'aria-label="Other"' in (tmp_path / "charts/curve-2.svg").read_text()
    assert save_charts(ReportContent("Title", []), tmp_path) == []


def test_a_page_has_the_parts_of_its_document(content):
    page = html_document(content)
    parts = [
        "<title>A *title*</title>", read_report_file(), read_report_file("document.css"),
        "<strong>Yes</strong>, _it_ is.", "Few items.", "Read it.", "The curve", 'id="chart-curve"',
        'id="chart-curve-2"', "What *it* shows.", "What this can&#39;t prove",
        "No *proof*.", "What it is based on", "<dt>Seeds</dt><dd>_3_</dd>",
    ]  # fmt: skip
    assert [part for part in parts if part not in page] == []
    assert page.count('role="img"') == 2


def test_data_of_a_page_can_not_end_its_script():
    script = json_for_script({"a": ["</script>&\u2028", 1.5, None]})
    assert script == '{"a":["\\u003c/script\\u003e\\u0026\\u2028",1.5,null]}'


@pytest.mark.parametrize(
    ("text", "bold", "together"),
    [
        ("**a < b** c **d**", "<strong>a &lt; b</strong> c <strong>d</strong>", None),
        ("0.5 [0.4, 0.6]", "0.5 [0.4, 0.6]", "0.5\u00a0[0.4,\u00a00.6]"),
        ("+5% [-1%, 6%] [a, b]", "+5% [-1%, 6%] [a, b]", "+5%\u00a0[-1%,\u00a06%] [a, b]"),
    ],
)
def test_bold_words_and_intervals_of_a_page(text, bold, together):
    assert bold_markup(text) == bold
    assert keep_intervals_together(text) == (together or text)

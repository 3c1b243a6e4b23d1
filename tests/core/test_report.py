"""HTML pages and documents: escaping, what is trusted, and empty parts."""

import html
import re

import jinja2
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from contamination.core.report.document import ReportContent, html_document, markdown_document
from contamination.core.report.html import (
    definition_list,
    fill_html_template,
    html_table,
    render_template,
)
from contamination.core.report.tables import Table, escape_markdown, write_tables

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

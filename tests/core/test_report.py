"""HTML pages and documents: escaping, what is trusted, and empty parts."""

import jinja2
import pandas as pd
import pytest
from markupsafe import Markup

from contamination.core.report.document import ReportContent, html_document, markdown_document
from contamination.core.report.html import (
    definition_list,
    fill_html_template,
    html_table,
    render_template,
)
from contamination.core.report.tables import Table

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

"""HTML pages that need no other file and no network: the skeleton, its elements and their escaping.

Templates are Jinja's and escape what they are given. Functions that return `str` return HTML.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from jinja2 import Environment

LONG = 40  # table cells with more characters than this are broken into lines


def render_template(template: str, values: Mapping[str, object]) -> str:
    """Fill a Jinja template, which may extend skeleton.html and import elements.html.

    Args:
        template: the template's source.
        values: by the template's names. Each is escaped, unless it is a `Markup`.

    Raises:
        jinja2.UndefinedError: the template uses a name without a value.
    """
    return _jinja_environment().from_string(template).render(values)


@cache
def _jinja_environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(read_report_file),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.globals["LONG"] = LONG
    environment.filters["bold"] = lambda text: Markup(bold_markup(text))
    environment.filters["keep_intervals"] = keep_intervals_together
    return environment


def fill_html_template(template: str, parts: Mapping[str, str]) -> str:
    """The template with each `{{name}}` replaced by the part of that name, which is HTML."""
    return render_template(template, {name: Markup(part) for name, part in parts.items()})


def json_for_script(value: object) -> str:
    """JSON that no HTML parser reads as markup: `<!--<script>` in it would hide the page's end."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)  # U+2028 and U+2029 too
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def read_report_file(name: str = "page.css") -> str:
    """The text of a file of this folder; by default the style sheet that all reports share."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def bold_markup(text: str) -> str:
    """The escaped text, in which Markdown's **bold** is bold; no other Markdown is read."""
    parts = html.escape(text).split("**")
    return "".join(f"<strong>{part}</strong>" if i % 2 else part for i, part in enumerate(parts))


def keep_intervals_together(text: str) -> str:
    """The text with non-breaking spaces that keep an estimate and its interval on one line."""
    return re.sub(r" \[([-+.%\d]+), ", "\u00a0[\\1,\u00a0", text)


def html_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table that scrolls by itself where it is too wide."""
    return str(_element_macros().table(header, lines))


def definition_list(facts: Mapping[str, str]) -> str:
    """A list of facts: each name as a term, with the fact as its definition."""
    return str(_element_macros().facts(facts))


@cache
def _element_macros() -> Any:
    return _jinja_environment().get_template("elements.html").module

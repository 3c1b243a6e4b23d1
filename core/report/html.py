"""Self-contained HTML pages: the skeleton, its elements and their escaping.

Templates are Jinja templates that escape their values. Functions that return `str` return HTML.
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
    """Returns a filled Jinja template, which may extend skeleton.html and import elements.html.

    Args:
        template: the source of the template.
        values: the template's values by name. A value is escaped unless it is a `Markup`.

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
    """Returns the template with each `{{name}}` replaced by the HTML in `parts[name]`."""
    return render_template(template, {name: Markup(part) for name, part in parts.items()})


def json_for_script(value: object) -> str:
    """Returns the value as JSON that is safe inside a `<script>` element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)  # U+2028 and U+2029 too
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def read_report_file(name: str = "page.css") -> str:
    """Returns the text of a file in this folder; by default the style sheet of all reports."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def bold_markup(text: str) -> str:
    """Returns the escaped text with Markdown's **bold** as HTML; other Markdown is not changed."""
    parts = html.escape(text).split("**")
    return "".join(f"<strong>{part}</strong>" if i % 2 else part for i, part in enumerate(parts))


def keep_intervals_together(text: str) -> str:
    """Returns the text with non-breaking spaces between an estimate and its interval."""
    return re.sub(r" \[([-+.%\d]+), ", "\u00a0[\\1,\u00a0", text)


def html_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Returns an HTML table, which scrolls horizontally if it is too wide."""
    return str(_element_macros().table(header, lines))


def definition_list(facts: Mapping[str, str]) -> str:
    """Returns an HTML definition list of facts: name → text."""
    return str(_element_macros().facts(facts))


@cache
def _element_macros() -> Any:
    return _jinja_environment().get_template("elements.html").module

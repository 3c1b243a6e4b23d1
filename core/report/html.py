"""Web pages that hold all that they need: a template filled with text, styles, code and data."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with each `{{name}}` replaced by the part of that name."""
    first, *pieces = template.split("{{")
    found = [first]
    for piece in pieces:  # one pass: what a part holds is never looked at again
        name, _, rest = piece.partition("}}")
        found += [parts[name], rest]
    return "".join(found)


def script_json(value: object) -> str:
    """JSON that no HTML parser reads as markup: `<!--<script>` in it would hide the page's end."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)  # U+2028 and U+2029 too
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def stylesheet() -> str:
    """What the looks of all reports have in common: colours for light and dark, text, tables."""
    return files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def marked(text: str) -> str:
    """The only Markdown in sentences and tables: **bold**."""
    bits = html.escape(text).split("**")
    return "".join(f"<strong>{bit}</strong>" if i % 2 else bit for i, bit in enumerate(bits))


def unbroken(text: str) -> str:
    """An estimate and its interval stay on one line."""
    return re.sub(r" \[([-+.%\d]+), ", "\u00a0[\\1,\u00a0", text)


LONG = 40
"""Characters of a table's cell from which on it is broken into lines."""


def html_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table that scrolls by itself where it is too wide."""
    head = "".join(f"<th>{marked(text)}</th>" for text in header)
    body = "\n".join(f"<tr>{''.join(map(_cell, line))}</tr>" for line in lines)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(text: str) -> str:
    return f"<td{' class=long' * (len(text) > LONG)}>{marked(text)}</td>"


def facts_list(facts: Mapping[str, str]) -> str:
    """Facts as terms with what they are."""
    parts = [f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in facts.items()]
    return f"<dl>{''.join(parts)}</dl>"

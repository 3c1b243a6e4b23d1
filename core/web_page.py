"""Web pages that hold all that they need: a template filled with text, styles, code and data."""

from __future__ import annotations

import json
from collections.abc import Mapping


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

"""The plain text of wikitext: what a reader of the page sees as its sentences.

It is read off mwparserfromhell's tokens, as they come: its tree of nodes takes ten times as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from detection.building.sources import needed

UNSEEN = {
    "TemplateOpen": "TemplateClose",
    "ArgumentOpen": "ArgumentClose",
    "CommentStart": "CommentEnd",
    "HeadingStart": "HeadingEnd",
}
"""What gives no text, and how its end is called."""
NO_TEXT = ("table", "ref", "references")
PREFIX = re.compile(r"([^\s:]+):\S")
Tokens = Iterator[Any]


def plain(wikitext: str) -> str:
    """The text without templates, tables, headings, references, files and formulas."""
    parser = needed("mwparserfromhell.parser", "source=wikipedia").Parser()
    return "".join(_read(iter(parser._tokenizer.tokenize(wikitext, 0, False)))[0])


def _read(tokens: Tokens, *ends: str) -> tuple[list[str], str]:
    """The text of each node up to one of the ends, and which of them it is."""
    parts: list[str] = []
    for token in tokens:
        kind = type(token).__name__
        if kind == "Text":
            parts.append(token["text"])
        elif kind in ends:
            return parts, kind
        elif kind in UNSEEN:
            parts.append(_skipped(tokens, kind))
        elif kind in READ:
            parts.append(READ[kind](tokens))
    return parts, ""


def _skipped(tokens: Tokens, begin: str) -> str:
    """Nothing, once its end has come by; such things stand within each other."""
    deep = 1
    while deep:
        kind = type(next(tokens)).__name__
        deep += (kind == begin) - (kind == UNSEEN[begin])
    return ""


def _wikilink(tokens: Tokens) -> str:
    """What it shows; nothing of one that leads out of the articles: a file, a category."""
    title, end = _read(tokens, "WikilinkSeparator", "WikilinkClose")
    shown = _read(tokens, "WikilinkClose")[0] if end == "WikilinkSeparator" else None
    prefix = PREFIX.match("".join(title))
    if prefix and (shown is None or "|" in "".join(shown) or not prefix.group(1).islower()):
        return ""
    return "".join(shown or title)


def _external_link(tokens: Tokens) -> str:
    end = _read(tokens, "ExternalLinkSeparator", "ExternalLinkClose")[1]
    return "".join(_read(tokens, "ExternalLinkClose")[0]) if "Separator" in end else ""


def _entity(tokens: Tokens) -> str:
    """The character, of a name or a number."""
    made = needed("mwparserfromhell.nodes", "source=wikipedia").HTMLEntity
    kinds, value = set(), ""
    for token in tokens:
        kinds.add(kind := type(token).__name__)
        value = token["text"] if kind == "Text" else value
        if kind == "HTMLEntityEnd":
            break
    number = "HTMLEntityNumeric" in kinds
    return str(made(value, not number, "HTMLEntityHex" in kinds).normalize())


def _tag(tokens: Tokens) -> str:
    visible = needed("mwparserfromhell.definitions", "source=wikipedia").is_visible
    ends = "TagAttrStart", "TagCloseOpen", "TagCloseSelfclose"
    parts, end = _read(tokens, *ends)
    name = "".join(parts).strip().lower()
    while end == "TagAttrStart":
        end = _read(tokens, *ends)[1]
    if end == "TagCloseSelfclose":
        return "\n" if name == "br" else ""
    contents = _read(tokens, "TagOpenClose")[0]
    _read(tokens, "TagCloseClose")
    return "".join(contents) if visible(name) and name not in NO_TEXT else ""


READ: dict[str, Callable[[Tokens], str]] = {
    "WikilinkOpen": _wikilink,
    "ExternalLinkOpen": _external_link,
    "HTMLEntityStart": _entity,
    "TagOpenOpen": _tag,
}
"""What gives text, and what reads it once its beginning has come by."""

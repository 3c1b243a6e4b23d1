"""Splits untrusted HTML or XHTML into tags and text, in time linear in the page's length.

`html.parser` takes quadratic time over unfinished tags and comments (two minutes for 80 kB of
``<a `` in Python 3.11), so it is not suitable for EPUB files and dumps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

START, END, TEXT = "start", "end", "text"
TAG = re.compile(
    r"<(?P<end>/?)(?P<name>[A-Za-z][^\s/>]*+)"
    r"(?P<rest>(?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')|=)*+)>"
)
"""A whole tag; a quoted value may contain ``>``. Possessive quantifiers make a match linear."""
TAG_BEGINS = re.compile("</?[A-Za-z]")
WORDS = re.compile(r"(?:[^<]|<(?![A-Za-z/!?]))++")
"""Text up to the next markup, including each ``<`` that begins no markup."""
CDATA, CDATA_END = "<![CDATA[", "]]>"
WITHOUT_TEXT = {"<!--": "-->", "<?": ">", "<!": ">", "</": ">"}
"""The beginning and the end of markup without text. The first that fits is taken."""
MARKS = re.compile("|".join(map(re.escape, WITHOUT_TEXT)))
RAW = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style")}
"""Elements in which only their own end tag is markup."""


class Token(NamedTuple):
    """A piece of a page.

    Attributes:
        kind: START, END or TEXT; ``<br/>`` gives START and END.
        value: an element's name in lower case, without the prefix of its namespace; or text, with
            character references replaced.
    """

    kind: str
    value: str


def tokens(page: str) -> Iterator[Token]:
    """Yield a page's tags and text, in order, without comments and declarations.

    Raises:
        ValueError: the page ends within a tag, a comment or the like, or has a character
            reference of thousands of digits.
    """
    position = 0
    while position < len(page):
        if words := WORDS.match(page, position):
            end = words.end()
            yield Token(TEXT, unescape(words[0]))
        elif page.startswith(CDATA, position):
            end = _find_markup_end(page, position, CDATA, CDATA_END)
            yield Token(TEXT, page[position + len(CDATA) : end - len(CDATA_END)])
        elif TAG_BEGINS.match(page, position):
            tag_tokens, end = _parse_tag(page, position)
            yield from tag_tokens
        else:
            begin = MARKS.findall(page, position, position + 4)[0]
            end = _find_markup_end(page, position, begin, WITHOUT_TEXT[begin])
        position = end


def _parse_tag(page: str, position: int) -> tuple[list[Token], int]:
    """Return the tokens of a tag, with the content of a script or style, and their end."""
    tag = TAG.match(page, position)
    if tag is None:
        raise ValueError(f"a page ends within a tag, {page[position : position + 20]!r}")
    name = tag["name"].lower()
    local = name.rpartition(":")[2]
    if tag["end"]:
        return [Token(END, local)], tag.end()
    if tag["rest"].endswith("/"):
        return [Token(START, local), Token(END, local)], tag.end()
    if name not in RAW:
        return [Token(START, local)], tag.end()
    content = RAW[name].search(page, tag.end())
    if content is None:
        raise ValueError(f"a page ends within <{name}>, which has no end tag")
    text = Token(TEXT, page[tag.end() : content.start()])
    return [Token(START, local), text], content.start()


def _find_markup_end(page: str, position: int, begin: str, end: str) -> int:
    """Return the end of the markup that begins at `position`; raise a ValueError if it has none."""
    start_of_end = page.find(end, position + len(begin))
    if start_of_end < 0:
        raise ValueError(f"a page ends within {begin!r}, which has no {end!r}")
    return start_of_end + len(end)

"""The tags and the text of HTML or XHTML from elsewhere, in time linear in the page's length.

`html.parser` takes quadratic time over unfinished tags and comments (80 kB of ``<a `` take two
minutes in Python 3.11), so that EPUB files and dumps can't be given to it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from html import unescape
from typing import NamedTuple

START, END, TEXT = "start", "end", "text"
TAG = re.compile(
    r"<(?P<end>/?)(?P<name>[A-Za-z][^\s/>]*+)"
    r"(?P<rest>(?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')|=)*+)>"
)
"""A whole tag. A quoted value may hold ``>``. The possessive quantifiers make a match linear."""
TAG_BEGINS = re.compile("</?[A-Za-z]")
CDATA, CDATA_END = "<![CDATA[", "]]>"
WITHOUT_TEXT = {"<!--": "-->", "<?": ">", "<!": ">", "</": ">"}
"""What begins something without text, and what ends it. The first that fits counts."""
RAW = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style")}
"""Elements in which nothing but their own end tag is markup."""


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
    """The page's tags and text, in order, without comments and declarations.

    Raises:
        ValueError: the page ends within a tag, a comment or the like, or has a character
            reference of thousands of digits.
    """
    place = 0
    while place < len(page):
        if page[place] != "<":
            end = page.find("<", place)
            end = len(page) if end < 0 else end
            yield Token(TEXT, unescape(page[place:end]))
        elif page.startswith(CDATA, place):
            end = _end(page, place, CDATA, CDATA_END)
            yield Token(TEXT, page[place + len(CDATA) : end - len(CDATA_END)])
        elif TAG_BEGINS.match(page, place):
            end = yield from _tag(page, place)
        elif begin := next((b for b in WITHOUT_TEXT if page.startswith(b, place)), ""):
            end = _end(page, place, begin, WITHOUT_TEXT[begin])
        else:
            yield Token(TEXT, "<")  # "less than", which XHTML would have as a reference
            end = place + 1
        place = end


def _tag(page: str, place: int) -> Generator[Token, None, int]:
    """A tag, and of a script or a style its content; returns where that is over."""
    tag = TAG.match(page, place)
    if tag is None:
        raise ValueError(f"a page ends within a tag, {page[place : place + 20]!r}")
    name = tag["name"].lower()
    local = name.rpartition(":")[2]
    if tag["end"]:
        yield Token(END, local)
        return tag.end()
    yield Token(START, local)
    if tag["rest"].endswith("/"):
        yield Token(END, local)
    elif name in RAW:
        content = RAW[name].search(page, tag.end())
        if content is None:
            raise ValueError(f"a page ends within <{name}>, which has no end tag")
        yield Token(TEXT, page[tag.end() : content.start()])
        return content.start()
    return tag.end()


def _end(page: str, place: int, begin: str, end: str) -> int:
    """Where what begins at a place is over; a ValueError where it is not."""
    found = page.find(end, place + len(begin))
    if found < 0:
        raise ValueError(f"a page ends within {begin!r}, which has no {end!r}")
    return found + len(end)

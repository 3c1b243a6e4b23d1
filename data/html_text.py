"""The tags and the text of HTML or XHTML from elsewhere, in time linear in the page's length.

`html.parser` takes quadratic time over unfinished tags and comments (80 kB of ``<a `` take two
minutes in Python 3.11), so that EPUB files and dumps can't be given to it.
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
"""A whole tag. A quoted value may hold ``>``. The possessive quantifiers make a match linear."""
TAG_BEGINS = re.compile("</?[A-Za-z]")
WORDS = re.compile(r"(?:[^<]|<(?![A-Za-z/!?]))++")
"""Text up to the next markup, with each ``<`` that begins none: XHTML would have a reference."""
CDATA, CDATA_END = "<![CDATA[", "]]>"
WITHOUT_TEXT = {"<!--": "-->", "<?": ">", "<!": ">", "</": ">"}
"""What begins something without text, and what ends it. The first that fits counts."""
MARKS = re.compile("|".join(map(re.escape, WITHOUT_TEXT)))
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
        if words := WORDS.match(page, place):
            end = words.end()
            yield Token(TEXT, unescape(words[0]))
        elif page.startswith(CDATA, place):
            end = _end(page, place, CDATA, CDATA_END)
            yield Token(TEXT, page[place + len(CDATA) : end - len(CDATA_END)])
        elif TAG_BEGINS.match(page, place):
            pieces, end = _tag(page, place)
            yield from pieces
        else:
            begin = MARKS.findall(page, place, place + 4)[0]
            end = _end(page, place, begin, WITHOUT_TEXT[begin])
        place = end


def _tag(page: str, place: int) -> tuple[list[Token], int]:
    """A tag, and of a script or a style its content; and where that is over."""
    tag = TAG.match(page, place)
    if tag is None:
        raise ValueError(f"a page ends within a tag, {page[place : place + 20]!r}")
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


def _end(page: str, place: int, begin: str, end: str) -> int:
    """Where what begins at a place is over; a ValueError where it is not."""
    found = page.find(end, place + len(begin))
    if found < 0:
        raise ValueError(f"a page ends within {begin!r}, which has no {end!r}")
    return found + len(end)

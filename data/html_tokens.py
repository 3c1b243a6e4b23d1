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
TAG_NAME = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][^\s/>]*)")
MARKUP = re.compile("<[A-Za-z/!?]")
"""Matches the beginning of markup; any other ``<`` is text."""
CLOSE_OR_VALUE = re.compile("[>=]")
QUOTE = re.compile(r"\s*([\"'])")
"""Matches the opening quotation mark of an attribute's value."""
CDATA, CDATA_END = "<![CDATA[", "]]>"
WITHOUT_TEXT = {"<!--": "-->", "<?": ">", "<!": ">", "</": ">"}
"""The beginning and the end of markup without text; the first match is used."""
MARKUP_WITHOUT_TEXT = re.compile("|".join(map(re.escape, WITHOUT_TEXT)))
RAW_TEXT_ELEMENTS = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style")}
"""Elements in which only their end tag is markup."""


class Token(NamedTuple):
    """A tag or a piece of text in a page.

    Attributes:
        kind: START, END or TEXT; ``<br/>`` gives START and END.
        value: an element's name in lower case, without its namespace prefix; or text, with
            character references replaced.
    """

    kind: str
    value: str


def iter_html_tokens(page: str) -> Iterator[Token]:
    """Yields a page's tags and text, in order, without comments and declarations.

    Raises:
        ValueError: the page ends within a tag, a comment or other markup, or has a character
            reference with thousands of digits.
    """
    position = 0
    while position < len(page):
        markup = MARKUP.search(page, position)
        end = markup.start() if markup else len(page)
        if end > position:
            yield Token(TEXT, unescape(page[position:end]))
        elif page.startswith(CDATA, position):
            end = _find_markup_end(page, position, CDATA, CDATA_END)
            yield Token(TEXT, page[position + len(CDATA) : end - len(CDATA_END)])
        elif TAG_NAME.match(page, position):
            tag_tokens, end = _parse_tag(page, position)
            yield from tag_tokens
        else:
            begin = MARKUP_WITHOUT_TEXT.findall(page, position, position + 4)[0]
            end = _find_markup_end(page, position, begin, WITHOUT_TEXT[begin])
        position = end


def _parse_tag(page: str, position: int) -> tuple[list[Token], int]:
    """Returns the tokens of a tag (and the content of a script or style), and the end position."""
    tag = TAG_NAME.match(page, position)
    end = None if tag is None else _find_tag_end(page, tag.end())
    if tag is None or end is None:
        raise ValueError(f"a page ends within a tag, {page[position : position + 20]!r}")
    name = tag["name"].lower()
    local = name.rpartition(":")[2]
    if tag["end"]:
        return [Token(END, local)], end
    if page.endswith("/", tag.end(), end - 1):
        return [Token(START, local), Token(END, local)], end
    if name not in RAW_TEXT_ELEMENTS:
        return [Token(START, local)], end
    content = RAW_TEXT_ELEMENTS[name].search(page, end)
    if content is None:
        raise ValueError(f"a page ends within <{name}>, which has no end tag")
    text = Token(TEXT, page[end : content.start()])
    return [Token(START, local), text], content.start()


def _find_tag_end(page: str, position: int) -> int | None:
    """Returns the position after a tag's ``>``; quoted values may also contain one."""
    never_closed: set[str] = set()  # so that each unclosed quotation mark is searched only once
    while match := CLOSE_OR_VALUE.search(page, position):
        position = match.end()
        if match[0] == ">":
            return position
        quote = QUOTE.match(page, position)
        if quote and quote[1] not in never_closed:
            close = page.find(quote[1], quote.end())
            if close < 0:
                never_closed.add(quote[1])
            else:
                position = close + 1
    return None


def _find_markup_end(page: str, position: int, begin: str, end: str) -> int:
    """Returns the end of the markup that begins at `position`, or raises a ValueError."""
    start_of_end = page.find(end, position + len(begin))
    if start_of_end < 0:
        raise ValueError(f"a page ends within {begin!r}, which has no {end!r}")
    return start_of_end + len(end)

"""EPUB: a zip of XHTML pages, whose order the package's spine names (EPUB 3.3, section 5.7).

Only text that a reader sees is taken: a paragraph a line, without scripts, styles and page titles.
"""

from __future__ import annotations

import codecs
import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote
from xml.etree import ElementTree

CONTAINER = "META-INF/container.xml"
UNSEEN = {"script", "style", "head", "title", "svg", "math"}
BLOCKS = {
    *("address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "div", "dl"),
    *("dt", "figcaption", "figure", "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr"),
    *("li", "main", "nav", "ol", "p", "pre", "section", "table", "td", "th", "tr", "ul"),
}
"""Elements that begin and end a line."""
SPACE = re.compile(r"\s+")
VERBATIM = re.compile(r"<!--.*?-->|<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
"""A comment, or text in which no character is markup, as XHTML may have it and HTML has not."""
DECLARED = re.compile(rb"<\?xml[^>]*?encoding\s*=\s*[\"']([\w.-]+)")
"""The encoding that a page's first line names."""
BAD = (zipfile.BadZipFile, zlib.error, KeyError, ElementTree.ParseError, RuntimeError)
"""What reading a file raises that is no whole EPUB; a RuntimeError where it is encrypted."""


def read_epub(path: Path) -> Iterator[tuple[str, str]]:
    """The book's title and text, its pages in the order of the spine.

    Raises:
        ValueError: the file is no EPUB that can be read.
    """
    try:
        with zipfile.ZipFile(path) as book:
            package = _package(book)
            root = ElementTree.fromstring(book.read(package))
            pages = [_text(book.read(name)) for name in _spine(root, PurePosixPath(package))]
    except BAD as error:
        raise ValueError(f"it can't be read as an EPUB ({str(error).strip()})") from error
    yield _title(root) or path.stem, "\n".join(page for page in pages if page)


def _package(book: zipfile.ZipFile) -> str:
    """The path of the package document, which the container names first."""
    container = ElementTree.fromstring(book.read(CONTAINER))
    found = container.find(".//{*}rootfile")
    if found is None:
        raise KeyError(f"{CONTAINER} names no package")
    return found.attrib["full-path"]


def _spine(root: ElementTree.Element, package: PurePosixPath) -> Iterator[str]:
    """The paths of the spine's pages; those beside the main text (linear="no") are left out."""
    hrefs = {
        item.attrib["id"]: item.attrib["href"] for item in root.iterfind("{*}manifest/{*}item")
    }
    for entry in root.iterfind("{*}spine/{*}itemref"):
        if entry.get("linear") != "no":
            place = package.parent / unquote(hrefs[entry.attrib["idref"]])
            yield posixpath.normpath(str(place))  # without "..", which a zip has none of


def _title(root: ElementTree.Element) -> str:
    found = root.find("{*}metadata/{http://purl.org/dc/elements/1.1/}title")
    return " ".join((found.text or "").split()) if found is not None else ""


class _Page(HTMLParser):
    """Collects the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        tag = _local(tag)
        self._unseen += tag in UNSEEN
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        tag = _local(tag)
        self._unseen -= tag in UNSEEN and self._unseen > 0
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        if _local(tag) in BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.parts.append(SPACE.sub(" ", data))


def _local(tag: str) -> str:
    """An element's name without the prefix of its namespace."""
    return tag.rpartition(":")[2]


def _decoded(page: bytes) -> str:
    """By its byte order mark, else by its declaration, else as UTF-8.

    Raises:
        ValueError: it is in no such encoding.
    """
    if page.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return page.decode("utf-16")
    declared = DECLARED.match(page)
    try:
        return page.decode(declared[1].decode() if declared else "utf-8-sig")
    except LookupError as error:
        raise ValueError(f"a page has an {error}") from error


def _as_html(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else escape(found[1])


def _text(page: bytes) -> str:
    """A page's text, a paragraph a line."""
    parser = _Page()
    parser.feed(VERBATIM.sub(_as_html, _decoded(page)))
    parser.close()
    lines = (" ".join(line.split()) for line in "".join(parser.parts).split("\n"))
    return "\n".join(line for line in lines if line)

"""Reads EPUB: a zip of XHTML pages, whose order is the package's spine (EPUB 3.3, section 5.7).

Only text that a reader sees is returned: one line per paragraph, without scripts, styles and page
titles.
"""

from __future__ import annotations

import codecs
import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.parsers.expat import ExpatError, ParserCreate

from contamination.data.html_tokens import START, TEXT, iter_html_tokens


@dataclass(frozen=True)
class Limits:
    """Limits on the sizes of the files that the audit reads, in bytes.

    Attributes:
        max_page_bytes: the maximum size of a file within an EPUB, after decompression.
        max_book_bytes: the maximum size of all pages of an EPUB together, of a text file, or of a
            line of JSONL.
    """

    max_page_bytes: int = 1 << 24
    max_book_bytes: int = 1 << 28

    def check_size(self, field: str, described_file: str, size: int) -> None:
        """Raises a ValueError if a size is larger than the limit `field`.

        Args:
            field: `max_page_bytes` or `max_book_bytes`.
            described_file: a description of the file, for the error.
            size: its size in bytes.
        """
        limit: int = getattr(self, field)
        if size > limit:
            raise ValueError(
                f"{described_file} is larger than audit.{field}={limit} bytes: raise the limit if "
                "you trust the file"
            )


LIMITS = Limits()
"""The default limits."""

CONTAINER = "META-INF/container.xml"
HIDDEN = {"script", "style", "head", "title", "svg", "math"}
BLOCKS = {
    *("address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "div", "dl"),
    *("dt", "figcaption", "figure", "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr"),
    *("li", "main", "nav", "ol", "p", "pre", "section", "table", "td", "th", "tr", "ul"),
}
"""Elements that begin and end a line of text."""
SPACE = re.compile(r"\s+")
DECLARED = re.compile(rb"<\?xml[^>]*?encoding\s*=\s*[\"']([\w.-]+)")
"""Matches the XML declaration of a page, with the name of its encoding."""
FIRST_LINE_BYTES = 1024
ENCODINGS = re.compile(
    r"ascii|utf-8(-sig)?|utf-16(-[lb]e)?|iso8859-\d+|cp125\d|koi8-[ru]|gb2312|gbk|gb18030|big5"
    r"|shift_jis|euc_(jp|kr)"
)
"""Encodings of web pages, by their Python names. Others, such as punycode, may take quadratic time.
"""
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The compression methods of EPUB (EPUB 3.3, section 4.2.2). With others zipfile unpacks a whole
block of the archive at once, however large it becomes."""
MAX_PAGES = 10_000
"""The maximum number of pages in a spine."""
ENTITY = "an XML entity is declared in it, which an EPUB does not need"
READ_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, EOFError, KeyError),
    *(ExpatError, ElementTree.ParseError, RuntimeError),
)
"""The errors that reading a broken or encrypted (RuntimeError) EPUB raises."""


def iter_epub_books(path: Path, limits: Limits = LIMITS) -> Iterator[tuple[str, str]]:
    """Yields the book's title and its text, with the pages in the order of the spine.

    Raises:
        ValueError: the file can't be read as an EPUB, or is larger than the limits.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            container = _parse_xml(_unpack_file(archive, CONTAINER, limits))
            package_path = _package_path(container)
            root = _parse_xml(_unpack_file(archive, package_path, limits))
            pages = [
                *_iter_page_texts(
                    archive, _iter_spine_paths(root, PurePosixPath(package_path)), limits
                )
            ]
    except READ_ERRORS as error:
        raise ValueError(f"it can't be read as an EPUB ({str(error).strip()})") from error
    yield _book_title(root) or path.stem, "\n".join(page for page in pages if page)


def _iter_page_texts(
    archive: zipfile.ZipFile, page_paths: Iterable[str], limits: Limits
) -> Iterator[str]:
    """Yields the text of each page; a page that the spine names several times is read once."""
    total_bytes = 0
    sizes_and_texts: dict[str, tuple[int, str]] = {}
    for page_path in page_paths:
        if page_path not in sizes_and_texts:
            page = _unpack_file(archive, page_path, limits)
            limits.check_size("max_book_bytes", "the book", total_bytes + len(page))
            try:
                sizes_and_texts[page_path] = len(page), _page_text(_decode_page(page))
            except ValueError as error:
                raise ValueError(f"{page_path}: {error}") from error
        size, text = sizes_and_texts[page_path]
        total_bytes += size
        limits.check_size("max_book_bytes", "the book", total_bytes)
        yield text


def _unpack_file(archive: zipfile.ZipFile, member_name: str, limits: Limits) -> bytes:
    """Returns the content of a file in the archive; no more than the limit is unpacked."""
    member = archive.getinfo(member_name)
    if member.compress_type not in COMPRESSIONS:
        raise ValueError(
            f"{member_name} is neither stored nor compressed by deflate, as EPUB requires"
        )
    limits.check_size("max_page_bytes", member_name, member.file_size)
    with archive.open(member) as stream:
        content = stream.read(limits.max_page_bytes + 1)  # without a limit, it may unpack gigabytes
    limits.check_size("max_page_bytes", member_name, len(content))
    return content


def _parse_xml(document: bytes) -> ElementTree.Element:
    """Parses XML; refuses entity declarations, since entities can expand to any length."""
    parser = ParserCreate()
    parser.EntityDeclHandler = _refuse_entity
    parser.Parse(document, True)
    return ElementTree.fromstring(document)


def _refuse_entity(*_: object) -> None:
    raise ValueError(ENTITY)


def _package_path(container: ElementTree.Element) -> str:
    rootfile = container.find(".//{*}rootfile")
    if rootfile is None:
        raise KeyError(f"{CONTAINER} names no package")
    return rootfile.attrib["full-path"]


def _iter_spine_paths(root: ElementTree.Element, package_path: PurePosixPath) -> Iterator[str]:
    """Yields the paths of the spine's pages, without those outside the main text (linear="no")."""
    hrefs = {
        item.attrib["id"]: item.attrib["href"] for item in root.iterfind("{*}manifest/{*}item")
    }
    entries = root.findall("{*}spine/{*}itemref")
    if len(entries) > MAX_PAGES:
        raise ValueError(
            f"its spine names {len(entries):,} pages, more than the maximum of {MAX_PAGES:,}"
        )
    for entry in entries:
        if entry.get("linear") != "no":
            page = package_path.parent / unquote(hrefs[entry.attrib["idref"]])
            yield posixpath.normpath(str(page))  # names in a zip have no ".."


def _book_title(root: ElementTree.Element) -> str:
    title = root.find("{*}metadata/{http://purl.org/dc/elements/1.1/}title")
    return " ".join((title.text or "").split()) if title is not None else ""


def _decode_page(page: bytes) -> str:
    """Decodes a page by its byte order mark, else by its declaration, else as UTF-8.

    Raises:
        ValueError: the encoding is not in ENCODINGS, or the page is not valid in it.
    """
    if page.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return page.decode("utf-16")
    declared = DECLARED.match(page[:FIRST_LINE_BYTES])
    encoding_name = declared[1].decode() if declared else "utf-8-sig"
    try:
        encoding = codecs.lookup(encoding_name).name
    except LookupError as error:
        raise ValueError(f"a page has an {error}") from error
    if not ENCODINGS.fullmatch(encoding):
        raise ValueError(f"a page has the encoding {encoding_name}: save it as UTF-8")
    return page.decode(encoding)


def _page_text(page: str) -> str:
    """Returns the text of a page, one line per paragraph.

    Raises:
        ValueError: the page is truncated.
    """
    parts: list[str] = []
    hidden_depth = 0
    for kind, value in iter_html_tokens(page):
        if kind == TEXT:
            if not hidden_depth:
                parts.append(SPACE.sub(" ", value))
        else:
            if value in HIDDEN:
                hidden_depth = max(0, hidden_depth + (1 if kind == START else -1))
            if value in BLOCKS:
                parts.append("\n")
    lines = (" ".join(line.split()) for line in "".join(parts).split("\n"))
    return "\n".join(line for line in lines if line)

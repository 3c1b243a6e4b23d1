"""The pages of a MediaWiki XML dump."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from core.errors import said
from detection.building.sources import needed
from detection.building.sources.opening import elements
from injection.sources.tally import Tally

ARTICLES = 0
"""The namespace of articles."""


def pages(stream: BinaryIO, most: int, tally: Tally, path: Path) -> Iterator[Any]:
    """The pages of a dump (mwxml.Page), whose revisions have at most so many bytes."""
    reader = needed("mwxml", "source=wikipedia")
    pointer = reader.element_iterator.EventPointer(elements(stream, most, ("revision", "page")))
    root = reader.element_iterator.ElementIterator(next(pointer)[1], pointer)
    if root.tag != "mediawiki":
        tally.bad("no MediaWiki dump", str(path), f"its root is <{root.tag}>, not <mediawiki>")
        return
    try:
        yield from reader.Dump.from_element(root).pages
    except malformed() as error:
        tally.bad("no MediaWiki dump", str(path), said(error))


def malformed() -> tuple[type[Exception], ...]:
    """What mwxml raises over pages and revisions that are not as the schema has them."""
    mwxml = needed("mwxml", "source=wikipedia")
    return mwxml.errors.MalformedXML, AttributeError, TypeError, ValueError

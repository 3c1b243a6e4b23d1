"""Articles of a MediaWiki XML dump: `pages-articles` or `pages-meta-history`.

A page is dated by its creation. A dump of the full history has the date of the first revision. A
dump of articles only has the last revision, so that the date is known in two cases: the last
revision has no parent (the page was never edited), or it is older than `build.members_before` (the
page existed before, so it is a member). Other pages are left out and counted, unless
`source.dates` has the creation dates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from contamination.core.errors import ConfigError, describe_error
from contamination.core.task_runner import run_unless_stored
from contamination.data.readers.rows import Shard, Tally
from contamination.data.words import has_words
from contamination.detection.building.dates import CutOffs, DatedDocument
from contamination.detection.building.sources import (
    OnBytesRead,
    Source,
    import_optional,
    xml_streams,
)
from contamination.detection.building.sources.page_dates import (
    PageDates,
    Revisions,
    write_date_array,
)

ARTICLES = 0
"""The namespace of articles."""


def iter_pages(stream: BinaryIO, max_bytes: int, tally: Tally, path: Path) -> Iterator[Any]:
    """Yields the pages of a dump (mwxml.Page), whose revisions have at most `max_bytes` bytes."""
    reader = import_optional("mwxml", "source=wikipedia")
    pointer = reader.element_iterator.EventPointer(
        xml_streams.iter_elements(stream, max_bytes, ("revision", "page"))
    )
    root = reader.element_iterator.ElementIterator(next(pointer)[1], pointer)
    if root.tag != "mediawiki":
        tally.reject("no MediaWiki dump", str(path), f"its root is <{root.tag}>, not <mediawiki>")
        return
    try:
        yield from reader.Dump.from_element(root).pages
    except malformed_page_errors() as error:
        tally.reject("no MediaWiki dump", str(path), describe_error(error))


def malformed_page_errors() -> tuple[type[Exception], ...]:
    """Returns the errors that mwxml raises for pages and revisions that violate the schema."""
    mwxml = import_optional("mwxml", "source=wikipedia")
    return mwxml.errors.MalformedXML, AttributeError, TypeError, ValueError


HIDDEN_NODES = {
    "TemplateOpen": "TemplateClose",
    "ArgumentOpen": "ArgumentClose",
    "CommentStart": "CommentEnd",
    "HeadingStart": "HeadingEnd",
}
"""The first tokens of nodes without text, and their last tokens."""
NO_TEXT = ("table", "ref", "references")
PREFIX = re.compile(r"([^\s:]+):\S")
Tokens = Iterator[Any]


def strip_wikitext(wikitext: str) -> str:
    """Returns the text without templates, tables, headings, references, files and formulas."""
    parser = import_optional("mwparserfromhell.parser", "source=wikipedia").Parser()
    return "".join(_read_texts_until(iter(parser._tokenizer.tokenize(wikitext, 0, False)))[0])


def _read_texts_until(tokens: Tokens, *ends: str) -> tuple[list[str], str]:
    """Returns the text of each node up to one of the end tokens, and the name of that token."""
    parts: list[str] = []
    for token in tokens:
        token_kind = type(token).__name__
        if token_kind == "Text":
            parts.append(token["text"])
        elif token_kind in ends:
            return parts, token_kind
        elif token_kind in HIDDEN_NODES:
            _skip_node(tokens, token_kind)
        elif token_kind in NODE_READERS:
            parts.append(NODE_READERS[token_kind](tokens))
    return parts, ""


def _skip_node(tokens: Tokens, first_token: str) -> None:
    """Reads up to the end of a node without text, which may include nodes of its kind."""
    depth = 1
    while depth:
        token_kind = type(next(tokens)).__name__
        depth += (token_kind == first_token) - (token_kind == HIDDEN_NODES[first_token])


def _read_wikilink(tokens: Tokens) -> str:
    """Returns the link's text; "" for a link to a file, a category or another namespace."""
    title, end = _read_texts_until(tokens, "WikilinkSeparator", "WikilinkClose")
    label = _read_texts_until(tokens, "WikilinkClose")[0] if end == "WikilinkSeparator" else None
    prefix = PREFIX.match("".join(title))
    if prefix and (label is None or "|" in "".join(label) or not prefix.group(1).islower()):
        return ""
    return "".join(label or title)


def _read_external_link(tokens: Tokens) -> str:
    end = _read_texts_until(tokens, "ExternalLinkSeparator", "ExternalLinkClose")[1]
    return "".join(_read_texts_until(tokens, "ExternalLinkClose")[0]) if "Separator" in end else ""


def _read_entity(tokens: Tokens) -> str:
    """Returns the character of an entity, which may be a name or a number."""
    entity_class = import_optional("mwparserfromhell.nodes", "source=wikipedia").HTMLEntity
    token_kinds, value = set(), ""
    for token in tokens:
        token_kinds.add(token_kind := type(token).__name__)
        value = token["text"] if token_kind == "Text" else value
        if token_kind == "HTMLEntityEnd":
            break
    is_number = "HTMLEntityNumeric" in token_kinds
    return str(entity_class(value, not is_number, "HTMLEntityHex" in token_kinds).normalize())


def _read_tag(tokens: Tokens) -> str:
    visible = import_optional("mwparserfromhell.definitions", "source=wikipedia").is_visible
    end_token_types = "TagAttrStart", "TagCloseOpen", "TagCloseSelfclose"
    parts, end_token_type = _read_texts_until(tokens, *end_token_types)
    name = "".join(parts).strip().lower()
    while end_token_type == "TagAttrStart":
        end_token_type = _read_texts_until(tokens, *end_token_types)[1]
    if end_token_type == "TagCloseSelfclose":
        return "\n" if name == "br" else ""
    contents = _read_texts_until(tokens, "TagOpenClose")[0]
    _read_texts_until(tokens, "TagCloseClose")
    return "".join(contents) if visible(name) and name not in NO_TEXT else ""


NODE_READERS: dict[str, Callable[[Tokens], str]] = {
    "WikilinkOpen": _read_wikilink,
    "ExternalLinkOpen": _read_external_link,
    "HTMLEntityStart": _read_entity,
    "TagOpenOpen": _read_tag,
}
"""The first tokens of nodes with text, and the functions that read the nodes after them."""

HEADING = re.compile(r"^==[^\n]*==[ \t]*$", re.MULTILINE)
DISAMBIGUATION = (
    r"disambig(?:uation)?(?:[ _-](?:page|cleanup))?|disamb|dab|(?:hn|geo|place|school|road|math|"
    r"mil-unit|hospital|station|surname)[ _-]?dis(?:ambig(?:uation)?)?|"
    r"letter[-–]number combination disambiguation|begriffsklärung|bkl|homonymie|desambiguaci[oó]n|"
    r"desambigua[cç][aã]o|desambig|disambigua|doorverwijspagina|dp|неоднозначность|ujednoznacznienie|"
    r"曖昧さ回避|aimai|消歧义|消歧義|消歧义页|disambiguasi|förgrening|แก้กำกวม|동음이의|توضيح"
)
"""Names of disambiguation templates in the larger Wikipedias."""
EMPTY_BRACKETS = re.compile(r"\([\s,;:]*\)|\[\s*\]")
"""Brackets whose only content was a template."""


@dataclass(frozen=True, kw_only=True)
class Wikipedia(Source):
    """Articles as in WikiMIA (Shi et al. 2024), as plain text."""

    licence: ClassVar[str] = "cc-by-sa-4.0"
    usual_file_names: ClassVar[str] = r"\.xml|\.7z$"

    drop_titles: str = r"^(List|Timeline) of\b|\(disambiguation\)$"
    """A regular expression; pages with matching titles are left out."""
    disambiguation: str | None = None
    """A regular expression of template names, in any case; pages with such a template are
    disambiguation pages and are left out. None: DISAMBIGUATION; "": no page is left out."""
    dates: str | None = None
    """The creation dates of pages: a stub-meta-history dump, or a table (CSV, TSV, JSONL, Parquet)
    of `page_id` and `created`; null: the dates in the dump itself."""
    read_dates: str | None = None
    """The array that `prepare` writes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        import_optional("mwxml", "source=wikipedia")
        import_optional("mwparserfromhell", "source=wikipedia")
        self.require(self.dates is None or Path(self.dates).is_file(), "dates", "no such file.")
        for field in ("drop_titles", "disambiguation"):
            try:
                re.compile(getattr(self, field) or "")
            except re.error as error:
                raise ConfigError(
                    f"source.{field} is {getattr(self, field)!r}: not a regular expression "
                    f"({error})."
                ) from error

    @property
    def other_inputs(self) -> Mapping[str, Path]:
        """The file of creation dates, if there is one."""
        return {} if self.dates is None else {"dates": Path(self.dates)}

    def prepare(self, folder: Path) -> Source:
        """Returns the source with the dates in an array, which processes share."""
        if self.dates is None:
            return self
        path, array, limit = Path(self.dates), folder / "dates.npy", self.max_text_bytes
        run_unless_stored(
            folder / "dates.json", [array], lambda: write_date_array(path, array, limit)
        )
        return replace(self, read_dates=str(array))

    @cached_property
    def _disambiguation_pattern(self) -> re.Pattern[str] | None:
        """Matches a template of a disambiguation page, or its magic word."""
        names_pattern = DISAMBIGUATION if self.disambiguation is None else self.disambiguation
        pattern = rf"\{{\{{\s*(?:{names_pattern})\s*(?:\||\}}\}})|__DISAMBIG__"
        return re.compile(pattern, re.IGNORECASE) if names_pattern else None

    @cached_property
    def _page_dates(self) -> PageDates | None:
        return None if self.read_dates is None else PageDates(Path(self.read_dates))

    def documents(
        self, file: Shard, tally: Tally, cut_offs: CutOffs, on_bytes: OnBytesRead
    ) -> Iterator[DatedDocument]:
        """Yields the articles of a dump."""
        position, dropped_titles = "its beginning", re.compile(self.drop_titles)
        with (
            xml_streams.report_damage(tally, lambda: f"{file.path}, after {position}"),
            xml_streams.open_decompressed(file.path, ".xml", on_bytes) as stream,
        ):
            for page in iter_pages(stream, self.max_text_bytes, tally, file.path):
                if page.namespace == ARTICLES and page.redirect is None:
                    position = f"page {page.id} ({page.title})"
                    if not dropped_titles.search(page.title):
                        where = f"{file.path}, {position}"
                        article = self._parse_article(page, tally, cut_offs, where)
                        if article is not None:
                            yield article

    def _parse_article(
        self, page: Any, tally: Tally, cut_offs: CutOffs, where: str
    ) -> DatedDocument | None:
        """Returns the article; with a member's history, its last text before the first date."""
        revisions = Revisions(cut_offs.members_before)
        try:
            for revision in page:
                timestamp = revision.timestamp
                date = None if timestamp is None else datetime.fromtimestamp(timestamp.unix(), UTC)
                is_hidden = revision.deleted.text or (revision.text is None and revision.bytes)
                revisions.add(date, None if is_hidden else revision.text or "", revision.parent_id)
        except ValueError as error:
            tally.reject("no date", where, str(error))
            return None
        except malformed_page_errors() as error:
            tally.reject("no MediaWiki dump", where, describe_error(error))
            return None
        if revisions.first is None and revisions.count:
            tally.reject("missing field", where, "its revision has no timestamp")
            return None
        version = revisions.version_to_use
        if revisions.first is None or version is None:  # hidden, or a dump without texts
            tally.count_empty()
            return None
        changed, text = version
        if not text.strip():  # it was blanked
            tally.count_empty()
            return None
        if self._disambiguation_pattern and self._disambiguation_pattern.search(text):
            tally.skipped["disambiguation page"] += 1
            return None
        table_date = self._page_dates and self._page_dates.date_of(page.id)
        created = min(table_date, revisions.first) if table_date else revisions.created
        return DatedDocument(str(page.id), page.title, created, changed, text)

    def text(self, raw: str, min_words: int) -> str:
        """Returns the plain text of the first sections that have enough words together."""
        text = ""
        for section in _iter_sections(raw):
            text = f"{text}\n{EMPTY_BRACKETS.sub('', strip_wikitext(section))}"
            if has_words(text, min_words):
                break
        return text


def _iter_sections(raw: str) -> Iterator[str]:
    start = 0
    for heading in HEADING.finditer(raw):
        yield raw[start : heading.start()]
        start = heading.end()
    yield raw[start:]

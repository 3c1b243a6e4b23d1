"""Articles of a MediaWiki XML dump: `pages-articles` or `pages-meta-history`.

A page's date is that of its creation. A dump of the full history has it: the first revision's. A
dump of articles has the last revision alone, so that the date is known in two cases only: the last
revision has no parent (the page was never edited), or it was made before `build.members_before`
(the page was there by then, so it is a member). The others are left out and counted, unless
`source.dates` gives the dates of creation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from contamination.core.errors import ConfigError, said
from contamination.core.tasks import made_or_found
from contamination.data.readers.rows import Shard, Tally
from contamination.data.text import has_words
from contamination.detection.building.dates import CutOffs, Dated
from contamination.detection.building.sources import Source, Told, needed
from contamination.detection.building.sources.archives import damage, elements, opened
from contamination.detection.building.sources.page_dates import PageDates, Revisions, read_dates

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

HEADING = re.compile(r"^==[^\n]*==[ \t]*$", re.MULTILINE)
DISAMBIGUATION = (
    r"disambig(?:uation)?(?:[ _-](?:page|cleanup))?|disamb|dab|(?:hn|geo|place|school|road|math|"
    r"mil-unit|hospital|station|surname)[ _-]?dis(?:ambig(?:uation)?)?|"
    r"letter[-–]number combination disambiguation|begriffsklärung|bkl|homonymie|desambiguaci[oó]n|"
    r"desambigua[cç][aã]o|desambig|disambigua|doorverwijspagina|dp|неоднозначность|ujednoznacznienie|"
    r"曖昧さ回避|aimai|消歧义|消歧義|消歧义页|disambiguasi|förgrening|แก้กำกวม|동음이의|توضيح"
)
"""Names of such templates in the larger Wikipedias."""
HOLLOW = re.compile(r"\([\s,;:]*\)|\[\s*\]")
"""Brackets whose content was a template."""


@dataclass(frozen=True, kw_only=True)
class Wikipedia(Source):
    """Articles, as WikiMIA has them (Shi et al. 2024), as plain text."""

    licence: ClassVar[str] = "cc-by-sa-4.0"
    usual: ClassVar[str] = r"\.xml|\.7z$"

    drop_titles: str = r"^(List|Timeline) of\b|\(disambiguation\)$"
    """A regular expression; pages whose title it finds are left out."""
    disambiguation: str | None = None
    """A regular expression of templates' names, whatever their case; a page that has one of them
    is no article but leads to several, and is left out. None: DISAMBIGUATION; "": no page is."""
    dates: str | None = None
    """When pages were created: a stub-meta-history dump, or a table (CSV, TSV, JSONL, Parquet) of
    `page_id` and `created`; null: what the dump itself says."""
    read_dates: str | None = None
    """Where `prepared` has put them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        needed("mwxml", "source=wikipedia")
        needed("mwparserfromhell", "source=wikipedia")
        self.require(self.dates is None or Path(self.dates).is_file(), "dates", "no such file.")
        for field in ("drop_titles", "disambiguation"):
            try:
                re.compile(getattr(self, field) or "")
            except re.error as error:
                raise ConfigError(
                    f"source.{field} is {getattr(self, field)!r}: no regular expression ({error})."
                ) from error

    @property
    def also_read(self) -> Mapping[str, Path]:
        """See `Source`."""
        return {} if self.dates is None else {"dates": Path(self.dates)}

    def prepared(self, folder: Path) -> Source:
        """The source with the dates in an array, which processes share."""
        if self.dates is None:
            return self
        given, array = Path(self.dates), folder / "dates.npy"
        made_or_found(
            folder / "dates.json", [array], lambda: read_dates(given, array, self.max_text_bytes)
        )
        return replace(self, read_dates=str(array))

    @cached_property
    def _leads_on(self) -> re.Pattern[str] | None:
        """Finds a template of a disambiguation page, or the word that makes a page one."""
        names = DISAMBIGUATION if self.disambiguation is None else self.disambiguation
        pattern = rf"\{{\{{\s*(?:{names})\s*(?:\||\}}\}})|__DISAMBIG__"
        return re.compile(pattern, re.IGNORECASE) if names else None

    @cached_property
    def _dates(self) -> PageDates | None:
        return None if self.read_dates is None else PageDates(Path(self.read_dates))

    def documents(
        self, file: Shard, tally: Tally, cut_offs: CutOffs, told: Told
    ) -> Iterator[Dated]:
        """See `Source`."""
        last, drop = "its beginning", re.compile(self.drop_titles)
        with (
            damage(tally, lambda: f"{file.path}, after {last}"),
            opened(file.path, ".xml", told) as stream,
        ):
            for page in pages(stream, self.max_text_bytes, tally, file.path):
                if page.namespace == ARTICLES and page.redirect is None:
                    last = f"page {page.id} ({page.title})"
                    if not drop.search(page.title):
                        found = self._article(page, tally, cut_offs, f"{file.path}, {last}")
                        if found is not None:
                            yield found

    def _article(self, page: Any, tally: Tally, cut_offs: CutOffs, where: str) -> Dated | None:
        """The page; of a member with its history the text that it had before the first date."""
        found = Revisions(cut_offs.members_before)
        try:
            for one in page:
                at = None if one.timestamp is None else _utc(one.timestamp.unix())
                is_hidden = one.deleted.text or (one.text is None and one.bytes)
                found.add(at, None if is_hidden else one.text or "", one.parent_id)
        except ValueError as error:
            tally.bad("no date", where, str(error))
            return None
        except malformed() as error:
            tally.bad("no MediaWiki dump", where, said(error))
            return None
        if found.first is None and found.number:
            tally.bad("missing field", where, "its revision has no timestamp")
            return None
        if found.first is None or found.version is None:  # hidden, or of a dump without texts
            tally.empty()
            return None
        changed, text = found.version
        if not text.strip():  # it was blanked
            tally.empty()
            return None
        if self._leads_on and self._leads_on.search(text):
            tally.skipped["disambiguation page"] += 1
            return None
        given = self._dates and self._dates.of(page.id)
        created = min(given, found.first) if given else found.created  # it was there by `first`
        return Dated(str(page.id), page.title, created, changed, text)

    def text(self, raw: str, words: int) -> str:
        """The plain text of the beginning, section by section until it has enough words."""
        found = ""
        for section in _sections(raw):
            found = f"{found}\n{HOLLOW.sub('', plain(section))}"
            if has_words(found, words):
                break
        return found


def _sections(raw: str) -> Iterator[str]:
    """What stands between headings, each found as it is asked for."""
    start = 0
    for heading in HEADING.finditer(raw):
        yield raw[start : heading.start()]
        start = heading.end()
    yield raw[start:]


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

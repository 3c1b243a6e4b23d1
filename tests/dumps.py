"""Dumps in the schemas of MediaWiki (export 0.11) and Stack Exchange, of the embedded texts.

    python -m tests.dumps FOLDER [PAGES]

Dates are drawn, whatever the texts: nothing tells a member from a non-member.
"""

from __future__ import annotations

import bz2
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import numpy as np

FIRST, LAST = datetime(2010, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)
HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" version="0.11" xml:lang="en">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>enwiki</dbname>
    <base>https://en.wikipedia.org/wiki/Main_Page</base>
    <generator>MediaWiki 1.44.0-wmf.5</generator>
    <case>first-letter</case>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Talk</namespace>
      <namespace key="6" case="first-letter">File</namespace>
    </namespaces>
  </siteinfo>
"""
PAGE = """  <page>
    <title>{title}</title>
    <ns>{ns}</ns>
    <id>{id}</id>{redirect}
{revisions}  </page>
"""
REVISION = """    <revision>
      <id>{id}</id>{parent}
      <timestamp>{at}</timestamp>
      <contributor>
        <username>A. Writer</username>
        <id>7</id>
      </contributor>
      <comment>/* History */ a &amp; b</comment>
      <origin>{id}</origin>
      <model>wikitext</model>
      <format>text/x-wiki</format>
      <text bytes="{size}" sha1="pyfcuynlb1vhwpyw73wxqmh86tlqwf8" xml:space="preserve">{text}</text>
      <sha1>pyfcuynlb1vhwpyw73wxqmh86tlqwf8</sha1>
    </revision>
"""
BOX = """{{Infobox thing
| name = {{nowrap|A name}}
| image = Some file.jpg
| length = {{convert|5|km}}
}}
"""
SECTION = 200
"""Words of a section."""
REF = '<ref name="a{n}">{{{{cite web|url=https://example.org/{n}|title=A title|date=2015}}}}</ref>'
TAIL = """
== References ==
{{Reflist}}

[[Category:Things]]
[[File:Other file.png|thumb|A caption]]
"""


def embedded(pages: int, words: int = 300) -> list[str]:
    """So many texts of that many words or more; each is of different embedded documents."""
    from contamination.data.readers.embedded import EmbeddedCorpus

    found: list[str] = []
    held: list[str] = []
    for document in EmbeddedCorpus(subsets=["wikipedia", "common_crawl", "book"]).documents():
        held += document.text.split()
        if len(held) >= words:
            found.append(" ".join(held[: 2 * words]))
            held = []
        if len(found) == pages:
            break
    return found


def drawn_dates(number: int, seed: int = 0) -> list[datetime]:
    """Uniform between FIRST and LAST."""
    seconds = (LAST - FIRST).total_seconds()
    return [
        FIRST + timedelta(seconds=int(s))
        for s in np.random.default_rng(seed).uniform(0, seconds, number)
    ]


def wikitext(text: str) -> str:
    """The text with the marks that an article has; its plain text is the words alone."""
    words = text.replace("[", "(").replace("{", "(").replace("'", "’").split(" ")
    words[0] = f"'''{words[0]}'''"
    for place in range(9, len(words), 15):
        words[place] = f"[[{words[place]}]]" if place % 2 else f"[[Thing|{words[place]}]]"
    for place in range(29, len(words), 60):
        words[place] += REF.format(n=place)
    parts = [" ".join(words[n : n + SECTION]) for n in range(0, len(words), SECTION)]
    return BOX + "\n\n== History ==\n".join(parts) + TAIL


def page(number: int, title: str, text: str, revisions: Sequence[tuple[datetime, bool]],
         *, ns: int = 0, redirect: str = "") -> str:  # fmt: skip
    """A page; of each revision its time, and whether it has a parent."""
    told = f"\n    <redirect title={quoteattr(redirect)} />" if redirect else ""
    parts = [
        REVISION.format(
            id=100 * number + n,
            at=at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            size=len(text.encode()),
            parent=f"\n      <parentid>{100 * number + n - 1}</parentid>" if parent else "",
            text=escape(text),
        )  # fmt: skip
        for n, (at, parent) in enumerate(revisions)
    ]
    return PAGE.format(
        title=escape(title), ns=ns, id=number, redirect=told, revisions="".join(parts)
    )


def wikipedia(path: Path, texts: Iterable[str], dates: Sequence[datetime]) -> Path:
    """A `pages-articles` dump of never edited pages, with a few that a builder leaves out."""
    opener = bz2.open if path.suffix == ".bz2" else open
    with opener(path, "wt", encoding="utf-8") as stream:
        stream.write(HEAD)
        for number, (text, at) in enumerate(zip(texts, dates, strict=False), 1):
            title = f"List of things {number}" if number % 50 == 0 else f"Thing {number}"
            own = [(at, False)]
            stream.write(page(number, title, wikitext(text), own))
            if number % 20 == 0:
                stream.write(page(10**6 + number, f"Talk:{title}", "Hm.", own, ns=1))
                stream.write(page(2 * 10**6 + number, f"Old {number}", "#R", own, redirect=title))
        stream.write("</mediawiki>\n")
    return path


def stack_exchange(path: Path, texts: Iterable[str], dates: Sequence[datetime]) -> Path:
    """A site's `Posts.xml` (or a .7z with it): each question with an answer a day later."""
    xml = path.with_name("Posts.xml") if path.suffix == ".7z" else path
    with xml.open("w", encoding="utf-8") as stream:
        stream.write('<?xml version="1.0" encoding="utf-8"?>\n<posts>\n')
        stream.writelines(_posts(texts, dates))
        stream.write("</posts>\n")
    if path.suffix == ".7z":
        import py7zr

        with py7zr.SevenZipFile(path, "w") as archive:
            archive.writestr("<tags />", "Tags.xml")
            archive.write(xml, "Posts.xml")
        xml.unlink()
    return path


def _posts(texts: Iterable[str], dates: Sequence[datetime]) -> Iterator[str]:
    def stamp(at: datetime) -> str:
        return at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]

    for number, (text, at) in enumerate(zip(texts, dates, strict=False), 1):
        later = stamp(at + timedelta(days=1))
        body = (
            f"<p>{escape(text[:200])} $x^2$</p>\n<pre><code>int x;\n</code></pre>\n"
            f"<p>{escape(text[200:])} &amp; <code>y</code></p>"
        )
        yield (
            f'  <row Id="{2 * number}" PostTypeId="1" CreationDate="{stamp(at)}" Score="3" '
            f'ViewCount="9" Body={quoteattr(body)} OwnerUserId="7" LastActivityDate="{later}" '
            f'Title="Why {number}?" Tags="&lt;x&gt;" AnswerCount="1" />\n'
        )
        yield (
            f'  <row Id="{2 * number + 1}" PostTypeId="2" ParentId="{2 * number}" '
            f'CreationDate="{later}" Score="1" Body="&lt;p&gt;So.&lt;/p&gt;" '
            f'LastActivityDate="{later}" />\n'
        )


def main(folder: Path, pages: int) -> None:
    """Both dumps."""
    folder.mkdir(parents=True, exist_ok=True)
    texts, dates = embedded(pages), drawn_dates(pages)
    print(wikipedia(folder / "enwiki-pages-articles.xml.bz2", texts, dates))
    print(stack_exchange(folder / "things.stackexchange.com.7z", texts, dates))


def repeated(texts: Sequence[str], pages: int) -> Iterator[str]:
    """So many texts, with numbers that tell repeated ones apart."""
    for number, text in enumerate(islice(cycle(texts), pages)):
        yield f"{number} {text}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 600)

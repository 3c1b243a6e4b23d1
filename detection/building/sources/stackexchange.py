"""Questions of a Stack Exchange dump: `Posts.xml`, plain or in the site's .7z."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from html.parser import HTMLParser
from typing import ClassVar
from xml.etree import ElementTree

from detection.building.dates import CutOffs, Dated, moment
from detection.building.sources import Source, Told
from detection.building.sources.opening import damage, opened
from injection.sources.reading import Shard
from injection.sources.tally import Tally

POSTS = "Posts.xml"
QUESTION = "1"
LEFT_OUT = ("pre", "code")
BREAKS = ("p", "br", "li", "blockquote", "hr", "h1", "h2", "h3")
FORMULA = re.compile(
    r"\$\$.*?\$\$|\\\[.*?\\\]|\\\(.*?\\\)|(?<![\\\w$])\$(?:(?=\S)[^$\n]*(?<=\S)\$(?!\d)"
    r"|[^$\n]*[\\^_{}][^$\n]*\$)",
    re.DOTALL,
)
"""Single dollars hold a formula, and no money, where Pandoc says so (no blank within them, no digit
behind them), and where a sign of TeX stands between them."""


@dataclass(frozen=True, kw_only=True)
class StackExchange(Source):
    """Questions, as StackMIA has them (Ye et al. 2024): text alone, without code and formulas.

    A question changes until the last answer to it or edit of it (`LastActivityDate`). The dumps'
    dates are in UTC.
    """

    licence: ClassVar[str] = "cc-by-sa-4.0"
    usual: ClassVar[str] = r"\bPosts\.xml|\.7z$"

    def documents(
        self, file: Shard, tally: Tally, cut_offs: CutOffs, told: Told
    ) -> Iterator[Dated]:
        """See `Source`."""
        last = "its beginning"
        site = re.sub(r"[/\\]?\bPosts\.xml.*|\.7z$|\.xml.*", "", file.name)
        with (
            damage(tally, lambda: f"{file.path}, after {last}"),
            opened(file.path, POSTS, told) as f,
        ):
            for row in _rows(f, tally, file):
                last = f"row {row.get('Id')}"
                if row.get("PostTypeId") == QUESTION:
                    found = self._question(row, site, tally, f"{file.path}, {last}")
                    if found is not None:
                        yield found

    def text(self, raw: str, words: int) -> str:
        """See `Source`."""
        parser = _Words()
        parser.feed(raw)
        parser.close()
        return FORMULA.sub(" ", "".join(parser.found))

    def _question(
        self, row: Mapping[str, str], site: str, tally: Tally, where: str
    ) -> Dated | None:
        try:
            created = moment(row["CreationDate"], UTC)
            changed = moment(row.get("LastActivityDate", row["CreationDate"]), UTC)
            name = f"{site}-{row['Id']}".lstrip("-")
            return Dated(name, row.get("Title", ""), created, changed, row["Body"])
        except KeyError as error:
            tally.bad("missing field", where, f"no {error}; its fields are {', '.join(row)}")
        except ValueError as error:
            tally.bad("no date", where, str(error))
        return None


def _rows(stream: object, tally: Tally, file: Shard) -> Iterator[Mapping[str, str]]:
    events = ElementTree.iterparse(stream, events=("start", "end"))  # type: ignore[call-overload]
    _, root = next(events)
    if root.tag != "posts":
        tally.bad("no Posts.xml", str(file.path), f"its root is <{root.tag}>, not <posts>")
        return
    for event, element in events:
        if event == "end" and element.tag == "row":
            yield element.attrib
            root.clear()


class _Words(HTMLParser):
    """Collects the text of HTML, without code."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._within = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Code begins."""
        self._within += tag in LEFT_OUT
        if tag in BREAKS:
            self.found.append("\n")

    def handle_endtag(self, tag: str) -> None:
        """Code ends."""
        self._within = max(0, self._within - (tag in LEFT_OUT))

    def handle_data(self, data: str) -> None:
        """Text."""
        if not self._within:
            self.found.append(data)

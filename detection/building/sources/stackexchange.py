"""Questions of a Stack Exchange dump: `Posts.xml`, plain or in the site's .7z."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import BinaryIO, ClassVar

from contamination.data.html_text import START, TEXT, tokens
from contamination.data.readers.rows import Shard, Tally
from contamination.detection.building.dates import CutOffs, Dated, moment
from contamination.detection.building.sources import Source, Told
from contamination.detection.building.sources.archives import damage, elements, opened

POSTS = "Posts.xml"
QUESTION = "1"
LEFT_OUT = ("pre", "code")
BREAKS = ("p", "br", "li", "blockquote", "hr", "h1", "h2", "h3")
FORMULA = re.compile(
    r"\$\$.*?\$\$|\\\[(?:[^\\]|\\[^\[\]])*+\\\]|\\\((?:[^\\]|\\[^()])*+\\\)"
    r"|(?<![\\\w$])\$(?:(?=\S)[^$\n]*+(?<=\S)\$(?!\d)|[^$\n\\^_{}]*+[\\^_{}][^$\n]*+\$)",
    re.DOTALL,
)
"""Single dollars hold a formula, and no money, where Pandoc says so (no blank within them, no digit
behind them), and where a sign of TeX stands between them. It takes linear time: of what has no end
no more is read than up to the next beginning."""


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
            for row in _rows(f, self.max_text_bytes, tally, file):
                last = f"row {row.get('Id')}"
                if row.get("PostTypeId") == QUESTION:
                    found = self._question(row, site, tally, f"{file.path}, {last}")
                    if found is not None:
                        yield found

    def text(self, raw: str, words: int) -> str:
        """See `Source`."""
        parts: list[str] = []
        within = 0
        for kind, value in tokens(raw):
            if kind == TEXT:
                parts.append("" if within else value)
            elif value in LEFT_OUT:
                within = max(0, within + (1 if kind == START else -1))
            elif kind == START and value in BREAKS:
                parts.append("\n")
        return FORMULA.sub(" ", "".join(parts))

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


def _rows(stream: BinaryIO, most: int, tally: Tally, file: Shard) -> Iterator[Mapping[str, str]]:
    events = elements(stream, most, ("row",))
    _, root = next(events)
    if root.tag != "posts":
        tally.bad("no Posts.xml", str(file.path), f"its root is <{root.tag}>, not <posts>")
        return
    for event, element in events:
        if event == "end" and element.tag == "row":
            yield element.attrib
            root.clear()

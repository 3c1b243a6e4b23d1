"""Questions of a Stack Exchange dump: `Posts.xml`, plain or in the site's .7z."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import BinaryIO, ClassVar

from contamination.data.html_tokens import START, TEXT, iter_html_tokens
from contamination.data.readers.rows import Shard, Tally
from contamination.detection.building.dates import CutOffs, DatedDocument, parse_time
from contamination.detection.building.sources import OnBytesRead, Source, xml_streams

POSTS = "Posts.xml"
QUESTION = "1"
OMITTED_ELEMENTS = ("pre", "code")
LINE_BREAK_ELEMENTS = ("p", "br", "li", "blockquote", "hr", "h1", "h2", "h3")
FORMULA = re.compile(
    r"\$\$.*?\$\$|\\\[(?:[^\\]|\\[^\[\]])*\\\]|\\\((?:[^\\]|\\[^()])*\\\)"
    r"|(?<![\\\w$])\$(?:(?=\S)[^$\n]*+(?<=\S)\$(?!\d)|[^$\n\\^_{}]*+[\\^_{}][^$\n]*+\$)",
    re.DOTALL,
)
"""Single dollars enclose a formula, and not amounts of money, by Pandoc's rule (no blank inside, no
digit after them), or if there is a TeX character between them. The pattern takes linear time: an
unclosed formula is only read up to the next beginning."""


@dataclass(frozen=True, kw_only=True)
class StackExchange(Source):
    """Questions as in StackMIA (Ye et al. 2024): only text, without code and formulas.

    A question counts as changed until its last answer or edit (`LastActivityDate`). The dumps'
    dates are in UTC.
    """

    licence: ClassVar[str] = "cc-by-sa-4.0"
    usual_file_names: ClassVar[str] = r"\bPosts\.xml|\.7z$"

    def documents(
        self, file: Shard, tally: Tally, cut_offs: CutOffs, on_bytes: OnBytesRead
    ) -> Iterator[DatedDocument]:
        """Yields the questions of a dump."""
        position = "its beginning"
        site = re.sub(r"[/\\]?\bPosts\.xml.*|\.7z$|\.xml.*", "", file.name)
        with (
            xml_streams.report_damage(tally, lambda: f"{file.path}, after {position}"),
            xml_streams.open_decompressed(file.path, POSTS, on_bytes) as stream,
        ):
            for row in _iter_rows(stream, self.max_text_bytes, tally, file):
                position = f"row {row.get('Id')}"
                if row.get("PostTypeId") == QUESTION:
                    question_document = self._parse_question(
                        row, site, tally, f"{file.path}, {position}"
                    )
                    if question_document is not None:
                        yield question_document

    def text(self, raw: str, min_words: int) -> str:
        """Returns the text of the HTML without code and formulas."""
        parts: list[str] = []
        depth = 0  # of elements that are left out
        for token_kind, text_or_tag_name in iter_html_tokens(raw):
            if token_kind == TEXT:
                parts.append("" if depth else text_or_tag_name)
            elif text_or_tag_name in OMITTED_ELEMENTS:
                depth = max(0, depth + (1 if token_kind == START else -1))
            elif token_kind == START and text_or_tag_name in LINE_BREAK_ELEMENTS:
                parts.append("\n")
        return FORMULA.sub(" ", "".join(parts))

    def _parse_question(
        self, row: Mapping[str, str], site: str, tally: Tally, where: str
    ) -> DatedDocument | None:
        try:
            created = parse_time(row["CreationDate"], UTC)
            changed = parse_time(row.get("LastActivityDate", row["CreationDate"]), UTC)
            question_id = f"{site}-{row['Id']}".lstrip("-")
            return DatedDocument(question_id, row.get("Title", ""), created, changed, row["Body"])
        except KeyError as error:
            tally.reject("missing field", where, f"no {error}; its fields are {', '.join(row)}")
        except ValueError as error:
            tally.reject("no date", where, str(error))
        return None


def _iter_rows(
    stream: BinaryIO, max_bytes: int, tally: Tally, file: Shard
) -> Iterator[Mapping[str, str]]:
    events = xml_streams.iter_elements(stream, max_bytes, ("row",))
    _, root = next(events)
    if root.tag != "posts":
        tally.reject("no Posts.xml", str(file.path), f"its root is <{root.tag}>, not <posts>")
        return
    for event, element in events:
        if event == "end" and element.tag == "row":
            yield element.attrib
            root.clear()

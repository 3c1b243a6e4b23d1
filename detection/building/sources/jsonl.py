"""Dated documents of any origin: JSONL (plain, .gz, .zst), CSV, TSV or Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from zoneinfo import ZoneInfo

from contamination.core.config import Range, ranged_field
from contamination.data.readers.files import (
    MISSING_VALUE,
    find_shards,
    value_at,
    value_at_path_or_missing,
)
from contamination.data.readers.rows import ReadOptions, Row, Shard, Tally, read_file
from contamination.detection.building.dates import CutOffs, DatedDocument, parse_time
from contamination.detection.building.sources import OnBytesRead, Source


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Jsonl(Source):
    """Rows with a text and a date; fields are paths (`meta.date`)."""

    format: str = "auto"
    """auto (by suffix), jsonl, csv, tsv or parquet."""
    text_field: str = "text"
    created: str = "created"
    """The field of the date: ISO 8601, or Unix seconds."""
    changed: str | None = None
    """The field of the last edit's date; null: the texts don't change."""
    title: str | None = "title"
    id: str | None = None
    """The field of a unique id; null: the file's name and the row's number."""
    zone: str | None = ranged_field(
        None, Range(_is_zone, "give a zone such as UTC or Europe/Paris.")
    )
    """The time zone of dates that name none; null: such dates can't be used."""

    @cached_property
    def files(self) -> list[Shard]:
        """The files, by name."""
        return find_shards(self.paths, self.format, "source.paths")

    def documents(
        self, file: Shard, tally: Tally, cut_offs: CutOffs, on_bytes: OnBytesRead
    ) -> Iterator[DatedDocument]:
        """Yields the rows as documents."""
        reading = ReadOptions(tally, line_bytes=self.max_text_bytes, limit="source.max_text_bytes")
        for row in read_file(file, reading):
            document = self._parse_document(row, tally)
            if document is not None:
                yield document
        on_bytes(file.path.stat().st_size)

    def text(self, raw: str, min_words: int) -> str:
        """Returns the text as it is."""
        return raw

    def _parse_document(self, row: Row, tally: Tally) -> DatedDocument | None:
        text, created = (value_at(row, name, tally) for name in (self.text_field, self.created))
        if text is None or created is None:
            return None
        document_id = (
            f"{row.shard.name}:{row.number}" if self.id is None else value_at(row, self.id, tally)
        )
        changed = created if self.changed is None else value_at(row, self.changed, tally)
        title = (
            MISSING_VALUE if self.title is None else value_at_path_or_missing(row.value, self.title)
        )
        if document_id is None or changed is None:
            return None
        zone = None if self.zone is None else ZoneInfo(self.zone)
        title = "" if title is MISSING_VALUE else str(title)
        try:
            if not isinstance(text, str):
                raise TypeError(f"{self.text_field!r} is a {type(text).__name__}, not a string")
            f"{document_id}{title}{text}".encode()  # JSON may spell half of a surrogate pair
        except (TypeError, UnicodeEncodeError) as error:
            tally.reject("no text", row.where, str(error))
            return None
        try:
            dates = parse_time(created, zone), parse_time(changed, zone)
        except (ValueError, OverflowError, OSError) as error:
            remedy = "set source.zone, such as source.zone=UTC" if "zone" in str(error) else "ISO"
            tally.reject("no date", row.where, f"{self.created!r}: {error}; {remedy}")
            return None
        return DatedDocument(str(document_id), title, *dates, text)

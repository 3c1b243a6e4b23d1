"""Rows whose label is a list, one of so many words each: a text a piece, and a row a cluster.

The pieces of a row are what the online setting joins again (`detection.online`).
"""

from __future__ import annotations

from collections.abc import Iterator

from core.errors import DataError
from injection.sources.reading import Row

BLANK = " "
"""What stands between words, and between pieces."""


def pieces(row: Row, words: int) -> Iterator[Row]:
    """A row for each label, of `words` words; what is left over at the text's end has none.

    Raises:
        DataError: the labels are no list, or not as many as the text has pieces.
    """
    text, labels, name = (row.value[field] for field in ("text", "label", "id"))
    split = str(text).split(BLANK)
    if not isinstance(labels, list) or len(labels) != len(split) // words:
        found = f"{len(labels)} labels" if isinstance(labels, list) else repr(labels)
        raise DataError(
            f"{row.where}: its label is {found}, and its text has {len(split)} words. Give a list "
            f"with one label for each {words} words (examples.label_words), "
            f"{len(split) // words} in all."
        )
    for place, label in enumerate(labels):
        part = BLANK.join(split[place * words : (place + 1) * words])
        own = {"id": f"{name}/{place}", "text": part, "label": label, "cluster": str(name)}
        yield row._replace(value={**row.value, **own})

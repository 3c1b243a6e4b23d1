"""Texts as chunks of so many words; a text of no more words is one chunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from core.errors import DataError
from core.halves import WORD
from core.seeds import derive, unit_hash
from detection.examples import make_text
from detection.texts import Text, Texts

BETWEEN = "#"
"""What stands between a text's id and its chunk's number."""


def chunks_of(texts: Iterable[Text], words: int) -> tuple[Texts, pd.DataFrame]:
    """The chunks as texts, and a row each: chunk, text_id, benchmark, member (None: unknown).

    Only the last chunk of a text has fewer words; one of fewer than half of them joins the chunk
    before, so that none is a scrap.

    Raises:
        DataError: two chunks would have one id.
    """
    found, rows = [], []
    for text in texts:
        parts = cut(text.text, words)
        for number, part in enumerate(parts):
            name = text.example_id if len(parts) == 1 else f"{text.example_id}{BETWEEN}{number}"
            found.append(make_text(name, part, text.label, text.benchmark))
            rows.append((name, text.example_id, text.benchmark, text.label))
    columns = ["chunk", "text_id", "benchmark", "member"]
    table = pd.DataFrame(rows, columns=columns).astype({"member": "boolean"})
    if (twice := table["chunk"].duplicated()).any():
        raise DataError(
            f"audit.texts: {table['chunk'][twice].iloc[0]!r} names two chunks, one of them a part "
            f"of a longer text. Give ids without {BETWEEN}."
        )
    return Texts.of(found), table


def cut(text: str, words: int) -> list[str]:
    """The text's chunks; what stands between two of them is dropped."""
    found = [match.span() for match in WORD.finditer(text)]
    if len(found) <= words:
        return [text]
    starts = [*range(0, len(found), words)]
    if len(found) - starts[-1] < words / 2:
        starts.pop()
    ends = [*starts[1:], len(found)]
    return [text[found[a][0] : found[b - 1][1]] for a, b in zip(starts, ends, strict=True)]


def drawn(table: pd.DataFrame, most: int, seed: int) -> Sequence[int]:
    """The places of at most so many chunks, drawn evenly from members, non-members and others.

    A chunk's draw follows from the seed and its name alone.
    """
    number = derive(seed, "completed")
    order = table["chunk"].map(lambda name: unit_hash(f"{number} {name}"))
    kinds = table["member"].astype(str).where(table["member"].notna(), "")
    rank = order.groupby(kinds).rank(method="first")  # 1, 2, … within a kind
    first = pd.DataFrame({"rank": rank, "order": order}).sort_values(["rank", "order"])
    return sorted(first.index[:most].tolist())

"""Texts for the commands that take files of one's own, cut from the quickstart's examples."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

BOOKS, CHAPTERS = 6, 20
YEARS = {True: range(2010, 2017), False: range(2023, 2025)}
"""When a member, or a non-member, is said to have been written."""


def write_material(folder: Path, corpus: Path, model: Path) -> None:
    """Write labelled, long and dated texts and books of a corpus's examples, and copy a model."""
    shutil.copytree(model / "hf", folder / "hf", dirs_exist_ok=True)
    examples = pd.read_parquet(corpus / "examples.parquet").sort_values("example_id")
    members = examples[examples["member"].astype(bool)].sort_values(
        ["occurrences", "example_id"], ascending=[False, True]
    )
    texts = {
        True: members["text"].tolist(),
        False: examples[~examples["member"].astype(bool)]["text"].tolist(),
    }
    labelled = [
        {"id": f"text-{place}", "text": text, "label": int(label)}
        for label, group in texts.items()
        for place, text in enumerate(group[:60], start=1000 * label)
    ]
    _write_rows(folder / "labelled.jsonl", labelled)
    _write_rows(folder / "few.jsonl", [row for row in labelled if int(row["id"][5:]) % 1000 < 6])
    _write_rows(folder / "long.jsonl", [
        {"text": "\n".join(group[start : start + 8]), "label": int(label)}
        for label, group in texts.items() for start in range(0, 80, 8)
    ])  # fmt: skip
    _write_rows(folder / "dated.jsonl", [
        {"text": "\n".join(group[start : start + 2]), "title": f"{label} {start}",
         "created": f"{YEARS[label][start % len(YEARS[label])]}-05-01"}
        for label, group in texts.items() for start in range(0, 120, 2)
    ])  # fmt: skip
    _write_books(folder / "positives", texts[True], BOOKS)
    _write_books(folder / "negatives", texts[False], BOOKS)
    rest = {label: group[BOOKS * CHAPTERS :] for label, group in texts.items()}
    mixed = [text for pair in zip(rest[True], rest[False], strict=False) for text in pair]
    suspects = [
        *rest[True][:CHAPTERS],
        *mixed[4 * CHAPTERS : 5 * CHAPTERS],
        *rest[False][-CHAPTERS:],
    ]
    _write_books(folder / "suspects", suspects, 3)


def _write_books(folder: Path, texts: Sequence[str], number: int) -> None:
    folder.mkdir(exist_ok=True)
    for book in range(number):
        chapters = texts[book * CHAPTERS : (book + 1) * CHAPTERS]
        (folder / f"{folder.name}-{book}.txt").write_text("\n\n".join(chapters))


def _write_rows(file: Path, rows: Sequence[dict[str, object]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

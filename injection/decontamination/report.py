"""The report of a decontamination: what was lost, which items were found, and in what text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contamination.core.report.document import ReportContent
from contamination.core.report.tables import Table
from contamination.injection.decontamination.cleaning import UNITS
from contamination.injection.decontamination.config import DecontaminateStage
from contamination.injection.decontamination.rules.item_ngrams import split_words

if TYPE_CHECKING:
    import pandas as pd

    from contamination.data.texts import Text

EXAMPLE_ROWS, EXAMPLE_CHARACTERS = 20, 200
FILE_ROWS = 100


@dataclass(frozen=True)
class CorpusLoss:
    """What was read and what was lost of one file, or of the whole corpus.

    Attributes:
        name: the file.
        read: the size of its documents by unit (`UNITS`).
        lost: the size of the removed text.
        flagged: the number of documents that share text with an item.
    """

    name: str
    read: Mapping[str, int]
    lost: Mapping[str, int]
    flagged: int

    @classmethod
    def total(cls, losses: Sequence[CorpusLoss]) -> CorpusLoss:
        """Returns the sums over files."""
        read = {unit: sum(loss.read[unit] for loss in losses) for unit in UNITS}
        lost = {unit: sum(loss.lost[unit] for loss in losses) for unit in UNITS}
        return cls("all files", read, lost, sum(loss.flagged for loss in losses))

    def text(self, unit: str) -> str:
        """Returns what was lost in a unit, with its percentage."""
        return f"{self.lost[unit]:,} ({format_percent(self.lost[unit], self.read[unit])})"


def format_percent(part: int, whole: int) -> str:
    """Returns a percentage with three significant digits."""
    return f"{100 * part / whole:.3g}%" if whole else "–"


def items_table(
    items: Sequence[tuple[str, Text]], unseen: Sequence[str], matches: pd.DataFrame
) -> pd.DataFrame:
    """Returns one row per item.

    Columns:
        benchmark, example_id: of the item.
        words: the number of its words.
        unseen: why the rule can't find it in any document; "" if it can.
        documents: the number of documents that share text with it.
    """
    import pandas as pd

    documents = matches["item"].value_counts()
    return pd.DataFrame(
        {
            "benchmark": [benchmark for benchmark, _ in items],
            "example_id": [item.example_id for _, item in items],
            "words": [len(split_words(item.text)) for _, item in items],
            "unseen": list(unseen),
            "documents": [int(documents.get(number, 0)) for number in range(len(items))],
        }
    )


def report_content(
    stage: DecontaminateStage,
    losses: Sequence[CorpusLoss],
    items: pd.DataFrame,
    matches: pd.DataFrame,
    skipped: Mapping[str, int],
    ignored_ngrams: tuple[int, int] | None = None,
) -> ReportContent:
    """Returns the report's content.

    Args:
        stage: the configuration.
        losses: what was lost, by file.
        items: see `items_table`.
        matches: one row per document and item that share text.
        skipped: the rows that could not be used: reason → count.
        ignored_ngrams: see `ItemSearch.ignored_ngrams`.
    """
    total = CorpusLoss.total(losses)
    found, unseen = int((items["documents"] > 0).sum()), int((items["unseen"] != "").sum())
    conclusions = [
        f"**{found:,} of {len(items):,} items** share text with {total.flagged:,} of "
        f"{total.read['documents']:,} documents "
        f"({format_percent(total.flagged, total.read['documents'])}). Lost: "
        f"{_loss_text(stage, total)}.",
    ]
    warnings = []
    if unseen:
        warnings.append(
            f"The rule can't find {unseen:,} of {len(items):,} items "
            f"({format_percent(unseen, len(items))}) in any document: see the column unseen of "
            "items.parquet."
        )
    facts = {
        "rule": ", ".join(f"{name}={value}" for name, value in stage.matcher.items()),
        "removed": stage.remove,
        "files": f"{len(losses):,}",
    }
    if ignored_ngrams is not None:
        ignored, number = ignored_ngrams
        facts["n-grams ignored"] = (
            f"{ignored:,} of the items' {number:,} ({format_percent(ignored, number)}), which are "
            f"in more than matcher.max_documents={stage.matcher['max_documents']} documents"
        )
    if skipped:
        facts["left out"] = ", ".join(f"{count:,} × {reason}" for reason, count in skipped.items())
    return ReportContent(
        title="Decontamination",
        conclusions=conclusions,
        warnings=warnings,
        tables=[
            _benchmark_table(items),
            _loss_table(stage, [total, *losses[:FILE_ROWS]], len(losses)),
            _example_table(items, matches),
        ],
        limits=[
            "An item without a match may still be in the corpus in a form that the rule does not "
            "recognise, such as another wording.",
            "A match may be a passage that the item and a document share for another reason, such "
            "as a quotation or a common phrase: read the matched text.",
        ],
        facts=facts,
    )


def _units(stage: DecontaminateStage) -> Sequence[str]:
    return UNITS if stage.tokenizer is not None else UNITS[:-1]


def _loss_text(stage: DecontaminateStage, loss: CorpusLoss) -> str:
    return ", ".join(f"{loss.text(unit)} {unit}" for unit in _units(stage))


def _benchmark_table(items: pd.DataFrame) -> Table:
    rows: list[dict[str, Any]] = []
    for benchmark, group in items.groupby("benchmark", sort=True):
        unseen = int((group["unseen"] != "").sum())
        rows.append(
            {
                "benchmark": str(benchmark),
                "items": len(group),
                "seen": len(group) - unseen,
                "unseen": unseen,
                "found": int((group["documents"] > 0).sum()),
            }
        )
    lines = [
        [name, *(f"{count:,}" for count in counts)] for name, *counts in map(dict.values, rows)
    ]
    header = ["benchmark", "items", "seen by the rule", "unseen", "found in a document"]
    note = "; ".join(
        f"{count:,} unseen: {reason}"
        for reason, count in items["unseen"].value_counts().items()
        if reason
    )
    return _table("items", "Items", header, lines, rows, note)


def _loss_table(stage: DecontaminateStage, losses: Sequence[CorpusLoss], n_files: int) -> Table:
    units = _units(stage)
    rows = [
        {"file": loss.name, "flagged": loss.flagged, **{u: loss.lost[u] for u in units}}
        for loss in losses
    ]
    lines = [[loss.name, f"{loss.flagged:,}", *map(loss.text, units)] for loss in losses]
    header = ["file", "documents with items", *(f"lost {unit}" for unit in units)]
    note = f"The first {FILE_ROWS} of {n_files:,} files." if n_files > FILE_ROWS else ""
    return _table("losses", "Text lost", header, lines, rows, note)


def _example_table(items: pd.DataFrame, matches: pd.DataFrame) -> Table:
    first = matches.drop_duplicates("item").head(EXAMPLE_ROWS)
    rows: list[dict[str, Any]] = []
    for match in first.itertuples():
        item = items.iloc[match.item]
        text = " ".join(match.matched_text.split())
        cut = text if len(text) <= EXAMPLE_CHARACTERS else f"{text[:EXAMPLE_CHARACTERS]}…"
        rows.append(
            {
                "item": f"{item['benchmark']} {item['example_id']}",
                "document": f"{match.file}, row {match.row}",
                "kind": match.kind,
                "share": f"{match.share:.2f}",
                "matched text": cut,
            }
        )
    header = ["item", "document", "kind", "share", "matched text"]
    lines = [[row[name] for name in header] for row in rows]
    note = (
        f"One document for each of {len(rows)} items of {matches['item'].nunique():,}; all "
        f"{len(matches):,} matches are in matches.parquet."
    )
    return _table("matches", "Matched text", header, lines, rows, note)


def _table(
    name: str,
    title: str,
    header: Sequence[str],
    lines: Sequence[Sequence[str]],
    rows: Sequence[Mapping[str, Any]],
    note: str,
) -> Table:
    import pandas as pd

    return Table(name, title, header, lines, pd.DataFrame(rows), note=note)

"""Recall and false alarms of each decontamination rule, by the form of the leak.

    python -m perf.decontamination [--rules words] [--items 60] [--documents 200] [--out FILE]
    python -m perf.decontamination --rules embedding --items 20 --documents 20
    python -m perf.decontamination --cost
    python -m perf.decontamination --rates 60 [--folder DIR]

Items of three embedded benchmarks are drawn; half of them leak, in each form into one document
each, and the other half do not. The embedded corpus has the clean documents. Each rule searches
the leaked and the clean documents for all items.

- *recall*: the share of leaked items that are found in their own document.
- *right*: of the pairs of an item and a leaked document that a rule reports, the share in which
  the document has that item's leak (over all forms).
- *clean documents*: the share of clean documents in which a rule reports an item. Some may share
  a passage with an item.

The rule of embeddings reads each document once for all its thresholds. It needs minutes on a
processor core even for few items.

`--cost` removes all items of five benchmarks from the embedded corpus, in which none was put, by
rules of conf/matcher/, and counts the documents and words that each leaves out.

`--rates` measures the tokens per second of one core instead (`perf.decontamination_rates`).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from contamination.core.cli import compose_stage
from contamination.core.report.tables import markdown_table
from contamination.data.perturbation import Delete, Swap
from contamination.data.readers.embedded import EmbeddedCorpus
from contamination.injection.config import InjectionStage
from contamination.injection.decontamination import forms
from contamination.injection.decontamination.config import DecontaminateStage
from contamination.injection.decontamination.rules.base import Rule
from contamination.injection.decontamination.rules.embedding import Embedding
from contamination.injection.decontamination.rules.longest_match import LongestMatch
from contamination.injection.decontamination.rules.ngram_union import NgramUnion
from contamination.injection.decontamination.run import decontaminate
from contamination.injection.pool import read_candidates
from contamination.perf.decontamination_rates import measure_rates

BENCHMARKS = ("boolq", "commonsenseqa", "truthfulqa")
COST_BENCHMARKS = (*BENCHMARKS, "nq_open", "asdiv")
COST_MATCHERS = ("ngram_13", "ngram_8", "longest_match", "marin", "contam")
FILLER_DOCUMENTS = 2_000
LEAKED_STEP = 2
"""Every second item is leaked."""
RULES: Mapping[str, Mapping[str, Rule]] = {
    "words": {
        "13-gram": NgramUnion(n=13),
        "8-grams, 70%": NgramUnion(n=8, min_share=0.7),
        "longest match, 50%": LongestMatch(n=8, min_share=0.5),
        "marin": NgramUnion(n=13, min_share=0.5, share_of="line", whole_item_words=None),
        "contam": LongestMatch(n=8, min_share=0.5, whole_item_words=None),
    },
    "embedding": {"embedding": Embedding(min_similarity=0.5)},
}
THRESHOLDS = {"embedding": (0.6, 0.7, 0.8, 0.9)}
"""The thresholds of a match's share at which a rule is measured; others have their own."""


@dataclass(frozen=True)
class Item:
    """An item of a benchmark."""

    benchmark: str
    item_id: str
    text: str
    fields: Mapping[str, str]


def draw_items(number: int | None, benchmarks: Sequence[str] = BENCHMARKS) -> list[Item]:
    """Returns so many items of each benchmark, or all, in a random order."""
    words = [f"benchmark=[{','.join(benchmarks)}]"]
    stage = compose_stage("injection", words, InjectionStage)
    return [
        Item(candidates.name, example.example_id, example.text, example.fields)
        for candidates in read_candidates(stage)
        for example in candidates.examples[:number]
    ]


def leak(items: Sequence[Item], filler: Sequence[str]) -> dict[str, list[str | None]]:
    """Returns each item's leaked text by form; None for an item without that form."""
    texts, keys = [item.text for item in items], [item.item_id for item in items]
    leaks: dict[str, list[str | None]] = {
        "verbatim": [*texts],
        "re-wrapped": [forms.rewrap(text) for text in texts],
    }
    for times in (1, 3, 10):
        leaks[f"embedded ×{times}"] = [
            forms.embed(text, filler, times, 0, key) for text, key in zip(texts, keys, strict=True)
        ]
    leaks["question only"] = [item.fields["question"] for item in items]
    leaks["with options"] = [
        "{question}\n{options}".format(**item.fields) if "options" in item.fields else None
        for item in items
    ]
    leaks["10% deleted"] = [*Delete(0.1).reword(texts, keys, 0)]
    leaks["30% swapped"] = [*Swap(0.3).reword(texts, keys, 0)]
    return leaks


Found = Mapping[int, float]
"""The items that a rule reports in a document, with the share of each."""


@dataclass(frozen=True)
class Reports:
    """What a rule reports in all documents.

    Attributes:
        by_form: form → for each leaked item its index and what is reported in its document.
        clean: what is reported in each clean document.
        unseen: the share of items that the rule can't see.
    """

    by_form: Mapping[str, Sequence[tuple[int, Found]]]
    clean: Sequence[Found]
    unseen: float


def search_all(
    rule: Rule,
    items: Sequence[Item],
    leaks: Mapping[str, Sequence[str | None]],
    clean: Sequence[str],
) -> Reports:
    """Searches all documents with a rule; item LEAKED_STEP·i has the i-th leak of each form."""
    search = rule.search([item.text for item in items])

    def reported(document: str) -> Found:
        return {match.item: match.share for match in search.matches(document)}

    by_form = {
        form: [
            (number * LEAKED_STEP, reported(document))
            for number, document in enumerate(documents)
            if document is not None
        ]
        for form, documents in leaks.items()
    }
    unseen = sum(bool(reason) for reason in search.unseen) / len(items)
    return Reports(by_form, [reported(document) for document in clean], unseen)


def summarise(reports: Reports, items: Sequence[Item], threshold: float) -> dict[str, Any]:
    """Returns the recall by benchmark and form, and the false alarms, at a threshold."""
    recall: dict[str, dict[str, list[bool]]] = {}
    n_pairs = n_right = 0
    for form, documents in reports.by_form.items():
        for item, shares in documents:
            found = {number for number, share in shares.items() if share >= threshold}
            n_pairs, n_right = n_pairs + len(found), n_right + (item in found)
            by_form = recall.setdefault(items[item].benchmark, {})
            by_form.setdefault(form, []).append(item in found)
    flagged = [max(shares.values(), default=-1.0) >= threshold for shares in reports.clean]
    return {
        "recall": {
            name: {form: sum(hits) / len(hits) for form, hits in by_form.items()}
            for name, by_form in recall.items()
        },
        "right": n_right / n_pairs if n_pairs else None,
        "clean": sum(flagged) / len(flagged),
        "unseen": reports.unseen,
    }


def measure_cost() -> int:
    """Prints what each matcher leaves out of the embedded corpus; returns 0."""
    items = draw_items(None, COST_BENCHMARKS)
    print(f"{len(items):,} items of {', '.join(COST_BENCHMARKS)}")
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        corpus, benchmark = (Path(temporary) / name for name in ("corpus.jsonl", "items.jsonl"))
        write_texts(corpus, (document.text for document in EmbeddedCorpus().documents()))
        write_texts(benchmark, (item.text for item in items))
        for matcher in COST_MATCHERS:
            words = [f"paths={corpus}", f"benchmarks=[{benchmark}]", f"runs={temporary}/runs"]
            words = [*words, f"matcher={matcher}"]
            cleaned = decontaminate(compose_stage("decontaminate", words, DecontaminateStage))
            matches = pd.read_parquet(cleaned.path / "matches.parquet")
            n_with_half = matches.loc[matches["share"] >= 0.5, "row"].nunique()
            lines.append([matcher, str(n_with_half), str(cleaned.counts["summary"])])
    print(markdown_table(["matcher", "documents with half an item", "summary"], lines))
    return 0


def write_texts(path: Path, texts: Iterable[str]) -> None:
    """Writes a JSONL file with a text per line."""
    with path.open("w") as file:
        for number, text in enumerate(texts):
            file.write(json.dumps({"text": text, "id": str(number)}) + "\n")


def main() -> int:
    """Prints one table per benchmark; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", choices=RULES, default="words")
    parser.add_argument("--items", type=int, default=60)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--cost", action="store_true", help="what the rules leave out of clean text"
    )
    parser.add_argument("--rates", type=float, metavar="MILLIONS", help="millions of tokens")
    parser.add_argument("--folder", type=Path, help="keeps the corpus of --rates")
    options = parser.parse_args()
    if options.cost:
        return measure_cost()
    if options.rates is not None:
        texts = [item.text for item in draw_items(options.items)]
        return measure_rates(texts, round(options.rates * 1e6), options.folder)
    corpus = [
        document.text
        for document in islice(EmbeddedCorpus().documents(), options.documents + FILLER_DOCUMENTS)
    ]
    clean, filler = corpus[: options.documents], corpus[options.documents :]
    items = draw_items(options.items)
    leaks = leak(items[::LEAKED_STEP], filler)
    results = {}
    for name, rule in RULES[options.rules].items():
        reports = search_all(rule, items, leaks, clean)
        for threshold in THRESHOLDS.get(name, (0.0,)):
            label = f"{name}, {threshold:g}" if threshold else name
            results[label] = summarise(reports, items, threshold)
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    print_tables(results, [*leaks])
    return 0


def print_tables(results: Mapping[str, Mapping[str, Any]], form_names: Sequence[str]) -> None:
    """Prints the recall by rule and form for each benchmark, and the false alarms."""
    for benchmark in BENCHMARKS:
        lines = []
        for name, result in results.items():
            values = [result["recall"][benchmark].get(form) for form in form_names]
            lines.append([name, *("–" if v is None else f"{v:.2f}" for v in values)])
        print(f"\n{benchmark}\n")
        print(markdown_table(["rule", *form_names], lines))
    columns = ("right", "clean", "unseen")
    lines = [
        [name, *("–" if result[c] is None else f"{result[c]:.3f}" for c in columns)]
        for name, result in results.items()
    ]
    print()
    print(markdown_table(["rule", "right", "clean documents", "unseen items"], lines))


if __name__ == "__main__":
    raise SystemExit(main())

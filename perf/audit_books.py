"""Compares the audit of books with known shares: books of embedded text, trained on in part.

    python -m perf.audit_books [redraws, 50] [models, 10] [copies, 4] [folder to keep]

Twenty "books" of 2,560 words are made of the embedded documents, each of one kind of text
(Wikipedia, news, stories, law), and no document is in two of them. A tiny LLaMA is pretrained on
other documents. For each of the models it is then trained on some of the books' chapters (320 words
each), so many copies of each among other text: on all chapters of 5 positives, on none of 5
negatives, and on the share in SHARES of 10 suspects. A book's true share is that of its words that
was trained on, which is exact because chapters are equally long; the audit's snippets (160 tokens)
begin anywhere, and may span two chapters.

For each model, these are drawn: the books' roles, the chapters that are trained on, and the order
of training. For each redraw (redraws / models per model): which of the wholly trained books are
positives and which suspects, the same of the untrained ones, and all snippets. The models share the
pretrained one and the books.

It prints how often the 95% interval of the corrected rate covers the true share, and how often that
of the contamination rate itself does (Wilson's, of its snippets), with the mean error of both.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.base import AuditStage
from contamination.audits.run import run
from contamination.core.cli import compose_stage
from contamination.core.seeds import derive_seed
from contamination.data.readers.embedded import EmbeddedCorpus
from contamination.injection import inject
from contamination.injection.token_stream import Tokenizer
from contamination.training import train

KINDS = ("wikipedia", "common_crawl", "book", "law")
BOOKS, CHAPTERS, CHAPTER_WORDS = 20, 8, 320
SHARES = (0.0, 0.0, 0.0, 0.25, 0.25, 0.5, 0.5, 1.0, 1.0, 1.0)
"""The suspects' shares; half of the other books are positives, half negatives."""
BASE_TOKENS, OTHER_TOKENS = 1_000_000, 200_000
WIDTH = 256
RECIPE = (
    "wandb.mode=disabled", "training.batch_sequences=16", "training.micro_batch_sequences=16",
    "training.learning_rate=4e-3", "training.warmup_steps=10",
)  # fmt: skip
AUDIT = (
    "audit=books", "audit.unit=tokens", "audit.length=160", "audit.snippets=25",
    "method=[loss,zlib,min_k]", "method.min_k.k=[0.1,0.2,0.4]",
)  # fmt: skip


Books = Sequence[Sequence[str]]
"""Each book's chapters."""


@dataclass(frozen=True)
class TrainedModel:
    """A model, and the share of each book that it was trained on."""

    path: Path
    shares: Sequence[float]


def split_chapters() -> tuple[list[list[str]], list[str]]:
    """Each book's chapters, equally many books per kind; and the documents that are in no book."""
    books: list[list[str]] = []
    words_by_kind: dict[str, list[str]] = {kind: [] for kind in KINDS}
    books_left = dict.fromkeys(KINDS, BOOKS // len(KINDS))
    book_words, unused = CHAPTERS * CHAPTER_WORDS, []
    for document in EmbeddedCorpus(subsets=KINDS).documents():
        words = words_by_kind[document.subset]
        if not books_left[document.subset]:
            unused.append(document.text)
            continue
        words += document.text.split()
        if len(words) >= book_words:
            starts = range(0, book_words, CHAPTER_WORDS)
            books.append([" ".join(words[start : start + CHAPTER_WORDS]) for start in starts])
            words.clear()
            books_left[document.subset] -= 1
    return books, unused


def pretrain_model(folder: Path, texts: Sequence[str]) -> Path:
    """The tiny LLaMA before it sees any book."""
    (folder / "base.jsonl").write_text(_json_lines(texts))
    corpus = _pack_corpus(folder, folder / "base.jsonl", BASE_TOKENS)
    return train(f"runs={folder}/runs", f"corpus_folder={corpus}", *RECIPE).hf


def train_on_books(
    folder: Path, base: Path, texts: tuple[Books, Sequence[str]], copies: int, seed: int
) -> TrainedModel:
    """The pretrained model after some chapters of some of the books, among other texts."""
    books, other_texts = texts
    rng = np.random.default_rng(derive_seed(seed, "books"))
    wholes = (BOOKS - len(SHARES)) // 2
    shares = rng.permutation([*SHARES, *[1.0] * wholes, *[0.0] * wholes])
    seen = [
        book[chapter]
        for book, share in zip(books, shares, strict=True)
        for chapter in rng.permutation(CHAPTERS)[: round(share * CHAPTERS)]
    ]
    tokenizer = Tokenizer(str(base)).hf
    rest = [*_texts_until_tokens(tokenizer, other_texts, OTHER_TOKENS)]
    documents = [*seen * copies, *rest]
    file = folder / f"seen-{copies}-{seed}.jsonl"
    file.write_text(_json_lines([documents[index] for index in rng.permutation(len(documents))]))
    tokens = sum(map(len, tokenizer([*seen, *rest])["input_ids"][: len(seen)])) * copies
    tokens += OTHER_TOKENS
    corpus = _pack_corpus(folder, file, tokens // WIDTH * WIDTH, f"tokenizer.path={base}")
    words = (f"runs={folder}/runs", f"corpus_folder={corpus}", f"model.path={base}", f"seed={seed}")
    return TrainedModel(train(*words, *RECIPE).artifact.path, [float(share) for share in shares])


def _texts_until_tokens(tokenizer: Any, texts: Sequence[str], tokens: int) -> Iterator[str]:
    """The first texts that have at least so many tokens together."""
    for text in texts:
        if tokens <= 0:
            return
        tokens -= len(tokenizer(text)["input_ids"])
        yield text


def _pack_corpus(folder: Path, file: Path, tokens: int, *words: str) -> Path:
    """A corpus of the file's documents, in their order, without benchmarks."""
    return inject(
        f"runs={folder}/runs", "benchmark=[]", "corpus=local_jsonl", f"corpus.paths={file}",
        f"injection.budget_tokens={tokens}", f"injection.sequence_tokens={WIDTH}",
        "injection.part=all", *words,
    ).artifact.path  # fmt: skip


def _json_lines(texts: Sequence[str]) -> str:
    return "".join(f"{json.dumps({'text': text})}\n" for text in texts)


def redraw_audits(folder: Path, model: TrainedModel, books: Books, seed: int) -> pd.DataFrame:
    """The result of one audit: a row per suspect, with its true share."""
    rng = np.random.default_rng(derive_seed(seed, "roles"))
    shares, wholes = np.array(model.shares), (BOOKS - len(SHARES)) // 2
    roles = {
        role: rng.permutation(np.flatnonzero(shares == share))[:wholes].tolist()
        for role, share in (("positives", 1.0), ("negatives", 0.0))
    }
    validation = {*roles["positives"], *roles["negatives"]}
    roles["suspects"] = [index for index in range(BOOKS) if index not in validation]
    for role, indices in roles.items():
        rows = [{"title": f"Book {i}", "text": "\n\n".join(books[i])} for i in indices]
        (folder / f"{role}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    files = [f"audit.{role}={folder / role}.jsonl" for role in roles]
    words = [*AUDIT, *files, f"model.path={model.path}", f"runs={folder}/runs", f"seed={seed}"]
    artifact = run(compose_stage("audit", words, AuditStage))
    table = pd.read_parquet(artifact.path / "suspects.parquet")
    index = table["title"].str.removeprefix("Book ").astype(int)
    return table.assign(share=shares[index], redraw=seed, folder=str(artifact.path))


def summarise_coverage(table: pd.DataFrame) -> pd.DataFrame:
    """How often each interval covers the true share, and the mean errors, by share and over all."""
    z, n, rate = 1.96, table["snippets"], table["contamination_rate"]
    centre = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(rate * (1 - rate) / n + (z / (2 * n)) ** 2)
    measures = table.assign(
        estimated=table["corrected"].notna(),
        corrected_covers=table["share"].between(table["low"].fillna(0), table["high"].fillna(1)),
        rate_covers=table["share"].between(centre - half - 1e-9, centre + half + 1e-9),
        width=table["high"].fillna(1) - table["low"].fillna(0),
        corrected_error=(table["corrected"] - table["share"]).abs(),
        rate_error=(rate - table["share"]).abs(),
    )
    columns = [
        "estimated", "corrected_covers", "rate_covers", "width", "corrected", "contamination_rate",
        "corrected_error", "rate_error",
    ]  # fmt: skip
    by_share = measures.groupby("share")[columns].mean()
    return pd.concat([by_share, measures[columns].mean().rename("all").to_frame().T])


def main() -> None:
    """Prints the coverage over all redraws."""
    arguments, defaults = sys.argv[1:4], ("50", "10", "4")
    redraws, models, copies = map(int, [*arguments, *defaults[len(arguments) :]])
    with tempfile.TemporaryDirectory() as temporary:
        folder, start = Path(sys.argv[4] if len(sys.argv) > 4 else temporary), time.monotonic()
        folder.mkdir(exist_ok=True)
        books, rest = split_chapters()
        half = len(rest) // 2
        base = pretrain_model(folder, rest[:half])
        tables = []
        for number in range(models):
            model = train_on_books(folder, base, (books, rest[half:]), copies, number)
            seeds = range(number * redraws // models, (number + 1) * redraws // models)
            tables += [redraw_audits(folder, model, books, seed) for seed in seeds]
            print(f"model {number + 1} of {models}: {time.monotonic() - start:.0f} s", flush=True)
        print(Path(tables[0]["folder"].iloc[0], "audit.md").read_text())
        print(summarise_coverage(pd.concat(tables)).round(3).to_string())


if __name__ == "__main__":
    main()

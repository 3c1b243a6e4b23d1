"""Injection's speed against `tokenizers.encode_batch` alone, and its memory at growing sizes.

    python -m perf.injection [largest corpus in millions of tokens, default 60]

Speed: the peer is one `encode_batch` call over all documents, its result dropped. Ours tokenises
the same documents, lays out 1,500 copies, packs, and writes shards and sequences. One worker is one
thread; the ratio to the peer is taken at the same number of threads, in one run, medians of three.
Starting workers is left out of their time (it is some two seconds, whatever the corpus).

Memory: the whole stage in a process of its own, on the embedded corpus repeated as often as needed;
the peak resident size of that process.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import ClassVar

import numpy as np

from contamination.data.readers import Document
from contamination.data.readers.embedded import EmbeddedCorpus
from contamination.injection import packing, placement
from contamination.injection.token_stream import Tokenizer
from contamination.injection.tokenization import (
    SourceDocument,
    TokenizationSettings,
    tokenize,
    tokenize_shard,
)

ROOT = Path(__file__).resolve().parents[1]
TOKENIZER = ROOT / "tests/golden/target"
WIDTH, COPIES, EXAMPLE = 256, 1_500, 100
SPEED_CHARACTERS = 8_000_000


@dataclass(frozen=True)
class Repeated:
    """The embedded corpus again and again, each round under ids of its own."""

    name: str = "repeated"
    rounds: int = 40
    skipped: ClassVar[Counter[str]] = Counter()

    def fingerprint(self) -> str:
        """Of the corpus that is repeated."""
        return EmbeddedCorpus().fingerprint()

    def documents(self) -> Iterator[Document]:
        """Streams the documents of all rounds."""
        once = list(EmbeddedCorpus().documents())
        for number in range(self.rounds):
            for d in once:
                yield Document(f"{d.document_id}-{number}", d.subset, d.text)


def time_ours(documents: list[Document], tokenizer: Tokenizer, tokens: int) -> float:
    """Seconds to tokenise in this process, lay out, pack and write."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        work = TokenizationSettings(Path(folder) / "tokens", TOKENIZER)
        stream = tokenize(map(SourceDocument, documents), work, tokens, 1, 2_000_000).stream
        clean = tokens // WIDTH * WIDTH - COPIES * EXAMPLE % WIDTH
        rng = np.random.default_rng(0)
        segments = [placement.Segment(0, c, 0, EXAMPLE, float(rng.random())) for c in range(COPIES)]
        boundary = placement.boundary_finder(stream, "word", tokenizer)
        placed = placement.place_within_window(
            segments, (0, clean + COPIES * EXAMPLE), WIDTH, boundary, split=False
        )
        segment = np.full(EXAMPLE, 7, dtype=np.int32)
        packing.write_sequences(Path(folder) / "s.arrow", stream, clean, placed, [segment], WIDTH)
        return time.perf_counter() - started


def time_peer(documents: list[Document], tokenizer: Tokenizer) -> tuple[float, int]:
    """Seconds of `encode_batch` alone, and the tokens it makes."""
    texts = [d.text for d in documents]
    started = time.perf_counter()
    encoded = tokenizer.hf.backend_tokenizer.encode_batch(texts)
    return time.perf_counter() - started, sum(len(e) for e in encoded)


def time_with_workers(documents: list[Document], number: int) -> float:
    """Seconds of `number` warm workers over the documents' shards."""
    reads = [SourceDocument(document) for document in documents]
    parts = [reads[i::8] for i in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        work = TokenizationSettings(Path(folder), TOKENIZER)
        with ProcessPoolExecutor(number, get_context("spawn")) as pool:
            list(pool.map(tokenize_shard, [work] * number, [100 + i for i in range(number)],
                          [reads[:20]] * number))  # fmt: skip
            started = time.perf_counter()
            list(pool.map(tokenize_shard, [work] * 8, range(8), parts))
            return time.perf_counter() - started


def speed() -> None:
    """Prints the table of this process's threads: encode_batch alone and the whole way."""
    tokenizer = Tokenizer(str(TOKENIZER))
    documents, characters = [], 0
    for document in EmbeddedCorpus().documents():
        documents.append(document)
        characters += len(document.text)
        if characters > SPEED_CHARACTERS:
            break
    tokens = time_peer(documents, tokenizer)[1]
    pairs = [
        (time_peer(documents, tokenizer)[0], time_ours(documents, tokenizer, tokens))
        for _ in range(3)
    ]
    alone, mine = (statistics.median(column) for column in zip(*pairs, strict=True))
    threads = os.environ["RAYON_NUM_THREADS"]
    _print_line(f"{threads} thread(s)", "encode_batch alone", tokens / alone, 1)
    _print_line(f"{threads} thread(s)", "tokenise, splice, pack", tokens / mine, alone / mine)
    if threads == "1":
        one, two = (
            statistics.median(time_with_workers(documents, n) for _ in range(3)) for n in (1, 2)
        )
        _print_line("1 worker", "tokenise", tokens / one, 1)
        _print_line("2 workers", "tokenise", tokens / two, one / two)


def _print_line(who: str, what: str, rate: float, ratio: float) -> None:
    print(f"{who:12} {what:22} {rate:>12,.0f} tokens/s {ratio:>6.2f}")


def memory(millions: float) -> None:
    """Makes a corpus of so many tokens and prints this process's peak."""
    import resource

    from contamination.injection.config import InjectionConfig, InjectionStage, TokenizerConfig
    from contamination.injection.run import run

    with tempfile.TemporaryDirectory() as runs:
        stage = InjectionStage(
            runs=runs,
            corpus={"_target_": "perf.injection.Repeated"},
            tokenizer=TokenizerConfig(path=str(TOKENIZER)),
            injection=InjectionConfig(budget_tokens=int(millions * 1e6), part="all"),
        )
        started = time.perf_counter()
        run(stage)
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"{millions:>5.0f}M tokens {peak:>9,.0f} MiB {millions * 1e6 / seconds:>12,.0f} tokens/s")


def main() -> None:
    """Each measurement in a process of its own."""
    largest = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    for threads in ("1", "2"):
        _run_in_child("speed()", RAYON_NUM_THREADS=threads)
    print("\n   corpus      peak        whole stage (with its proof)")
    for millions in (1, 6, largest):
        _run_in_child(f"memory({millions})")


def _run_in_child(call: str, **environment: str) -> None:
    code = f"from perf.injection import *; {call}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stderr=subprocess.DEVNULL,
                   env={**os.environ, **environment})  # fmt: skip


if __name__ == "__main__":
    main()

"""Injection's tasks against datatrove's own tokenizer step, and a plan for 1.2T tokens.

    python -m perf.injection_tasks [processes, default 2] [millions of characters, default 40]

All read the same JSONL files with the same tokenizer (a byte-level BPE of 32,000 entries, trained
here), a file at a time, in as many warm processes of one thread, in turns: medians of five. Times
are the processor's, so that a busy machine changes them little:

- datatrove: its `JsonlReader` and its `DocumentTokenizer` (no shuffling), as one pipeline
- ours: the task of `tokenize_by_file`, without and with decontamination against 800 examples

The other rates are of one process. The plan divides 1.2T tokens (RedPajama) by them.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contamination.core.hashing import file_digest
from contamination.core.task_runner import TaskRunner
from contamination.core.worker_pool import worker_pool
from contamination.data.readers.embedded import EmbeddedCorpus, EmbeddedRows
from contamination.data.readers.files import FilesCorpus
from contamination.data.readers.rows import Tally
from contamination.injection import packing, placement
from contamination.injection.config import TokenizerConfig
from contamination.injection.token_stream import Tokenizer, TokenStream, train_tokenizer
from contamination.injection.tokenization import TokenizationSettings, shard_paths
from contamination.injection.tokenize_by_file import (
    DocumentOrder,
    FileTokenizationTask,
    SubsetFiles,
)
from contamination.injection.verification import CorpusCheck

TOKENS, WIDTH, COPIES = 1_200_000_000_000, 2048, 1_500
WORKERS = (64, 256, 1_000)
TURNS = 5
SUBSETS = ("book", "common_crawl", "wikipedia")
"""The files are written as if they were of these."""


def write_corpus(folder: Path, characters: int, files: int) -> int:
    """The embedded corpus again and again as JSONL; gives the characters of all files."""
    once = [document.text for document in EmbeddedCorpus().documents()]
    written = 0
    for number in range(files):
        path = folder / SUBSETS[number % len(SUBSETS)] / f"{number:03d}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = 0
        with path.open("w") as stream:
            for text in once[number::files] * (1 + characters // sum(map(len, once))):
                if size < characters // files:
                    stream.write(json.dumps({"text": text}) + "\n")
                    size += len(text)
        written += size
    return written


def tokenise_by_datatrove(files: list[Path], tokenizer: Path, out: Path, piece: int) -> None:
    """Tokenises a file as a rank of datatrove's pipeline does."""
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer
    from loguru import logger

    logger.disable("datatrove")
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):  # its bars
        reader = JsonlReader(str(files[piece].parent), glob_pattern=files[piece].name)
        step = DocumentTokenizer(
            str(out / str(piece)), str(tokenizer / "tokenizer.json"), shuffle_documents=False
        )
        step.tokenizer = load_tokenizer_once(
            step.tokenizer_name_or_path
        )  # which it would load for each file
        for _ in step(reader(None, 0, 1), 0, 1) or ():
            pass


@lru_cache(maxsize=1)
def load_tokenizer_once(path: str) -> Any:
    """Datatrove's tokenizer, once a process, as ours is."""
    from datatrove.utils.tokenization import load_tokenizer

    return load_tokenizer(path)


def clock_piece(way: Callable[[int], object], piece: int) -> float:
    """Seconds of this process's own time that a piece takes."""
    started = time.process_time()
    way(piece)
    return time.process_time() - started


def result_of_file(task: FileTokenizationTask, number: int) -> dict[str, Any]:
    """What a file's task gives, its files hashed as a worker does."""
    task.work.folder.mkdir(parents=True, exist_ok=True)
    (result,) = TaskRunner(task.work.folder).run(f"file-{number}", replace(task, numbers=[number]))
    return result


def examples_by_benchmark() -> dict[str, tuple[str, ...]]:
    """800 texts to hold documents against."""
    rows = EmbeddedRows("BoolQ/combined.jsonl", pool_field="passage").rows(Tally("skip", ""))
    texts = (f"{row.value['passage']}\n{row.value['question']}" for row in rows)
    return {str(number): (text,) for number, text in zip(range(800), texts, strict=False)}


def time_tokenisation(
    folder: Path, processes: int, characters: int
) -> tuple[FileTokenizationTask, dict[str, float]]:
    """The rates of both, in tokens/s of one process, and what ours made."""
    print(f"{processes} processes", flush=True)
    total = write_corpus(folder / "corpus", characters, files := 4 * processes)
    tokenizer = folder / "tokenizer"
    config = TokenizerConfig(vocab_size=32_000, train_characters=20_000_000)
    train_tokenizer(config, EmbeddedCorpus().documents(), tokenizer)
    source = FilesCorpus(name="corpus", paths=str(folder / "corpus"), subset="@folder",
                         weights=dict.fromkeys(SUBSETS, 1.0))  # fmt: skip
    paths = [shard.path for shard in source.shards]
    numbers = range(files)
    seconds: dict[str, list[float]] = {"datatrove": [], "ours": [], "ours, decontaminated": []}
    wanted = {"ours": {}, "ours, decontaminated": examples_by_benchmark()}
    with ExitStack() as stack:
        pools = {name: stack.enter_context(worker_pool(processes)) for name in seconds}
        for turn in range(TURNS + 1):  # the first warms up
            for name, times in seconds.items():
                out = folder / f"{name}-{turn}"
                make: Callable[[int], object]
                if name == "datatrove":
                    make = partial(tokenise_by_datatrove, paths, tokenizer, out)
                else:
                    work = TokenizationSettings(out / "files", tokenizer, wanted[name])
                    task = FileTokenizationTask(
                        work, source, (0.0, 1.0), 10**15, 2_000_000, numbers
                    )
                    make = partial(result_of_file, task)
                times.append(sum(pools[name].map(partial(clock_piece, make), range(files))))
    for name, times in seconds.items():
        own = zip(seconds["datatrove"][1:], times[1:], strict=True)
        print(f"{name:26} x datatrove, turn by turn:", *(f"{a / b:.2f}" for a, b in own))
    made = replace(task, work=replace(work, folder=folder / f"ours-{TURNS}" / "files"))
    tokens = sum(result_of_file(made, number)["tokens"] for number in numbers)
    print(f"{total:,} characters, {tokens:,} tokens, {files} files")
    rates = {n: tokens / statistics.median(times[1:]) for n, times in seconds.items()}
    return made, rates


def time_other_steps(folder: Path, task: FileTokenizationTask) -> Iterator[tuple[str, float, str]]:
    """The other rates of one process: what, how much a second, of what."""
    results = {number: result_of_file(task, number) for number in task.numbers}
    order = DocumentOrder(task.subsets, task.work.folder, folder / "of")
    order.extend_order(results, sum(result["tokens"] for result in results.values()))
    yield "order of the documents", order_rate(folder / "order"), "tokens"
    tokenizer = Tokenizer(str(task.work.tokenizer))
    ids = [np.array(tokenizer.encode("a copy that is put in here " * 12), np.int32)]
    inserted = COPIES * len(ids[0])
    clean = (order.tokens + inserted) // WIDTH * WIDTH - inserted
    stream = TokenStream(order.shards, clean)
    rng = np.random.default_rng(0)
    segments = [placement.Segment(0, c, 0, len(ids[0]), float(rng.random())) for c in range(COPIES)]
    boundary = placement.boundary_finder(stream, "word", tokenizer)
    window = (0, clean + inserted)
    placed = placement.place_within_window(segments, window, WIDTH, boundary, split=False)
    path = folder / "part.arrow"
    write = partial(packing.write_sequences, path, stream, clean, placed, ids, WIDTH)
    yield "pack", (clean + inserted) / measure_seconds(write), "tokens"
    yield (
        "hash of the clean stream",
        clean / measure_seconds(lambda: packing.prefix_hashes(stream)),
        "tokens",
    )
    check = make_check(tokenizer)
    yield (
        "verify",
        (clean + inserted) / measure_seconds(lambda: check.read_part(packing.read_blocks(path))),
        "tokens",
    )
    seconds = measure_seconds(lambda: file_digest(path, use_cache=False))
    yield "SHA-256 of a file", path.stat().st_size / seconds, "bytes"


def order_rate(folder: Path) -> float:
    """Tokens a second of the merge, which reads counts alone: 1.2M documents of 1,050 tokens."""
    folder.mkdir()
    results: dict[int, dict[str, Any]] = {}
    rng, size = np.random.default_rng(0), 200_000
    for number in range(2 * len(SUBSETS)):
        lengths = rng.integers(100, 2_000, size)
        ends, subset = np.cumsum(lengths), SUBSETS[number % len(SUBSETS)]
        columns = {"subset": subset, "start": ends - lengths, "kept": True,
                   "before": 4 * (ends - lengths)}  # fmt: skip
        pd.DataFrame(columns).to_parquet(shard_paths(folder, number)[2])
        results[number] = {"tokens": int(ends[-1]), "matches": [], "skipped": {}, "stopped": "",
                           "characters": {subset: 4 * int(ends[-1])}}  # fmt: skip
    subsets = [SubsetFiles(n, name, 1.0, [n, n + len(SUBSETS)]) for n, name in enumerate(SUBSETS)]
    order = DocumentOrder(subsets, folder, folder / "of")
    tokens = sum(result["tokens"] for result in results.values())
    return float(tokens / clock_piece(lambda _: order.extend_order(results, tokens), 0))


def make_check(tokenizer: Tokenizer) -> CorpusCheck:
    """What a proof looks for: 800 texts."""
    texts = [text for (text, *_) in examples_by_benchmark().values()]
    examples = pd.DataFrame({"example_id": map(str, range(len(texts))), "text": texts,
                             "member": False, "occurrences": 0})  # fmt: skip
    columns = ("example_id", "copy", "sequence", "reworded", "token_start", "token_end",
               "copy_start")  # fmt: skip
    return CorpusCheck.prepare(examples, pd.DataFrame(columns=columns), tokenizer, (0, 1 << 60))


def measure_seconds(way: Callable[[], object]) -> float:
    """The least of three times."""
    return min(clock_piece(lambda _: way(), 0) for _ in range(3))


def print_plan(rates: dict[str, float], bytes_a_token: dict[str, float]) -> None:
    """Prints what 1.2T tokens take."""
    print(f"\n{TOKENS:,} tokens in hours (two copies of the tokens are on disk until it is done)")
    print(f"{'':34}" + "".join(f"{f'{n:,} workers':>15}" for n in WORKERS))
    for name in ("ours, decontaminated", "pack", "verify"):
        hours = [TOKENS / rates[name] / n / 3600 for n in WORKERS]
        print(f"{name:34}" + "".join(f"{h:>15,.1f}" for h in hours))
    hashed = 4 * rates["SHA-256 of a file"]  # four threads
    for name, seconds in (
        ("hash of the clean stream", TOKENS / rates["hash of the clean stream"]),
        ("order of the documents", TOKENS / rates["order of the documents"]),
        ("SHA-256 of the input", TOKENS * bytes_a_token["input"] / hashed),
        ("SHA-256 of the corpus", TOKENS * 4 / hashed),
    ):
        print(f"{name:34}{seconds / 3600:>15,.1f} by one process")
    for name, size in bytes_a_token.items():
        print(f"{name + ', TB':34}{TOKENS * size / 1e12:>15,.2f}")


def main() -> None:
    """Measures, then plan."""
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    millions = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        task, rates = time_tokenisation(folder, processes, millions * 1_000_000)
        for name, rate in rates.items():
            print(f"{name:26} {rate:>14,.0f} tokens/s {rate / rates['datatrove']:>6.2f}")
        for name, rate, unit in time_other_steps(folder, task):
            print(f"{name:26} {rate:>14,.0f} {unit}/s", flush=True)
            rates[name] = rate
        tokens = sum(result_of_file(task, number)["tokens"] for number in task.numbers)
        sizes = {
            "input": sum(f.stat().st_size for f in folder.glob("corpus/*/*")),
            "tokens and tables": sum(f.stat().st_size for f in task.work.folder.glob("*")),
            "packed corpus": 4 * tokens,
        }
        print_plan(rates, {name: size / tokens for name, size in sizes.items()})


if __name__ == "__main__":
    main()

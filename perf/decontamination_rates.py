"""The speed of `contamination decontaminate` against datatrove's own n-gram decontamination.

Used by `python -m perf.decontamination --rates 60` (with datatrove's readers and word tokenizer:
pip install datatrove orjson spacy 'xxhash<4'). Both read the same JSONL files in one process of one
thread, look for the 13-grams of the same items, and write the documents without any, in turns:

- datatrove: `JsonlReader`, `NGramsDecontFilter` and `JsonlWriter`, as one pipeline. Its index is
  made by its own normalisation and hashes, since its indexer needs lighteval.
- ours: the whole command, from the hashes of the input to the report.

The corpus is the embedded one again and again. Each time the sentences of a document are shuffled
and every 20th word gets a number, so no document or n-gram of it is repeated and one word in twenty
is new. Some documents get an item. Times are the processor's, so that a busy machine changes them
little.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr
from functools import partial
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from contamination.core.cli import compose_stage
from contamination.core.report.tables import markdown_table
from contamination.data.readers.embedded import EmbeddedCorpus
from contamination.injection.config import TokenizerConfig
from contamination.injection.decontamination.config import DecontaminateStage
from contamination.injection.decontamination.run import decontaminate
from contamination.injection.token_stream import Tokenizer, train_tokenizer

THEIRS, OURS, N = "datatrove", "ngram_13", 13
"""The rows: datatrove's filter, and the matcher that is timed, by its name in conf/matcher."""
FILE_CHARACTERS = 20_000_000
NEW_WORD_STEP = 20
ITEM_STEP = 500
"""Every so many documents, one gets an item."""
SENTENCE = re.compile(r"(?<=[.!?])\s+")
VOCABULARY = 32_000


def write_corpus(folder: Path, items: Sequence[str], tokens: int) -> tuple[int, int]:
    """Writes JSONL files; returns the tokens and the characters of all documents.

    Tokens are those of a byte-level BPE of 32,000 entries, counted for the embedded corpus and
    taken to be as many per character in its variants.
    """
    once = [document.text for document in EmbeddedCorpus().documents()]
    train_tokenizer(
        TokenizerConfig(vocab_size=VOCABULARY, train_characters=FILE_CHARACTERS),
        EmbeddedCorpus().documents(),
        folder / "tokenizer",
    )
    tokenizer = Tokenizer(str(folder / "tokenizer"))
    sample = once[::10]
    rate = sum(map(len, tokenizer.encode_documents(sample))) / sum(map(len, sample))
    wanted, written, number, in_file = tokens / rate, 0, 0, FILE_CHARACTERS
    rng, stream = random.Random(0), None
    while written < wanted:
        for text in once:
            if written >= wanted:
                break
            if in_file >= FILE_CHARACTERS:
                if stream is not None:
                    stream.close()
                path = folder / "corpus" / f"{written // FILE_CHARACTERS:03d}.jsonl"
                path.parent.mkdir(exist_ok=True)
                stream, in_file = path.open("w"), 0
            assert stream is not None
            varied = _vary(text, rng)
            if number % ITEM_STEP == 0:
                varied = f"{varied}\n\n{items[number // ITEM_STEP % len(items)]}"
            stream.write(json.dumps({"text": varied, "id": str(number)}) + "\n")
            written, in_file, number = written + len(varied), in_file + len(varied), number + 1
    if stream is not None:
        stream.close()
    return round(written * rate), written


def _vary(text: str, rng: random.Random) -> str:
    sentences = SENTENCE.split(text)
    rng.shuffle(sentences)
    words = " ".join(sentences).split(" ")
    for place in range(rng.randrange(NEW_WORD_STEP), len(words), NEW_WORD_STEP):
        words[place] += str(rng.randrange(1_000_000))
    return " ".join(words)


def clean_with_datatrove(corpus: Path, index: Path, out: Path) -> float:
    """Runs datatrove's pipeline; returns the processor's seconds."""
    from datatrove.pipeline.decont import NGramsDecontConfig, NGramsDecontFilter
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter
    from loguru import logger

    logger.remove()
    start = time.process_time()
    with redirect_stderr(StringIO()):
        steps = [
            JsonlReader(str(corpus)),
            NGramsDecontFilter(str(index), NGramsDecontConfig(n_grams=N)),
            JsonlWriter(str(out), compression=None),
        ]
        data: Any = None
        for step in steps:
            data = step(data, 0, 1)
        for _ in data or ():
            pass
    return time.process_time() - start


def write_datatrove_index(items: Sequence[str], folder: Path) -> float:
    """Writes the hashes of the items' n-grams as datatrove's filter reads them; returns 0."""
    from datatrove.pipeline.decont import NGramsDecontConfig, NGramsDecontFilter
    from datatrove.utils.text import ngrams, simplify_text

    config = NGramsDecontConfig(n_grams=N)
    filter_ = NGramsDecontFilter(str(folder), config)
    hashes = set()
    for item in items:
        words = filter_.tokenizer.word_tokenize(simplify_text(item, config.norm_config))
        hashes |= {filter_.hash_func(" ".join(gram)) for gram in ngrams(words, N)}
    folder.mkdir(exist_ok=True)
    array = np.array(sorted(hashes), dtype=config.hash_config.np_descr)
    array.tofile(folder / "items.index.hashes")
    return 0.0


def clean_with_ours(corpus: Path, items: Path, out: Path) -> float:
    """Runs the command; returns the processor's seconds."""
    start = time.process_time()
    words = [f"paths={corpus}", f"benchmarks=[{items}]", f"runs={out}", f"matcher={OURS}"]
    decontaminate(compose_stage("decontaminate", words, DecontaminateStage))
    return time.process_time() - start


def measure_rates(items: Sequence[str], tokens: int, folder: Path | None) -> int:
    """Prints the rates and which documents each left out; returns 0."""
    with tempfile.TemporaryDirectory() as temporary:
        place = folder or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        n_tokens, characters = write_corpus(place, items, tokens)
        items_file = place / "items.jsonl"
        items_file.write_text("".join(json.dumps({"text": item}) + "\n" for item in items))
        _in_process(partial(write_datatrove_index, items, place / "index"))
        theirs = _in_process(
            partial(clean_with_datatrove, place / "corpus", place / "index", place / "theirs")
        )
        ours = _in_process(partial(clean_with_ours, place / "corpus", items_file, place / "ours"))
        kept_by_us = _ids(place.glob("ours/decontaminated/*/documents/*.jsonl"))
        kept_by_them = _ids(place.glob("theirs/*.jsonl"))
        all_ids = _ids(place.glob("corpus/*.jsonl"))
    print(f"{n_tokens:,} tokens, {characters:,} characters, {len(all_ids):,} documents")
    lost = [all_ids - kept for kept in (kept_by_them, kept_by_us)]
    lines = [
        [name, f"{seconds:.0f}", f"{n_tokens / seconds:,.0f}", f"{len(ids):,}"]
        for name, seconds, ids in zip((THEIRS, OURS), (theirs, ours), lost, strict=True)
    ]
    header = ["matcher", "CPU seconds", "tokens per second", "documents left out"]
    print(markdown_table(header, lines))
    print(f"ratio {theirs / ours:.2f}; left out by both: {len(lost[0] & lost[1]):,}")
    return 0


def _in_process(work: Callable[[], float]) -> float:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work).result()


def _ids(paths: Any) -> set[str]:
    return {
        json.loads(line)["id"]
        for path in paths
        for line in path.read_text(encoding="utf-8").splitlines()
    }

"""A corpus of small files, and the stage that reads it; for the tests of tasks."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contamination.data.config import BenchmarkConfig
from contamination.data.readers import Document
from contamination.data.readers.files import FilesCorpus
from contamination.data.readers.rows import Shard
from contamination.injection.config import InjectionConfig, InjectionStage, TokenizerConfig

SECONDS = 0.1
WEIGHTS = {"a": 3, "b": 1.5, "c": 0.2}
WORDS = ("the", "of", "a", "bridge", "river", "stone", "wind", "letter", "garden", "seven", "cold")


class SlowFiles(FilesCorpus):
    """Files that take long to read on their own, so that a task can be caught at work."""

    def documents_in(self, shard: Shard) -> Iterator[Document]:
        for document in super().documents_in(shard):
            time.sleep(SECONDS)
            yield document


def text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words)) + f" {rng.random()}."


def write_files(folder: Path) -> Path:
    """Three subsets of two or three files, with rows that can't be used here and there."""
    rng = random.Random(0)
    for name in ("a/0.jsonl", "a/1.jsonl", "a/2.jsonl", "b/0.jsonl", "b/1.jsonl", "c/0.jsonl"):
        path = folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = []
        for number in range(25):
            row = {"text": text(rng, rng.randrange(5, 60)), "source": rng.choice("abc")}
            rows += ["no JSON"] * (number % 7 == 3) + [json.dumps(row)]
            rows += [json.dumps({**row, "text": " "})] * (number % 6 == 5)
            if number % 4 == 2:  # with one of the benchmark's
                rows.append(json.dumps({**row, "text": f"He said {question(number)}"}))
        path.write_text("".join(row + "\n" for row in rows))
    questions = [json.dumps({"text": question(number)}) + "\n" for number in range(24)]
    (folder / "questions.jsonl").write_text("".join(questions))
    return folder


def question(number: int) -> str:
    rng = random.Random(f"question {number}")
    return f"what {number} " + " ".join(
        f"{rng.choice(WORDS)}{rng.randrange(99)}" for _ in range(12)
    )


def made_stage(
    folder: Path, runs: Path, corpus: dict[str, Any] | None = None, **fields: Any
) -> InjectionStage:
    """A stage on these files, but for what is given; 6 + 6 examples, 1 or 3 times."""
    target = "contamination.data.readers.files.FilesCorpus"
    given = {"name": "files", "_target_": target, "paths": str(folder / "files")}
    rows = {
        "_target_": "contamination.data.readers.files.FileRows",
        "path": str(folder / "questions.jsonl"),
    }
    source = {"rows": rows, "fields": {"text": "{text}"}}
    small = {"members": 6, "nonmembers": 6, "held_out": 0, "budget_tokens": 6_000, "part": "all"}
    return InjectionStage(
        runs=str(runs),
        corpus={**given, "subset": "@folder", "on_error": "skip", **(corpus or {})},
        benchmark={"mine": BenchmarkConfig(template="{text}", sources={"embedded": source})},
        occurrences={"_target_": "contamination.injection.occurrences.Ladder", "rungs": [1, 3]},
        tokenizer=TokenizerConfig(path="tests/golden/target"),
        injection=InjectionConfig(**{**small, "sequence_tokens": 64, **fields}),
    )

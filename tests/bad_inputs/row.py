"""A row of the table: a command, what is bad about it, and the words that its message must hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Content = bytes | str | Callable[[Path], object]


@dataclass(frozen=True)
class Row:
    """One bad input.

    Attributes:
        command: the words after `python -m`, such as `detection online`.
        given: its arguments; those of `GOOD` that they do not replace come before them.
        words: what the message must hold: the field, the value, perhaps a word of the remedy.
        files: made in the working directory before: a name's content, or a function of its path.
        place: what is done to the disk before: see `places.py`.
        late: whether it shows in the midst of work, such as in a large file: lines of the work may
            then come before the message, and an unfinished folder may stay.
        slow: whether it is left to the slow tests.
    """

    command: str
    given: tuple[str, ...]
    words: tuple[str, ...]
    files: Mapping[str, Content] = field(default_factory=dict)
    place: str = ""
    late: bool = False
    slow: bool = False

    @property
    def name(self) -> str:
        """The row's id in the test's."""
        return " ".join([self.command, *self.given, *self.files, self.place]).strip()[:120]

    @property
    def arguments(self) -> list[str]:
        """The command's own good arguments with the row's in their place."""
        mine = {word.lstrip("+~").partition("=")[0] for word in self.given}
        if any(word in ("verify", "show", "status", "report", "adopt") for word in self.given[:1]):
            return list(self.given)
        good = GOOD.get(self.command, [])
        flags = [word for word in self.given if word.startswith("-")]
        kept = [word for word in good if word.partition("=")[0] not in mine]
        return [*flags, *kept, *(word for word in self.given if word not in flags)]


def bad(
    command: str,
    given: str | Sequence[str],
    *words: str,
    files: Mapping[str, Content] | None = None,
    **about: Any,
) -> Row:
    """A row; a text of arguments is divided at blanks. Without words they are its last argument."""
    parts = tuple(given.split(" ")) if isinstance(given, str) else tuple(given)
    if not words:
        name, _, value = parts[-1].lstrip("+").partition("=")
        words = (name, value)
    return Row(command, parts, words, files or {}, **about)


def values(command: str, table: Mapping[str, str], *more: str) -> list[Row]:
    """A row a value of each field; one field's first in six is no slow test."""
    return [
        bad(
            command, f"{name}={value}", *_words(name, value, more), slow=number > 0 or place % 6 > 0
        )
        for place, (name, some) in enumerate(table.items())
        for number, value in enumerate(some.split(" "))
    ]


def _words(name: str, value: str, more: tuple[str, ...]) -> tuple[str, ...]:
    """The field as the message must call it, and the value, or a list's last one."""
    last = re.sub(r"[\[\]]", "", value).split(",")[-1]
    return (*(more or (name,)), {"null": "None"}.get(last, last))


M = "../../material"
SCORED = [f"examples.path={M}/texts.jsonl", f"model.path={M}/hf"]
PLAIN = ["benchmark=[]", "corpus=local_jsonl", f"corpus.paths={M}/documents.jsonl"]
TINY = [
    *PLAIN, f"tokenizer.path={M}/hf", "injection.budget_tokens=2048", "injection.sequence_tokens=64",
    "injection.base_fraction=0.1",
]  # fmt: skip
OWN = [
    *TINY[1:], "benchmark=[user]", "injection.benchmark_source=file", "injection.members=4",
    "injection.nonmembers=4", "injection.held_out=2", f"benchmark.user.sources.file.rows.path={M}/user.jsonl",
    "occurrences=fixed",
]  # fmt: skip
GOOD = {
    "launch": ["experiment=quickstart"],
    "injection": OWN,
    "training": [
        f"corpus_folder={M}/corpus", "wandb.mode=disabled", "training.batch_sequences=4",
        "training.micro_batch_sequences=4", "training.warmup_steps=2",
        "model.architecture.hidden_size=16", "model.architecture.intermediate_size=16",
    ],
    "injection export": [f"corpus_folder={M}/corpus", "format=megatron"],
    "training memory": [],
    "training which-step": [f"corpus_folder={M}/corpus", "batch=2", "example_id=user-0"],
    "detection": [*SCORED, "method=[loss]"],
    "detection probe": [],
    "detection build": [
        "source=jsonl", "source.paths=d.jsonl", "build.members_before=2016-01-01",
        "build.nonmembers_from=2019-01-01", "build.lengths=[8]",
    ],
    "detection select": [f"examples.path={M}/texts.jsonl", f"corpus_folder={M}/corpus"],
    "detection codec": SCORED,
    "detection online": [*SCORED, "method=[loss]"],
    "detection view": [*SCORED, "method=[loss]"],
    "detection accuracy": [f"examples.path={M}/corpus", f"model.path={M}/hf", "benchmark=[user]"],
    "detection extraction": [f"examples.path={M}/corpus", f"model.path={M}/hf", "benchmark=[user]"],
    "audits": [
        "audit=books", *(f"{role}={M}/{role}.jsonl" for role in ("positives", "negatives", "suspects")),
        "length=8", "snippets=4", "method=[loss]", f"model.path={M}/hf",
    ],
    "detection thresholds": [f"scores={M}/scores", f"examples={M}/texts.jsonl"],
    "analysis": [
        f"cells=[{{corpus: {M}/corpus, model: {M}/model, clean: {M}/clean, contaminated: {M}/contaminated}}]"
    ],
    "analysis wandb": [f"local={M}/wandb"],
}  # fmt: skip

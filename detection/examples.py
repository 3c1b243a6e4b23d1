"""The texts to score: a corpus's examples, or a user's JSONL."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from core.artifacts import is_complete
from core.errors import DataError
from core.estimates import ALL
from detection.texts import Text, Texts


def open_examples(path: str) -> Texts:
    """The examples of a corpus folder or of a JSONL file, in its order.

    Raises:
        DataError: no such file, a line that is no such row, an id twice, a benchmark
            called "all", or no row at all.
        ArtifactError: the corpus folder is unfinished.
    """
    source = Path(path).expanduser()
    if source.is_dir():
        rows = _corpus_rows(source)
    elif source.is_file():
        rows = _jsonl_rows(source)
    else:
        raise DataError(
            f"examples.path is {path!r}: there is no such file or folder. Give a corpus folder, or "
            "a JSONL file with a `text` in each line."
        )
    return _checked(path, Texts.of(rows))


def examples_digest(examples: Sequence[Text]) -> str:
    """A hash of the ids and texts in any order: not of membership, so cells share clean scores."""
    texts = Texts.of(examples)
    ordered = texts.take(texts.order("sha256", "example_id"))
    return lines_digest(f"{e.sha256} {e.example_id}" for e in ordered)


def texts_digest(texts: Sequence[Text]) -> str:
    """A hash of the texts alone, in the given order."""
    return lines_digest(t.sha256 for t in texts)


def lines_digest(lines: Iterable[str]) -> str:
    """A hash of the lines, with a newline between them."""
    found = hashlib.sha256()
    for number, line in enumerate(lines):
        found.update((f"\n{line}" if number else line).encode())
    return found.hexdigest()


def make_text(example_id: str, text: str, label: bool | None, benchmark: str) -> Text:
    """An example with its text's hash."""
    return Text(example_id, text, hashlib.sha256(text.encode()).hexdigest(), label, benchmark)


def _checked(path: str, examples: Texts) -> Texts:
    if not examples:
        raise DataError(f"examples.path is {path!r}: it has no example. Give at least one text.")
    ids = examples.take(examples.order("example_id")).column("example_id").combine_chunks()
    twice = ids[1:].filter(pc.equal(ids[1:], ids[:-1]))
    if len(twice):
        raise DataError(
            f"examples.path is {path!r}: the id {twice[0].as_py()!r} is there twice. Give "
            "each row its own `id`, or none (the line's number, from 0, is then its id)."
        )
    named = pc.index(examples.column("benchmark"), ALL).as_py()
    if named >= 0:
        raise DataError(
            f"examples.path is {path!r}: {examples[named].example_id!r} is of a benchmark called "
            f"{ALL!r}, which names the mean over benchmarks. Give it another name."
        )
    return examples


def _corpus_rows(folder: Path) -> Iterator[Text]:
    if not is_complete(folder) and not (folder / "examples.parquet").is_file():
        raise DataError(
            f"examples.path is {str(folder)!r}: the folder is no finished corpus. Give the folder "
            "that the injection stage wrote, or a JSONL file."
        )
    import injection

    for row in injection.open_corpus(folder).examples.itertuples():
        unexposed = row.member and row.occurrences == 0  # drawn as a member, inserted no time
        label = None if unexposed else bool(row.member)
        yield make_text(str(row.example_id), row.text, label, row.benchmark)


def _jsonl_rows(path: Path) -> Iterator[Text]:
    """Each line that is not blank; the number counts every line, from 0."""
    with path.open("rb") as file:
        lines = (line for piece in file for line in piece.splitlines())
        for number, line in enumerate(lines):
            if not line.strip():
                continue
            row = _row(path, number, line)
            label = _label(path, number, row.get("label"))
            benchmark = str(row.get("benchmark") or "")
            yield make_text(str(row.get("id", number)), row["text"], label, benchmark)


def _label(path: Path, number: int, value: Any) -> bool | None:
    if value is None or (isinstance(value, bool | int | float) and value in (0, 1)):
        return None if value is None else bool(value)
    raise DataError(
        f"{path}, line {number} (from 0): label is {value!r}. Give 1 or true for a member, 0 or "
        "false for a non-member, or leave it out."
    )


def _row(path: Path, number: int, line: bytes) -> Mapping[str, Any]:
    try:
        row: dict[str, Any] = json.loads(line)
        row["text"].encode()  # JSON may spell half of a surrogate pair, which is no text
        for key in ("id", "benchmark"):
            str(row.get(key)).encode()
        return row
    except (ValueError, RecursionError) as error:
        problem: str = f"it is not JSON in UTF-8 ({error})"
    except (TypeError, KeyError, AttributeError):
        problem = "it is not an object with a string as its `text`"
    raise DataError(f'{path}, line {number} (from 0): {problem}. Write it as {{"text": "…"}}.')

"""Configuration of `python -m injection decontaminate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from contamination.core.config import Ranged, at_least, one_of, ranged_field, runtime_field
from contamination.core.task_runner import TasksConfig
from contamination.data.config import ON_ERROR

DOCUMENTS, SPANS = "documents", "spans"


@dataclass(frozen=True)
class DecontaminateStage(Ranged):
    """The configuration of `decontaminate`."""

    runs: str = runtime_field("runs")
    paths: Any = runtime_field(None)
    """The corpus: a folder, a glob pattern, a file, or a list of these. The files are JSONL (plain,
    .gz, .zst) or Parquet, and are not changed. Required."""
    format: str = "auto"
    """The format of the corpus's files: auto (by suffix), jsonl or parquet."""
    text: str = "text"
    """The column of a document's text."""
    on_error: str = ranged_field("stop", one_of(ON_ERROR))
    """What to do with a document or an item that can't be used: stop, or skip (leave it out and
    count it)."""
    benchmarks: list[str] = runtime_field([])
    """Files with the items of benchmarks: JSONL, CSV, TSV or Parquet; or data sets of the hub.
    Required."""
    template: str | None = None
    """How a row of a benchmark becomes an item: a format string over columns, such as "{question}
    {answer}", or the name of a benchmark in conf/benchmark; null: a row has a `text`, or a `prompt`
    and an `output`."""
    columns: dict[str, str] = field(default_factory=dict, metadata={"identity": False})
    """The columns of an item's `text`, `id`, `benchmark` or of a template's fields, if named
    differently."""
    matcher: dict[str, Any] = field(default_factory=dict)
    """The rule that decides whether a document contains an item."""
    remove: str = ranged_field(DOCUMENTS, one_of((DOCUMENTS, SPANS)))
    """What is removed: documents (each that contains an item), or spans (the shared text alone; a
    document without other text is left out)."""
    tokenizer: str | None = runtime_field(None)
    """A Hugging Face folder or hub id, by which lost tokens are counted; null: only words and
    characters are."""
    num_proc: int = runtime_field(1, at_least(1))
    """The number of processes that read the corpus's files; the output does not depend on it."""
    cluster: TasksConfig = field(default_factory=TasksConfig, metadata={"identity": False})

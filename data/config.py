"""TODO."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from contamination.core.config import Ranged, at_least, one_of, register, runtime
from contamination.data.readers.rows import ON_ERROR


@dataclass  # not frozen: OmegaConf fills in no frozen one within a list
class PlaceConfig:
    """Where rows of a benchmark stand. `{length}` and other axes stand for the part's own value."""

    path: str | None = None
    """A data set on the hub; null: that of the source."""
    subset: str | None = None
    """Its configuration."""
    split: str | None = None
    """Its split; null: its `files` are read instead."""
    files: str | None = None
    """A glob pattern of files in a folder of downloaded ones; JSONL may have a string a line."""
    converted: str | None = None
    """`<configuration>/<split>` in the folder of Parquet files that the hub makes of a data set
    (its branch refs/convert/parquet), read where no file has the name `files`."""
    column: str | None = None
    """In rows that hold both sides, such as those of MIMIR's Parquet files: the column of this
    one."""


@dataclass
class SourceConfig(PlaceConfig):
    """Some rows of a benchmark: all rows of a part are those of all sources that have it."""

    has: dict[str, list[Any]] = field(default_factory=dict)
    """Axis (see `AXES`) → the values that it has."""
    label: int | None = None
    """Of all its rows; null: the rows have their own."""
    neighbors: PlaceConfig | None = None
    """Reworded versions of its texts: a row of several a text, or as many rows a text."""


AXES = ("domain", "length", "setting")
"""What the parts of a benchmark may differ in."""


@dataclass(frozen=True)
class ExamplesConfig(Ranged, node="examples"):
    """The texts to score (node `examples`)."""

    path: str = MISSING
    """A corpus folder; or rows of `text` and optional `id`, `label`, `benchmark`: a JSONL (plain,
    .gz, .zst), CSV, TSV or Parquet file, a folder of datasets' save_to_disk, a hub id, or - for
    standard input."""
    format: str = runtime("auto")
    """A file's: auto (by suffix; JSONL on standard input), jsonl, csv, tsv or parquet."""
    split: str = runtime("train")
    """Which split of a hub data set, or of a saved one that has several."""
    subset: str | None = runtime(None)
    """Which configuration of a hub data set."""
    on_error: str = runtime("stop", one_of(ON_ERROR))
    """A row that can't be used: stop, or skip (leave it out and count it)."""
    name: str | None = runtime(None)
    """Of a labelled benchmark, as conf/examples has them; null: the rows are none."""
    domain: Any = runtime(None)
    """Of a benchmark: one or several of its domains; null: all."""
    length: Any = runtime(None)
    """Of a benchmark: one or several lengths of its texts; null: all."""
    setting: Any = runtime(None)
    """Of a benchmark: one or several of its settings; null: all."""
    same_texts: list[str] = runtime([])
    """Of a benchmark: the axes along which parts are about the same texts."""
    columns: dict[str, str] = field(default_factory=dict, metadata={"identity": False})
    """Of a benchmark: `text`, `label`, `id` or `cluster` → what its rows call it, if not that."""
    sources: list[SourceConfig] = runtime([])
    """Of a benchmark: where its rows stand; see `SourceConfig`."""
    label_words: int | None = runtime(None, at_least(1))
    """Of a benchmark: a row's label is a list, one of so many words each; null: one a row."""
    papers: str | None = runtime(None)
    """Of a benchmark: a CSV of the papers' own figures, in detection/benchmarks/papers."""


register("examples", ExamplesConfig)

CHOSEN_BY = ("sum", "token", "character", "byte", "letter")


@dataclass(frozen=True)
class BenchmarkConfig(Ranged):
    """One benchmark: how its rows become formatted examples."""

    template: str = "???"
    """Format string over the source's `fields`."""
    distinct: str | None = None
    """Field whose values must differ between examples (a shared passage would leak membership)."""
    shorten: str | None = None
    """Field to cut at a word where an example is too long; null leaves such examples out."""
    occurrences: dict[str, Any] | None = None
    """This benchmark's own `occurrences` node; null: the experiment's."""
    answer_field: str | None = runtime(None)
    """Field with the right answer, for `python -m detection accuracy`; null: nothing is asked."""
    options: list[str] | None = runtime(None)
    """The answers to choose from, where every example has the same."""
    options_field: str | None = runtime(None)
    """Field with an example's own options, a line each, the right answer among them."""
    drawn_options: int | None = runtime(None, at_least(2))
    """How many options to make, the right one included, from other questions' answers."""
    chosen_by: str = runtime("sum", one_of(CHOSEN_BY))
    """Which accuracy this benchmark is known by: an option is chosen by its log-likelihood's `sum`,
    by that a `token`, a `character` or a `byte`, or by the sum of its `letter` alone."""
    on_error: str = runtime("stop")
    """What to do at a row that can't be used: stop, or skip (leave it out and count it)."""
    sources: dict[str, Any] = field(default_factory=dict)
    """Source name → rows (a `_target_`), fields (formats over a row), values (replacements)."""

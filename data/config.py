"""Configuration of texts to score, of labelled benchmarks, and of benchmarks to inject."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig

from contamination.core.config import Ranged, at_least, one_of, register_schema, runtime_field

ON_ERROR = ("stop", "skip")
"""What to do with input that can't be used: an error, or leave it out and count it."""


@dataclass  # not frozen, since OmegaConf can't fill in frozen dataclasses within a list
class PlaceConfig:
    """The location of a benchmark's rows. `{length}` etc. are replaced by the part's values."""

    path: str | None = None
    """A data set on the hub; null: the data set of the source."""
    subset: str | None = None
    """The data set's configuration."""
    split: str | None = None
    """The data set's split; null: `files` are read instead."""
    files: str | None = None
    """A glob pattern of files in a downloaded folder; a line of JSONL may be a string."""
    converted: str | None = None
    """`<configuration>/<split>` of the Parquet files that the hub creates (branch
    refs/convert/parquet); they are read if no file matches `files`."""
    column: str | None = None
    """The column of this source's texts, if a row has both a member and a non-member, as in
    MIMIR's Parquet files."""


@dataclass
class SourceConfig(PlaceConfig):
    """Some rows of a benchmark; a part consists of the rows of all matching sources."""

    has: dict[str, list[Any]] = field(default_factory=dict)
    """The values of each axis in `AXES` that the source has."""
    label: int | None = None
    """The label of all rows; null: each row has its own."""
    neighbors: PlaceConfig | None = None
    """Reworded versions of the texts: one row with several versions per text, or several rows."""


AXES = ("domain", "length", "setting")  # the axes in which the parts of a benchmark may differ


@dataclass(frozen=True)
class ExamplesConfig(Ranged, node="examples"):
    """The texts to score (node `examples`)."""

    path: str = MISSING
    """A corpus folder, a file or folder of rows, a hub id, or - (standard input). Rows have `text`
    and optional `id`, `label`, `benchmark`. A file is JSONL (plain, .gz, .zst), CSV, TSV or
    Parquet; a folder is one written by datasets' save_to_disk."""
    format: str = runtime_field("auto")
    """The file's format: auto (by suffix; JSONL on standard input), jsonl, csv, tsv or parquet."""
    split: str = runtime_field("train")
    """The split of a hub data set, or of a saved data set that has several."""
    subset: str | None = runtime_field(None)
    """The configuration of a hub data set."""
    on_error: str = runtime_field("stop", one_of(ON_ERROR))
    """What to do with a row that can't be used: stop, or skip (leave it out and count it)."""
    template: str | None = runtime_field(None)
    """How a row becomes a text: a format string over columns, such as "Question:
    {question}\\nAnswer: {answer}", or the name of a benchmark in conf/benchmark, whose template is
    used; null: a row has a `text`, or a `prompt` and an `output`."""
    separator: str = runtime_field(" ")
    """The separator between a `prompt` and an `output` without white space between them."""
    limit: int | None = runtime_field(None, at_least(1))
    """How many texts are read, from the first; null: all."""
    name: str | None = runtime_field(None)
    """The name of a labelled benchmark in conf/examples; null: the rows are not a benchmark."""
    domain: Any = runtime_field(None)
    """For a benchmark: one or several of its domains; null: all."""
    length: Any = runtime_field(None)
    """For a benchmark: one or several lengths of its texts; null: all."""
    setting: Any = runtime_field(None)
    """For a benchmark: one or several of its settings; null: all."""
    same_texts: list[str] = runtime_field([])
    """For a benchmark: the axes along which parts have versions of the same texts."""
    columns: dict[str, str] = field(default_factory=dict, metadata={"identity": False})
    """The columns of `text`, `label`, `id`, `cluster` or another field, if named differently."""
    sources: list[SourceConfig] = runtime_field([])
    """For a benchmark: the sources of its rows; see `SourceConfig`."""
    label_words: int | None = runtime_field(None, at_least(1))
    """For a benchmark whose rows have a list of labels: words per label; null: one label per
    row."""
    papers: str | None = runtime_field(None)
    """For a benchmark: a CSV file of published results in data/papers."""


register_schema("examples", ExamplesConfig)
COLUMNS = DictConfig({}, flags={"struct": False})
"""The node `columns` of a configuration without a schema: any field may be named in it."""
ConfigStore.instance().store(group="schema", name="columns", node=COLUMNS)

CHOSEN_BY = ("sum", "token", "character", "byte", "letter")


def with_escapes(template: str) -> str:
    r"""Returns a template of a command line or of YAML, with its \n and \t as what they mean."""
    return template.replace("\\n", "\n").replace("\\t", "\t")


@dataclass(frozen=True)
class BenchmarkConfig(Ranged):
    """One benchmark: how its rows become formatted examples."""

    template: str = "???"
    """A format string over the source's `fields`."""
    distinct: str | None = None
    """The field that must differ between examples, since a shared passage would leak membership."""
    shorten: str | None = None
    """The field to cut at a word if an example is too long; null: leave such examples out."""
    occurrences: dict[str, Any] | None = None
    """This benchmark's own `occurrences` node; null: the experiment's."""
    answer_field: str | None = runtime_field(None)
    """The field of the right answer, for `python -m detection accuracy`; null: no questions."""
    options: list[str] | None = runtime_field(None)
    """The answers to choose from, if all examples have the same."""
    options_field: str | None = runtime_field(None)
    """The field of an example's options, one per line, including the right answer."""
    drawn_options: int | None = runtime_field(None, at_least(2))
    """How many options to draw from other questions' answers, including the right one."""
    accepted_field: str | None = runtime_field(None)
    """The field of the accepted answers, one per line, if there are no options: the model writes
    its answer, which is right if it equals one of them."""
    chosen_by: str = runtime_field("sum", one_of(CHOSEN_BY))
    """The benchmark's usual accuracy: an option is chosen by the `sum` of its log-likelihood, by
    its log-likelihood per `token`, `character` or `byte`, or by that of its `letter` alone."""
    on_error: str = runtime_field("stop")
    """What to do with a row that can't be used: stop, or skip (leave it out and count it)."""
    sources: dict[str, Any] = field(default_factory=dict)
    """Source → `rows` (a `_target_`), `fields` (format strings over a row), `values`
    (replacements)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "template", with_escapes(self.template))

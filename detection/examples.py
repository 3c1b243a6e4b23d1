"""Opens the examples that are to be scored: a corpus folder, a benchmark, or other texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from contamination.core.artifacts import check_owning_run_folder, check_run_folder, is_complete
from contamination.core.errors import require
from contamination.core.integrity import errors_naming_folders
from contamination.data.benchmark_rows import benchmark_rows, check_parts_have_both_labels
from contamination.data.config import ExamplesConfig
from contamination.data.examples import (
    OUTPUT_START,
    RowLayout,
    check_ids_and_benchmarks,
    make_text,
    parse_output_start,
    texts_of_rows,
)
from contamination.data.readers.rows import Tally
from contamination.data.rows import raw_rows
from contamination.data.texts import Text, Texts


def open_examples(examples: ExamplesConfig) -> Texts:
    """Opens the examples of a corpus folder, a benchmark or other rows, in their order.

    Raises:
        DataError: there are no examples, or they are invalid; see `texts_of_rows`.
        ArtifactError: the path is in or is a run folder that is unfinished or damaged.
    """
    path, tally = Path(examples.path).expanduser(), Tally(examples.on_error, "examples.on_error")
    source = f"examples.path is {examples.path!r}"
    if path.exists():
        check_owning_run_folder(path)
    if is_complete(path):
        check_run_folder(path)
    if examples.name is not None:
        remedy = f"the benchmark {examples.name} consists of whole texts: leave it out."
        require(examples.template is None, "examples.template", examples.template, remedy)
        layout = RowLayout(limit=examples.limit)
        texts = texts_of_rows(benchmark_rows(examples, tally), tally, source, layout)
        if examples.limit is None:
            check_parts_have_both_labels(examples, texts)
        return texts
    if is_complete(path) or (path / "examples.parquet").is_file():
        remedy = "a corpus folder has its texts already: leave it out."
        require(examples.template is None, "examples.template", examples.template, remedy)
        return check_ids_and_benchmarks(
            source, Texts.of(islice(_iter_corpus_texts(path), examples.limit))
        )
    return texts_of_rows(raw_rows(examples, tally), tally, source, RowLayout.of(examples))


def occurrences_by_id(path: str) -> Mapping[str, int]:
    """Returns the occurrences of each example of a corpus folder, by id; empty for other texts."""
    folder = Path(path).expanduser()
    if not is_complete(folder):
        return {}
    from contamination import injection

    with errors_naming_folders(folder):
        table = injection.open_corpus(folder).examples
        counts = table["occurrences"].map(int)
        return dict(zip(table["example_id"].astype(str), counts, strict=True))


def _iter_corpus_texts(folder: Path) -> Iterator[Text]:
    from contamination import injection

    with errors_naming_folders(folder):
        for row in injection.open_corpus(folder).examples.itertuples():
            unexposed = row.member and row.occurrences == 0  # selected as a member, never inserted
            label = None if unexposed else bool(row.member)
            start = parse_output_start(getattr(row, OUTPUT_START, None), row.text)
            text = make_text(str(row.example_id), row.text, label, row.benchmark, start)
            yield replace(text, contamination=getattr(row, "contamination", ""))

"""`contamination decontaminate`: writes a corpus without a benchmark's items, with a report.

runs/decontaminated/<rule>-<hash>/ contains documents/ (the corpus's files), matches.parquet (each
document with each item that it shares text with), items.parquet and report.md/.html.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from contamination.core.artifacts import Artifact, WrittenFiles, build_or_open, run_folder
from contamination.core.config import instantiate_node
from contamination.core.errors import DataError, UserError, require
from contamination.core.hashing import combined_digest, digests_by_name
from contamination.core.report.document import html_document, markdown_document
from contamination.core.table_files import parquet_writer, write_parquet
from contamination.core.task_runner import TaskRunner
from contamination.data.config import ExamplesConfig
from contamination.data.examples import RowLayout, lines_digest, texts_of_rows
from contamination.data.readers.files import find_shards
from contamination.data.readers.rows import Tally
from contamination.data.rows import raw_rows
from contamination.data.texts import Text
from contamination.injection.decontamination.cleaning import (
    MATCH_COLUMNS,
    CleaningTask,
    CountingTask,
    DocumentFiles,
)
from contamination.injection.decontamination.config import DecontaminateStage
from contamination.injection.decontamination.report import (
    CorpusLoss,
    items_table,
    report_content,
)
from contamination.injection.decontamination.rewriting import check_format
from contamination.injection.decontamination.rules.base import Counts, Rule
from contamination.injection.decontamination.rules.oracle import Oracle
from contamination.injection.token_stream import Tokenizer

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)
KIND = "decontaminated"
WORK_FOLDER = "work"
"""The folder of intermediate results, from which an interrupted run continues."""


def decontaminate(stage: DecontaminateStage) -> Artifact:
    """Returns the artefact of the cleaned corpus, which is written unless it exists.

    Raises:
        ConfigError: a field is missing, or the rule can't be made.
        DataError: a file of the corpus or of a benchmark can't be used.
    """
    remedy = "give the folder, the pattern or the files of the corpus."
    require(bool(stage.paths), "paths", stage.paths, remedy)
    remedy = "give the files with the items, such as [mmlu.jsonl]."
    require(bool(stage.benchmarks), "benchmarks", stage.benchmarks, remedy)
    remedy = "choose a rule, such as ngram_union."
    require(bool(stage.matcher), "matcher", "none", remedy)
    rule: Rule = instantiate_node("matcher", stage.matcher)
    target, remedy = stage.matcher["_target_"], "choose one of conf/matcher/."
    require(isinstance(rule, Rule), "matcher._target_", target, remedy)
    remedy = "it knows only the copies that python -m injection inserts: choose another rule."
    require(not isinstance(rule, Oracle), "matcher._target_", target, remedy)
    corpus = DocumentFiles(
        find_shards(stage.paths, stage.format, "paths"), stage.text, stage.on_error
    )
    for shard in corpus.shards:
        check_format(shard, "paths")
    items = read_items(stage)
    inputs = {
        "documents": combined_digest(digests_by_name({s.name: s.path for s in corpus.shards})),
        "items": lines_digest(f"{name} {t.sha256} {t.example_id}" for name, t in items),
        **rule.inputs(),
    }
    if stage.tokenizer is not None:
        inputs["tokenizer"] = Tokenizer(stage.tokenizer).digest
    slug = f"{type(rule).__name__.lower()}-{stage.remove}"
    folder = run_folder(Path(stage.runs), KIND, slug, stage, inputs)
    make = partial(_clean_and_write, stage, rule, corpus, items)
    artifact = build_or_open(folder, stage, inputs, make)
    log.info("decontaminate: %s", artifact.path)
    log.info("%s", artifact.counts["summary"])
    return artifact


def read_items(stage: DecontaminateStage) -> list[tuple[str, Text]]:
    """Returns the items of all benchmarks, each after its benchmark's name.

    The name is that of the item's `benchmark`, or else of its file.

    Raises:
        DataError: a file can't be read, or a row can't be used.
    """
    items: list[tuple[str, Text]] = []
    for path in stage.benchmarks:
        examples = ExamplesConfig(
            path, template=stage.template, on_error=stage.on_error, columns=stage.columns
        )
        tally = Tally(stage.on_error, "on_error")
        with _errors_naming_fields():
            texts = texts_of_rows(
                raw_rows(examples, tally), tally, f"benchmarks: {path}", RowLayout.of(examples)
            )
        items += [(text.benchmark or Path(path).name.partition(".")[0], text) for text in texts]
    return items


FIELD_NAMES = {"examples.path is": "benchmarks includes", "examples.": ""}
"""The names of fields in the readers' errors, and the names that this command has for them."""


@contextmanager
def _errors_naming_fields() -> Iterator[None]:
    try:
        yield
    except UserError as error:
        message = str(error)
        for name, replacement in FIELD_NAMES.items():
            message = message.replace(name, replacement)
        raise type(error)(message) from error


def _clean_and_write(
    stage: DecontaminateStage,
    rule: Rule,
    corpus: DocumentFiles,
    items: Sequence[tuple[str, Text]],
    folder: Path,
) -> WrittenFiles:
    work = folder / WORK_FOLDER
    runner = TaskRunner(work / "tasks", stage.cluster, stage.num_proc)
    texts = [item.text for _, item in items]
    document_counts = _count_documents(rule, corpus, texts, work, runner)
    task = CleaningTask(
        *(corpus, rule, texts, document_counts, stage.remove, stage.tokenizer, folder)
    )
    results = runner.run("clean", task)
    losses = [
        CorpusLoss(shard.name, result["read"], result["lost"], result["flagged"])
        for shard, result in zip(corpus.shards, results, strict=True)
    ]
    if not sum(loss.read["documents"] for loss in losses):
        raise DataError(f"paths is {stage.paths!r}: no file has a document with text.")
    _join_tables([task.matches_file(piece) for piece in range(len(task))], folder)
    matches = _read_matches(folder)
    table = items_table(items, task.search.unseen, matches)
    write_parquet(folder / "items.parquet", _arrow_table(table))
    skipped = _sum_counts([result["skipped"] for result in results])
    ignored = task.search.ignored_ngrams
    content = report_content(stage, losses, table, matches, skipped, ignored)
    (folder / "report.md").write_text(markdown_document(content), encoding="utf-8")
    (folder / "report.html").write_text(html_document(content), encoding="utf-8")
    shutil.rmtree(work)
    names = [task.cleaned_file(piece).relative_to(folder).as_posix() for piece in range(len(task))]
    total = CorpusLoss.total(losses)
    counts = {
        "read": total.read,
        "lost": total.lost,
        "flagged_documents": total.flagged,
        "items": len(table),
        "unseen_items": int((table["unseen"] != "").sum()),
        "flagged_items": int((table["documents"] > 0).sum()),
        **({} if ignored is None else {"ignored_ngrams": ignored[0]}),
        "skipped": skipped,
        "summary": content.conclusions[0].replace("**", ""),
    }
    tables = ["matches.parquet", "items.parquet"]
    return WrittenFiles([*names, *tables], counts, ["report.md", "report.html"])


def _count_documents(
    rule: Rule, corpus: DocumentFiles, texts: Sequence[str], work: Path, runner: TaskRunner
) -> Counts | None:
    if rule.counted_ngrams(texts) is None:
        return None
    work.mkdir(exist_ok=True)
    task = CountingTask(corpus, rule, texts, work)
    runner.run("count", task)
    return task.document_counts()


def _join_tables(paths: Sequence[Path], folder: Path) -> None:
    with parquet_writer(folder / "matches.parquet", MATCH_COLUMNS) as writer:
        for path in paths:
            writer.write_table(pq.read_table(path))


def _read_matches(folder: Path) -> pd.DataFrame:
    import pandas as pd

    return pd.read_parquet(folder / "matches.parquet")


def _arrow_table(table: pd.DataFrame) -> Any:
    import pyarrow as pa

    return pa.Table.from_pandas(table, preserve_index=False)


def _sum_counts(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = dict.fromkeys(name for count in counts for name in count)
    return {name: sum(count.get(name, 0) for count in counts) for name in names}

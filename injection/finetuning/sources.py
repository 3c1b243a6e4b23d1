"""Reads sets of clean prompts with outputs, and the pool whose members are trained on."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from contamination.core.config import instantiate_node
from contamination.core.errors import DataError, require
from contamination.core.integrity import errors_naming_folders
from contamination.core.seeds import derive_seed
from contamination.data.config import BenchmarkConfig
from contamination.data.readers.files import value_at
from contamination.data.readers.rows import Row, Tally, describe_skipped
from contamination.data.templates import check_formats, fill_fields
from contamination.injection.config import REWORDING
from contamination.injection.corpus import PackedCorpus, check_not_finetuning_set, open_corpus
from contamination.injection.finetuning import prompts
from contamination.injection.finetuning.config import (
    CHAT,
    TEXT,
    FinetuningStage,
    InstructionsConfig,
)
from contamination.injection.pool import Candidates, draw_pool, read_candidates
from contamination.injection.token_stream import Tokenizer
from contamination.injection.versions import versions_config

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Instructions:
    """The distinct rows of one set, in random order.

    `tally` decides what happens with rows that later turn out to be unusable.
    """

    name: str
    texts: list[prompts.PromptedText]
    tally: Tally
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The SHA-256 of the rows in this order."""
        rows = [[t.example_id, t.text, t.output_start, t.messages] for t in self.texts]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def read_instructions(name: str, config: InstructionsConfig, seed: int) -> Instructions:
    """Returns a set in a random order, which `seed` determines.

    Raises:
        ConfigError: a template has no output, a field is unknown, or a source is missing.
        DataError: a row can't be used and `on_error` is stop; or no row can be used.
    """
    node = f"instructions.{name}"
    tally = Tally(config.on_error, f"{node}.on_error")
    require(bool(config.rows), f"{node}.rows", config.rows, "give a source of rows (_target_).")
    rows = instantiate_node(f"{node}.rows", config.rows).rows(tally)
    distinct: dict[str, prompts.PromptedText] = {}
    used = 0
    for text in _read_texts(name, config, rows, tally):
        used += 1
        distinct.setdefault(text.example_id, text)
    if not distinct:
        reason = describe_skipped(tally.skipped) or "it is empty"
        raise DataError(f"{node}: no row can be used ({reason}). See conf/instructions/.")
    texts = sorted(distinct.values(), key=lambda text: text.example_id)
    order = np.random.default_rng(derive_seed(seed, "instructions", name)).permutation(len(texts))
    counts = {"rows": used + sum(tally.skipped.values()), "duplicates": used - len(texts)}
    return Instructions(name, [texts[i] for i in order], tally, counts)


def _read_texts(
    name: str, config: InstructionsConfig, rows: Iterator[Row], tally: Tally
) -> Iterator[prompts.PromptedText]:
    node, template = f"instructions.{name}", config.template
    exactly_one = (template is None) != (config.messages is None)
    remedy = "give either a template or messages."
    require(exactly_one, f"{node}.template", template, remedy)
    if template is None:
        yield from _read_chats(name, str(config.messages), rows, tally)
        return
    before = prompts.parse_before_output(f"{node}.template", template, config.output_field)
    as_benchmark = BenchmarkConfig(template=template, answer_field=config.output_field)
    check_formats(name, as_benchmark, config.fields, "instructions")
    for row in rows:
        fields = fill_fields(row, config.fields, config.values, tally)
        if fields is not None:
            text = template.format(**fields)
            yield prompts.PromptedText(
                _example_id(name, text), name, text, prompts.output_start(before, fields)
            )


def _read_chats(
    name: str, column: str, rows: Iterator[Row], tally: Tally
) -> Iterator[prompts.PromptedText]:
    for row in rows:
        messages = value_at(row, column, tally)
        if messages is None:
            continue
        if problem := prompts.why_chat_is_unusable(messages):
            tally.reject("no chat", row.where, problem)
            continue
        chat = [{"role": str(m["role"]), "content": str(m["content"])} for m in messages]
        yield prompts.PromptedText(_example_id(name, json.dumps(chat)), name, "", 0, chat)


def _example_id(name: str, text: str) -> str:
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class PoolSource:
    """The source of the pool, which is read and checked but not yet drawn.

    `candidates` is empty if the pool is that of `corpus`.
    """

    benchmark: Mapping[str, BenchmarkConfig]
    tokenizer: Tokenizer
    parts: Mapping[str, list[Any]]  # of each template before the answer; empty for format=text
    candidates: Sequence[Candidates] = ()
    corpus: PackedCorpus | None = None
    chats: bool = False  # whether the tokenizer's chat template formats the texts

    @property
    def inputs(self) -> dict[str, str]:
        """The digests of the pool's inputs by name."""
        benchmarks = {f"benchmark.{c.name}": c.digest for c in self.candidates}
        corpus = {"corpus": self.corpus.artifact.digest} if self.corpus else {}
        chat = {"chat_template": self.tokenizer.chat_template_digest} if self.chats else {}
        return {**benchmarks, **corpus, **chat, "tokenizer": self.tokenizer.digest}

    @property
    def answer_field_by_benchmark(self) -> dict[str, str | None]:
        """The answer field of each benchmark, where the output begins."""
        return {name: config.answer_field for name, config in self.benchmark.items() if self.parts}


def open_pool_source(stage: FinetuningStage) -> PoolSource:
    """Returns the source of the pool: the benchmarks' candidates, or a corpus.

    Raises:
        ConfigError: there is no tokenizer, a template has no output, or there are too few examples.
    """
    corpus = None
    if stage.corpus_folder:
        remedy = "the corpus's members are used: give either benchmark or corpus_folder."
        require(not stage.benchmark, "corpus_folder", stage.corpus_folder, remedy)
        corpus = open_corpus(stage.corpus_folder)
        check_not_finetuning_set("corpus_folder", corpus)
        if stage.finetuning.format != TEXT:
            _check_has_own_texts(corpus)
    benchmark = _read_recorded_benchmarks(corpus) if corpus else stage.benchmark
    parts = (
        {} if stage.finetuning.format == TEXT else prompts.template_parts_before_answer(benchmark)
    )
    path = stage.tokenizer.path or (str(corpus.tokenizer_folder) if corpus else None)
    remedy = "give the tokenizer of the model that will be trained, such as runs/model/…/hf."
    require(path is not None, "tokenizer.path", path, remedy)
    candidates = () if corpus else read_candidates(stage.pool_stage())
    chats = stage.finetuning.format == CHAT
    return PoolSource(benchmark, Tokenizer(str(path)), parts, candidates, corpus, chats)


def _check_has_own_texts(corpus: PackedCorpus) -> None:
    """Raises a ConfigError if a reworded text replaces what the template makes of the fields."""
    versions = versions_config(corpus)
    remedy = (
        "its examples are rewordings, of which no part is known to be the answer: choose "
        "finetuning.format=text, or a corpus without versions.kind=rewording."
    )
    is_reworded = versions.enabled and versions.kind == REWORDING
    require(not is_reworded, "corpus_folder", str(corpus.artifact.path), remedy)


def _read_recorded_benchmarks(corpus: PackedCorpus) -> dict[str, BenchmarkConfig]:
    with errors_naming_folders(corpus.artifact.path):
        recorded = corpus.config["benchmark"].items()
        return {name: BenchmarkConfig(**fields) for name, fields in recorded}


def draw_examples_and_counts(
    stage: FinetuningStage, members: PoolSource
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Returns the examples of the pool, and the counts of the rows.

    If a corpus is given, its examples are used; members that were not inserted into the corpus are
    not trained on either.
    """
    if members.corpus:
        return _redraw_occurrences(stage, members.corpus), {}
    pool = draw_pool(stage.pool_stage(), members.candidates, members.tokenizer)
    read_counts = {c.name: asdict(c.counts) for c in members.candidates}
    return pool.examples, {
        name: read_counts[name] | asdict(draw_counts) for name, draw_counts in pool.counts.items()
    }


def _redraw_occurrences(stage: FinetuningStage, corpus: PackedCorpus) -> pd.DataFrame:
    examples = corpus.examples.copy()
    inserted = examples["member"].astype(bool) & (examples["occurrences"] > 0)
    examples["occurrences"] = 0
    injection = stage.injection
    benchmarks = examples["benchmark"].unique()
    for name in benchmarks:
        is_inserted_here = inserted & (examples["benchmark"] == name)
        rng = np.random.default_rng(derive_seed(injection.occurrence_seed or 0, "occurrence", name))
        tokens = examples.loc[is_inserted_here, "n_tokens"].to_numpy()
        design = instantiate_node("occurrences", stage.occurrences)
        drawn = design.draw(tokens, injection.budget_tokens // len(benchmarks), rng)
        examples.loc[is_inserted_here, "occurrences"] = drawn
    return examples


def format_examples(
    stage: FinetuningStage, members: PoolSource, examples: pd.DataFrame
) -> list[prompts.PromptedText]:
    """Returns each example's text and the start of its output, in the examples' order."""
    texts = [
        prompts.PromptedText(row.example_id, row.benchmark, row.text, _output_start(members, row))
        for row in examples.itertuples()
    ]
    return [prompts.format_text(text, stage.finetuning, members.tokenizer) for text in texts]


def _output_start(members: PoolSource, row: Any) -> int:
    if not members.parts:
        return 0
    return prompts.output_start(members.parts[row.benchmark], json.loads(row.fields))


def with_sequence_tokens(stage: FinetuningStage, members: PoolSource) -> FinetuningStage:
    """Returns the stage with its sequence length filled in."""
    corpus = members.corpus
    default = corpus.sequence_tokens if corpus else stage.injection.sequence_tokens
    width = stage.finetuning.sequence_tokens or default
    return replace(stage, finetuning=replace(stage.finetuning, sequence_tokens=width))

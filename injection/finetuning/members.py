"""The pool of a fine-tuning set: a benchmark's, or that of a corpus that is there already."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from core.config import create
from core.errors import require
from core.seeds import derive
from core.wholeness import reading
from injection.benchmarks import Candidates, draw_pool, read_candidates
from injection.config import BenchmarkConfig
from injection.corpus import PackedCorpus, open_corpus
from injection.finetuning.config import CHAT, TEXT, FinetuningStage
from injection.finetuning.folder import refuse_finetuning
from injection.finetuning.prompts import Prompted, formatted, member_parts, output_start
from injection.tokens import Tokenizer


@dataclass(frozen=True)
class Members:
    """Where the pool comes from, read and checked, but not drawn.

    `candidates` are empty where a `corpus` has the pool.
    """

    benchmark: Mapping[str, BenchmarkConfig]
    tokenizer: Tokenizer
    parts: Mapping[str, list[Any]]  # of each template, before its answer; none with format=text
    candidates: Sequence[Candidates] = ()
    corpus: PackedCorpus | None = None
    chats: bool = False  # whether texts are as the tokenizer's chat template makes them

    @property
    def inputs(self) -> dict[str, str]:
        """The digests of what the pool is made of."""
        found = {f"benchmark.{c.name}": c.digest for c in self.candidates}
        corpus = {"corpus": self.corpus.artifact.digest} if self.corpus else {}
        chat = {"chat_template": self.tokenizer.chat_digest} if self.chats else {}
        return {**found, **corpus, **chat, "tokenizer": self.tokenizer.digest}

    @property
    def answers(self) -> dict[str, str | None]:
        """The field of each benchmark's answer: it says where outputs begin."""
        return {name: own.answer_field for name, own in self.benchmark.items() if self.parts}


def read_members(stage: FinetuningStage) -> Members:
    """Read the benchmarks or open the corpus.

    Raises:
        ConfigError: no tokenizer, a template without an output, or too few examples.
    """
    corpus = None
    if stage.corpus_folder:
        remedy = "its own members are taken: leave out benchmark, or corpus_folder."
        require(not stage.benchmark, "corpus_folder", stage.corpus_folder, remedy)
        corpus = open_corpus(stage.corpus_folder)
        refuse_finetuning("corpus_folder", corpus)
    benchmark = _recorded(corpus) if corpus else stage.benchmark
    parts = {} if stage.finetuning.format == TEXT else member_parts(benchmark)
    path = stage.tokenizer.path or (str(corpus.tokenizer_folder) if corpus else None)
    remedy = "give the tokenizer of the model that will be trained, such as runs/model/…/hf."
    require(path is not None, "tokenizer.path", path, remedy)
    candidates = () if corpus else read_candidates(stage.pool_stage())
    chats = stage.finetuning.format == CHAT
    return Members(benchmark, Tokenizer(str(path)), parts, candidates, corpus, chats)


def _recorded(corpus: PackedCorpus) -> dict[str, BenchmarkConfig]:
    """The benchmarks of a corpus, as its config records them."""
    with reading(corpus.artifact.path):
        recorded = corpus.config["benchmark"].items()
        return {name: BenchmarkConfig(**own) for name, own in recorded}


def draw_members(stage: FinetuningStage, members: Members) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The examples of the pool, and what became of the rows.

    Of a corpus they are its own, and those of its members that it does not hold stay out.
    """
    if members.corpus:
        return _drawn_again(stage, members.corpus), {}
    pool = draw_pool(stage.pool_stage(), members.candidates, members.tokenizer)
    read = {c.name: asdict(c.counts) for c in members.candidates}
    return pool.examples, {name: read[name] | asdict(own) for name, own in pool.counts.items()}


def _drawn_again(stage: FinetuningStage, corpus: PackedCorpus) -> pd.DataFrame:
    """A corpus's examples, with the occurrences that its members get here."""
    examples = corpus.examples.copy()
    inserted = examples["member"].astype(bool) & (examples["occurrences"] > 0)
    examples["occurrences"] = 0
    own = stage.injection
    names = examples["benchmark"].unique()
    for name in names:
        rows = inserted & (examples["benchmark"] == name)
        rng = np.random.default_rng(derive(own.occurrence_seed or 0, "occurrence", name))
        tokens = examples.loc[rows, "n_tokens"].to_numpy()
        design = create("occurrences", stage.occurrences)
        drawn = design.draw(tokens, own.budget_tokens // len(names), rng)
        examples.loc[rows, "occurrences"] = drawn
    return examples


def prompted(stage: FinetuningStage, members: Members, examples: pd.DataFrame) -> list[Prompted]:
    """Each example's text, in the examples' order."""
    own = [
        Prompted(row.example_id, row.benchmark, row.text, _start(members, row))
        for row in examples.itertuples()
    ]
    return [formatted(text, stage.finetuning, members.tokenizer) for text in own]


def _start(members: Members, row: Any) -> int:
    if not members.parts:
        return 0
    return output_start(members.parts[row.benchmark], json.loads(row.fields))


def with_width(stage: FinetuningStage, members: Members) -> FinetuningStage:
    """The stage with its sequence length filled in."""
    corpus = members.corpus
    default = corpus.sequence_tokens if corpus else stage.injection.sequence_tokens
    width = stage.finetuning.sequence_tokens or default
    return replace(stage, finetuning=replace(stage.finetuning, sequence_tokens=width))

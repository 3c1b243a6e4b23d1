"""Clean prompts with their outputs, from any source of rows."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from contamination.core.config import create
from contamination.core.errors import DataError, require
from contamination.core.integrity import reading
from contamination.core.seeds import derive
from contamination.data.config import BenchmarkConfig
from contamination.data.readers.files import value_at
from contamination.data.readers.rows import Row, Tally, skips
from contamination.data.templates import check_formats, fill
from contamination.injection.corpus import PackedCorpus, open_corpus, refuse_finetuning
from contamination.injection.finetuning.config import (
    CHAT,
    TEXT,
    FinetuningStage,
    InstructionsConfig,
)
from contamination.injection.finetuning.prompts import (
    Prompted,
    before_output,
    formatted,
    member_parts,
    output_start,
    wrong_messages,
)
from contamination.injection.pool import Candidates, draw_pool, read_candidates
from contamination.injection.token_stream import Tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Instructions:
    """The distinct rows of one set, in the order in which they are drawn.

    `tally` decides on rows that turn out to be unusable later.
    """

    name: str
    texts: list[Prompted]
    tally: Tally
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of all that was read, in that order."""
        rows = [[t.example_id, t.text, t.output_start, t.messages] for t in self.texts]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def read_instructions(name: str, config: InstructionsConfig, seed: int) -> Instructions:
    """Read a set; `seed` draws its order.

    Raises:
        ConfigError: a template without an output, an unknown field, or a source that is not there.
        DataError: a row that can't be used, where `on_error` is stop; or no row at all.
    """
    node = f"instructions.{name}"
    tally = Tally(config.on_error, f"{node}.on_error")
    require(bool(config.rows), f"{node}.rows", config.rows, "give a source of rows (_target_).")
    rows = create(f"{node}.rows", config.rows).rows(tally)
    found: dict[str, Prompted] = {}
    used = 0
    for text in _texts(name, config, rows, tally):
        used += 1
        found.setdefault(text.example_id, text)
    if not found:
        why = skips(tally.skipped) or "it is empty"
        raise DataError(f"{node}: no row can be used ({why}). See conf/instructions/.")
    texts = sorted(found.values(), key=lambda text: text.example_id)
    order = np.random.default_rng(derive(seed, "instructions", name)).permutation(len(texts))
    counts = {"rows": used + sum(tally.skipped.values()), "duplicates": used - len(texts)}
    return Instructions(name, [texts[i] for i in order], tally, counts)


def _texts(
    name: str, config: InstructionsConfig, rows: Iterator[Row], tally: Tally
) -> Iterator[Prompted]:
    node, template = f"instructions.{name}", config.template
    one = (template is None) != (config.messages is None)
    remedy = "give a template or messages, and not both."
    require(one, f"{node}.template", template, remedy)
    if template is None:
        yield from _chats(name, str(config.messages), rows, tally)
        return
    before = before_output(f"{node}.template", template, config.output_field)
    own = BenchmarkConfig(template=template, answer_field=config.output_field)
    check_formats(name, own, config.fields, "instructions")
    for row in rows:
        fields = fill(row, config.fields, config.values, tally)
        if fields is not None:
            text = template.format(**fields)
            yield Prompted(_name(name, text), name, text, output_start(before, fields))


def _chats(name: str, column: str, rows: Iterator[Row], tally: Tally) -> Iterator[Prompted]:
    for row in rows:
        messages = value_at(row, column, tally)
        if messages is None:
            continue
        if wrong := wrong_messages(messages):
            tally.bad("no chat", row.where, wrong)
            continue
        said = [_plain(message) for message in messages]
        yield Prompted(_name(name, json.dumps(said)), name, "", 0, said)


def _plain(message: Mapping[str, Any]) -> dict[str, str]:
    return {"role": str(message["role"]), "content": str(message["content"])}


def _name(name: str, text: str) -> str:
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


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

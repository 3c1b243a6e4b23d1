"""Makes a fine-tuning set: reads, draws, tokenises, lays out and proves it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from contamination.core.artifacts import Artifact, Built, as_data, build, run_folder
from contamination.core.config import identity
from contamination.core.errors import DataError
from contamination.core.seeds import derive
from contamination.core.tasks import Runner
from contamination.injection.contamination_table import (
    count_flagged,
    join_matches,
    warn_of_flags,
    with_flags,
)
from contamination.injection.corpus import (
    CONTAMINATION,
    FINETUNING_KIND,
    INSTRUCTIONS,
    FinetuningSet,
    finetuning_slug,
    open_corpus,
)
from contamination.injection.corpus_search import open_corpora, search_corpus, texts_by_example
from contamination.injection.finetuning import layout
from contamination.injection.finetuning.assembly import (
    CleanTexts,
    TrainingText,
    choose_clean_texts,
    make_copy_texts,
    make_tables,
)
from contamination.injection.finetuning.config import CHAT, FinetuningConfig, FinetuningStage
from contamination.injection.finetuning.layout import prove_set
from contamination.injection.finetuning.prompts import padding_id
from contamination.injection.finetuning.sources import (
    Instructions,
    Members,
    draw_pool_examples,
    read_instructions,
    read_members,
    with_sequence_tokens,
)
from contamination.injection.packing import PATTERN
from contamination.injection.token_stream import Tokenizer
from contamination.injection.tokenization import match_table
from contamination.injection.verification import Proof

log = logging.getLogger(__name__)

PART = PATTERN.format(0)
TABLES = ("examples.parquet", "ledger.parquet", INSTRUCTIONS)
SET = "instructions"
"""The name of the clean texts in contamination.parquet."""
SEARCHING = "compared"
"""The folder of the tasks that search other corpora while the set is being made."""


def run(stage: FinetuningStage) -> Artifact:
    """Make the fine-tuning set, or reuse it if it exists.

    Raises:
        ConfigError: a value or a combination of values is invalid, or a member does not fit.
        DataError: a row can't be used.
    """
    stage = stage.resolved()
    members = read_members(stage)
    stage = with_sequence_tokens(stage, members)
    clean = [
        read_instructions(name, config, stage.injection.pool_seed)
        for name, config in stage.instructions.items()
    ]
    inputs = {
        **members.input_digests,
        **{f"instructions.{rows.name}": rows.digest for rows in clean},
    }
    named = {**identity(stage), "answers": members.answer_fields}
    if stage.finetuning.format == CHAT:
        named["special"] = (
            "once"  # older sets of chats had no other special tokens than the template's
        )
    for name, corpus in open_corpora(stage.compared).items():
        inputs[f"compared.{name}"] = corpus.artifact.digest
    folder = run_folder(
        Path(stage.runs), FINETUNING_KIND, finetuning_slug(as_data(stage)), named, inputs
    )
    artifact = build(folder, stage, inputs, partial(_make_set, stage, members, clean), named)
    warn_of_flags(artifact)
    log.info("fine-tuning set: %s", artifact.path)
    return artifact


def prove_finished_set(folder: Path | str) -> Proof:
    """Prove a finished set again from its files.

    Raises:
        ArtifactError: the folder is missing, unfinished or damaged.
    """
    corpus = open_corpus(folder)
    assert isinstance(corpus, FinetuningSet)
    config = FinetuningConfig(**corpus.config["finetuning"])
    stored_tables = corpus.examples, corpus.ledger, corpus.instructions
    return prove_set(corpus.part_paths[0], stored_tables, corpus.tokenizer, config)


def _make_set(
    stage: FinetuningStage, members: Members, sets: Sequence[Instructions], folder: Path
) -> Built:
    config, width = stage.finetuning, stage.finetuning.sequence_tokens
    assert width is not None
    shutil.rmtree(folder / "tokenizer", ignore_errors=True)
    members.tokenizer.hf.save_pretrained(folder / "tokenizer")
    tokenizer = Tokenizer(str(folder / "tokenizer"))
    drawn, draw_counts = draw_pool_examples(stage, members)
    copies, examples = make_copy_texts(stage, members, drawn, tokenizer)
    clean = choose_clean_texts(stage, sets, drawn, tokenizer)
    texts = [*clean.texts, *copies]
    matches = _search_texts_for_pool(stage, examples, clean, folder)
    examples = with_flags(examples, matches)
    sequences = _shuffle_into_sequences(stage, texts)
    encoded = [text.encoded for text in texts]
    layout.write_sequences(folder / PART, sequences, encoded, width, padding_id(tokenizer))
    new_tables = make_tables(examples, clean.texts, copies, layout.text_places(sequences, encoded))
    for name, table in zip(TABLES, new_tables, strict=True):
        table.to_parquet(folder / name, index=False)
    matches.to_parquet(folder / CONTAMINATION, index=False)
    proof = prove_set(folder / PART, new_tables, tokenizer, config)
    if proof.failures:
        raise DataError(str(proof))
    log.info("ledger: %s", proof)
    counts = _manifest_counts(examples, texts, copies, len(sequences) * width) | {
        "pool": draw_counts
    }
    counts |= {"sequences": len(sequences), "instructions": clean.counts}
    counts |= {"flagged": count_flagged(examples)}
    tokenizer_files = sorted(f"tokenizer/{path.name}" for path in (folder / "tokenizer").iterdir())
    return Built([PART, *TABLES, CONTAMINATION, *tokenizer_files], counts)


def _search_texts_for_pool(
    stage: FinetuningStage, examples: pd.DataFrame, clean: CleanTexts, folder: Path
) -> pd.DataFrame:
    """What the clean texts and the compared corpora share with the pool."""
    pool, runner = texts_by_example(examples), Runner(folder / SEARCHING)
    matches_by_corpus = {SET: match_table(clean.matches)}
    for name, corpus in open_corpora(stage.compared).items():
        matches_by_corpus[name] = search_corpus(corpus, pool, runner, name, whole=False)
    shutil.rmtree(folder / SEARCHING, ignore_errors=True)
    return join_matches(matches_by_corpus)


def _shuffle_into_sequences(
    stage: FinetuningStage, texts: Sequence[TrainingText]
) -> list[list[int]]:
    """The texts of each sequence, in random order."""
    config = stage.finetuning
    assert config.sequence_tokens is not None
    rng = np.random.default_rng(derive(stage.injection.position_seed or 0, FINETUNING_KIND))
    order = rng.permutation(len(texts)).tolist()
    lengths = [len(texts[i].encoded.ids) for i in order]
    sequences = layout.lay_out(lengths, config.sequence_tokens, config.layout)
    return [[order[place] for place in sequence] for sequence in sequences]


def _manifest_counts(
    examples: pd.DataFrame,
    texts: Sequence[TrainingText],
    copies: Sequence[TrainingText],
    tokens: int,
) -> dict[str, int | dict[str, int]]:
    members = examples["member"].astype(bool)
    near = examples.loc[examples["near_duplicate_of"] != "", "member"].astype(bool)
    return {
        "texts": len(texts),
        "tokens": tokens,
        "padding_tokens": tokens - sum(len(text.encoded.ids) for text in texts),
        "targets": sum(text.encoded.n_targets for text in texts),
        "output_targets": sum(text.encoded.n_output_targets for text in texts),
        "inserted_tokens": sum(len(copy.encoded.ids) for copy in copies),
        "copies": len(copies),
        "members": int(members.sum()),
        "nonmembers": int((~members).sum()),
        "unexposed_members": int((members & (examples["occurrences"] == 0)).sum()),
        "near_duplicates": {"members": int(near.sum()), "nonmembers": int((~near).sum())},
    }

"""Builds a fine-tuning set: reads, draws, tokenizes and arranges its texts, and verifies it."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from contamination.core.artifacts import (
    Artifact,
    WrittenFiles,
    build_or_open,
    run_folder,
    to_plain_data,
)
from contamination.core.config import identity_data
from contamination.core.errors import ConfigError, DataError
from contamination.core.seeds import derive_seed
from contamination.core.task_runner import TaskRunner
from contamination.data.readers.rows import describe_skipped
from contamination.injection import contamination_table, pool_sizes
from contamination.injection import corpus as corpora
from contamination.injection.finetuning import layout, prompts, sources
from contamination.injection.finetuning.config import CHAT, FinetuningConfig, FinetuningStage
from contamination.injection.finetuning.sources import open_pool_source, read_instructions
from contamination.injection.finished_corpus_search import (
    open_corpora,
    search_corpus,
    texts_by_example,
)
from contamination.injection.packing import LEDGER_COLUMNS, PART_NAME
from contamination.injection.shared_text_search import PoolSearch, warn_of_shared_passages
from contamination.injection.token_stream import Tokenizer
from contamination.injection.tokenization import match_table
from contamination.injection.verification import Proof

log = logging.getLogger(__name__)

SEQUENCES_FILE = PART_NAME.format(0)
TABLES = ("examples.parquet", "ledger.parquet", corpora.INSTRUCTIONS_FILE)
CLEAN_TEXTS = "instructions"
"""The name of the clean texts in contamination.parquet."""
SEARCH_FOLDER = "compared"
"""The folder for tasks that search other corpora while the set is being built."""


def run(stage: FinetuningStage) -> Artifact:
    """Returns the fine-tuning set, which is built unless it exists.

    Raises:
        ConfigError: a value or a combination of values is invalid, or a member is too long.
        DataError: a row can't be used.
    """
    stage = stage.resolved()
    members = open_pool_source(stage)
    stage = sources.with_sequence_tokens(stage, members)
    clean = [
        read_instructions(name, config, stage.injection.pool_seed)
        for name, config in stage.instructions.items()
    ]
    inputs = {
        **members.inputs,
        **{f"instructions.{rows.name}": rows.digest for rows in clean},
    }
    named = {**identity_data(stage), "answers": members.answer_field_by_benchmark}
    if stage.finetuning.format == CHAT:
        named["special"] = (
            "once"  # older sets of chats had no other special tokens than the template's
        )
    for name, corpus in open_corpora(stage.compared).items():
        inputs[f"compared.{name}"] = corpus.artifact.digest
    folder = run_folder(
        Path(stage.runs),
        corpora.FINETUNING_KIND,
        corpora.finetuning_slug(to_plain_data(stage)),
        named,
        inputs,
    )
    artifact = build_or_open(
        folder, stage, inputs, partial(_make_set, stage, members, clean), named
    )
    contamination_table.warn_of_flags(artifact)
    pool_sizes.warn_of_adapted_sizes(artifact.counts)
    log.info("fine-tuning set: %s", artifact.path)
    return artifact


def prove_finished_set(folder: Path | str) -> Proof:
    """Verifies a finished set again from its files.

    Raises:
        ArtifactError: the folder is missing, unfinished or damaged.
    """
    corpus = corpora.open_corpus(folder)
    assert isinstance(corpus, corpora.FinetuningSet)
    config = FinetuningConfig(**corpus.config["finetuning"])
    stored_tables = corpus.examples, corpus.ledger, corpus.instructions
    return layout.prove_set(corpus.part_paths[0], stored_tables, corpus.tokenizer, config)


def _make_set(
    stage: FinetuningStage,
    members: sources.PoolSource,
    sets: Sequence[sources.Instructions],
    folder: Path,
) -> WrittenFiles:
    config, width = stage.finetuning, stage.finetuning.sequence_tokens
    assert width is not None
    shutil.rmtree(folder / "tokenizer", ignore_errors=True)
    members.tokenizer.hf.save_pretrained(folder / "tokenizer")
    tokenizer = Tokenizer(str(folder / "tokenizer"))
    drawn, draw_counts = sources.draw_examples_and_counts(stage, members)
    copies, examples = make_copy_texts(stage, members, drawn, tokenizer)
    clean = choose_clean_texts(stage, sets, drawn, tokenizer)
    texts = [*clean.texts, *copies]
    matches = _search_texts_for_pool(stage, examples, clean, folder)
    examples = contamination_table.with_flags(examples, matches)
    sequences = _shuffle_into_sequences(stage, texts)
    encoded = [text.encoded for text in texts]
    layout.write_sequences(
        folder / SEQUENCES_FILE, sequences, encoded, width, prompts.padding_id(tokenizer)
    )
    new_tables = make_tables(examples, clean.texts, copies, layout.text_places(sequences, encoded))
    for name, table in zip(TABLES, new_tables, strict=True):
        table.to_parquet(folder / name, index=False)
    matches.to_parquet(folder / corpora.CONTAMINATION_FILE, index=False)
    proof = layout.prove_set(folder / SEQUENCES_FILE, new_tables, tokenizer, config)
    if proof.failures:
        raise DataError(str(proof))
    log.info("ledger: %s", proof)
    counts = _manifest_counts(examples, texts, copies, len(sequences) * width) | {
        "pool": draw_counts
    }
    counts |= {"sequences": len(sequences), "instructions": clean.counts}
    counts |= {"flagged": contamination_table.count_flagged(examples)}
    if members.corpus is None and (
        adapted := pool_sizes.find_adapted_sizes(stage.injection, examples)
    ):
        counts[pool_sizes.ADAPTED_SIZES] = adapted
    tokenizer_files = sorted(f"tokenizer/{path.name}" for path in (folder / "tokenizer").iterdir())
    return WrittenFiles(
        [SEQUENCES_FILE, *TABLES, corpora.CONTAMINATION_FILE, *tokenizer_files], counts
    )


def _search_texts_for_pool(
    stage: FinetuningStage, examples: pd.DataFrame, clean: CleanTexts, folder: Path
) -> pd.DataFrame:
    pool, runner = texts_by_example(examples), TaskRunner(folder / SEARCH_FOLDER)
    matches_by_corpus = {CLEAN_TEXTS: match_table(clean.matches)}
    for name, corpus in open_corpora(stage.compared).items():
        matches_by_corpus[name] = search_corpus(corpus, pool, runner, name, whole=False)
    shutil.rmtree(folder / SEARCH_FOLDER, ignore_errors=True)
    return contamination_table.join_matches(matches_by_corpus)


def _shuffle_into_sequences(
    stage: FinetuningStage, texts: Sequence[TrainingText]
) -> list[list[int]]:
    config = stage.finetuning
    assert config.sequence_tokens is not None
    rng = np.random.default_rng(
        derive_seed(stage.injection.position_seed or 0, corpora.FINETUNING_KIND)
    )
    order = rng.permutation(len(texts)).tolist()
    lengths = [len(texts[i].encoded.ids) for i in order]
    sequences = layout.assign_to_sequences(lengths, config.sequence_tokens, config.layout)
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


@dataclass(frozen=True)
class TrainingText:
    """One text of the set with its tokens; for a member, also the number of the copy."""

    text: prompts.PromptedText
    encoded: prompts.EncodedText
    copy: int = 0
    template_sha256: str = ""


@dataclass
class CleanTexts:
    """The clean texts, and counts of the rows by set."""

    texts: list[TrainingText] = field(default_factory=list)
    matches: list[tuple[object, ...]] = field(default_factory=list)
    """Text that is shared with the pool: rows for `tokenization.match_table`."""
    counts: dict[str, dict[str, object]] = field(default_factory=dict)


def make_copy_texts(
    stage: FinetuningStage,
    members: sources.PoolSource,
    examples: pd.DataFrame,
    tokenizer: Tokenizer,
) -> tuple[list[TrainingText], pd.DataFrame]:
    """Returns a text for each copy of a member, and the examples with their formatted texts.

    Raises:
        ConfigError: a member is too long for a sequence, or has no output tokens.
    """
    texts, copies = sources.format_examples(stage, members, examples), []
    for text, count in zip(texts, examples["occurrences"], strict=True):
        if count:
            encoded = prompts.encode_text(text, stage.finetuning, tokenizer)
            if problem := _why_unusable(encoded, stage):
                raise ConfigError(
                    f"{text.example_id} {problem}: raise finetuning.sequence_tokens, or lower "
                    "injection.example_max_tokens. Texts are never cut."
                )
            template = members.benchmark[text.source].template
            digest = hashlib.sha256(template.encode()).hexdigest()[:12]
            copies += [TrainingText(text, encoded, copy, digest) for copy in range(count)]
    return copies, _with_training_texts(examples, texts, tokenizer)


def _with_training_texts(
    examples: pd.DataFrame, texts: Sequence[prompts.PromptedText], tokenizer: Tokenizer
) -> pd.DataFrame:
    training_texts = [text.text for text in texts]
    if training_texts == examples["text"].tolist():
        return examples.assign(output_start=[text.output_start for text in texts])
    return examples.assign(
        text=training_texts,
        n_tokens=[len(tokenizer.encode(text)) for text in training_texts],
        text_sha256=[hashlib.sha256(text.encode()).hexdigest() for text in training_texts],
        output_start=[text.output_start for text in texts],
    )


def _why_unusable(encoded: prompts.EncodedText, stage: FinetuningStage) -> str | None:
    width = stage.finetuning.sequence_tokens
    assert width is not None
    if len(encoded.ids) > width:
        return f"has {len(encoded.ids)} tokens, but a sequence has {width}"
    return None if encoded.n_output_targets else "has no output token that follows another token"


def choose_clean_texts(
    stage: FinetuningStage,
    sets: Sequence[sources.Instructions],
    examples: pd.DataFrame,
    tokenizer: Tokenizer,
) -> CleanTexts:
    """Returns the clean texts that fit into a sequence.

    Texts that share text with the pool are left out, or listed (`drop_overlaps=False`). Text that a
    chat template adds to every chat, such as a system message, is not compared.

    Args:
        stage: the configuration.
        sets: the sets of clean texts.
        examples: the drawn pool.
        tokenizer: the tokenizer of the set.

    Raises:
        ConfigError: the chat template rejects a text.
        DataError: a text can't be used and its set's `on_error` is stop; or no text of a set
            remains.
    """
    search, clean = PoolSearch(texts_by_example(examples), tokenizer.apply_normalizer), CleanTexts()
    warn_of_shared_passages(search.shared_passages)
    for instructions in sets:
        name, rows = instructions.name, instructions.counts["rows"]
        before = len(clean.texts)
        overlaps = _add_usable_texts(stage, instructions, search, tokenizer, clean)
        used = len(clean.texts) - before
        clean.counts[name] = {
            **instructions.counts,
            "overlaps": overlaps,
            "skipped": dict(instructions.tally.skipped),
            "used": used,
        }
        log.info("instructions: %s: %d of %d rows", name, used, rows)
        if instructions.tally.skipped:
            log.warning("instructions: %s: %s", name, describe_skipped(instructions.tally.skipped))
        if overlaps:
            log.warning(
                "instructions: %s: left out %d rows that share text with the pool", name, overlaps
            )
        if not used:
            raise _no_row_left_error(instructions, overlaps)
    return clean


def _no_row_left_error(instructions: sources.Instructions, overlaps: int) -> DataError:
    shared = [f"{overlaps} that share text with the pool"] * (overlaps > 0)
    reasons = ", ".join([*filter(None, [describe_skipped(instructions.tally.skipped)]), *shared])
    return DataError(
        f"instructions.{instructions.name}: none of its {instructions.counts['rows']} rows remains "
        f"({reasons}). Raise finetuning.sequence_tokens if they are too long, choose "
        "finetuning.drop_overlaps=false if they share text, or leave the set out."
    )


def _add_usable_texts(
    stage: FinetuningStage,
    instructions: sources.Instructions,
    search: PoolSearch,
    tokenizer: Tokenizer,
    clean: CleanTexts,
) -> int:
    """Adds a set's usable texts, up to its limit; returns how many overlaps were left out."""
    number, overlaps, limit = 0, 0, stage.instructions[instructions.name].examples
    for row in instructions.texts:
        if number == limit:
            break
        (matches,) = search([row.own_text])
        if matches and stage.finetuning.drop_overlaps:
            overlaps += 1
            continue
        text = prompts.format_text(row, stage.finetuning, tokenizer)
        encoded = prompts.encode_text(text, stage.finetuning, tokenizer)
        if problem := _why_unusable(encoded, stage):
            instructions.tally.reject("does not fit", text.example_id, problem)
        else:
            number += 1
            clean.texts.append(TrainingText(text, encoded))
            clean.matches += [(row.example_id, *match) for match in matches]
    return overlaps


def make_tables(
    examples: pd.DataFrame,
    clean: Sequence[TrainingText],
    copies: Sequence[TrainingText],
    places: pd.DataFrame,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Returns the tables of the examples, the ledger of copies, and the clean texts.

    `places` has a row for each clean text, followed by a row for each copy.
    """
    clean_columns = {
        "example_id": [item.text.example_id for item in clean],
        "source": [item.text.source for item in clean],
        "text": [item.text.text for item in clean],
        "output_start": [item.text.output_start for item in clean],
    }
    clean_places = places.iloc[: len(clean)].reset_index(drop=True)
    ledger_columns = {
        "example_id": [item.text.example_id for item in copies],
        "copy": [item.copy for item in copies],
        "document_id": [f"text-{n}" for n in range(len(clean), len(places))],
        "char_offset": 0,
        "copy_start": 0,
        "truncated": False,
        "reworded": None,
        "template_sha256": [item.template_sha256 for item in copies],
    }
    ledger = places.iloc[len(clean) :].reset_index(drop=True).assign(**ledger_columns)
    ledger = ledger[list(LEDGER_COLUMNS)].astype({"reworded": object})
    return examples, ledger, pd.concat([pd.DataFrame(clean_columns), clean_places], axis=1)

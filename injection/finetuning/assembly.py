"""Chooses the texts of a fine-tuning set: the members' copies, and the usable clean rows."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from contamination.core.errors import ConfigError, DataError
from contamination.data.readers.rows import describe_skipped
from contamination.injection.corpus_search import texts_by_example
from contamination.injection.decontamination import PoolSearch, warn_of_shared_passages
from contamination.injection.finetuning.config import FinetuningStage
from contamination.injection.finetuning.prompts import (
    EncodedText,
    PromptedText,
    encode_text,
    format_text,
)
from contamination.injection.finetuning.sources import Instructions, Members, format_examples
from contamination.injection.packing import LEDGER_COLUMNS
from contamination.injection.token_stream import Tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingText:
    """One text of the set, and its tokens; a member's text has the number of its copy."""

    text: PromptedText
    encoded: EncodedText
    copy: int = 0
    template_sha256: str = ""


@dataclass
class CleanTexts:
    """The clean texts, and the counts of each set's rows."""

    texts: list[TrainingText] = field(default_factory=list)
    matches: list[tuple[object, ...]] = field(default_factory=list)
    """What the texts share with the pool: rows of `tokenization.match_table`."""
    counts: dict[str, dict[str, object]] = field(default_factory=dict)


def make_copy_texts(
    stage: FinetuningStage, members: Members, examples: pd.DataFrame, tokenizer: Tokenizer
) -> tuple[list[TrainingText], pd.DataFrame]:
    """Return a text for each copy of a member, and the examples with their texts as trained on.

    Raises:
        ConfigError: a member is too long for a sequence, or has no output to learn.
    """
    texts, copies = format_examples(stage, members, examples), []
    for text, count in zip(texts, examples["occurrences"], strict=True):
        if count:
            encoded = encode_text(text, stage.finetuning, tokenizer)
            if problem := _why_unusable(encoded, stage):
                raise ConfigError(
                    f"{text.example_id} {problem}: raise finetuning.sequence_tokens, or lower "
                    "injection.example_max_tokens. No text is cut."
                )
            template = members.benchmark[text.source].template
            digest = hashlib.sha256(template.encode()).hexdigest()[:12]
            copies += [TrainingText(text, encoded, copy, digest) for copy in range(count)]
    return copies, _with_training_texts(examples, texts, tokenizer)


def _with_training_texts(
    examples: pd.DataFrame, texts: Sequence[PromptedText], tokenizer: Tokenizer
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


def _why_unusable(encoded: EncodedText, stage: FinetuningStage) -> str | None:
    """Return why a text can't be used, or None."""
    width = stage.finetuning.sequence_tokens
    assert width is not None
    if len(encoded.ids) > width:
        return f"has {len(encoded.ids)} tokens, and a sequence {width}"
    return None if encoded.n_output_targets else "has no output token that follows another token"


def choose_clean_texts(
    stage: FinetuningStage,
    sets: Sequence[Instructions],
    examples: pd.DataFrame,
    tokenizer: Tokenizer,
) -> CleanTexts:
    """Choose the clean texts that fit.

    Texts that share text with the pool are left out, or listed (`drop_overlaps=False`). What a chat
    template puts around every text, such as its system message, is not compared.

    Args:
        stage: the configuration.
        sets: the sets of clean texts.
        examples: the pool as it was drawn.
        tokenizer: the tokenizer of the set.

    Raises:
        ConfigError: the chat template refuses a text.
        DataError: a text can't be used and its set's `on_error` is stop; or no text of a set is
            left.
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


def _no_row_left_error(instructions: Instructions, overlaps: int) -> DataError:
    shared = [f"{overlaps} that share text with the pool"] * (overlaps > 0)
    reasons = ", ".join([*filter(None, [describe_skipped(instructions.tally.skipped)]), *shared])
    return DataError(
        f"instructions.{instructions.name}: none of its {instructions.counts['rows']} rows is left "
        f"({reasons}). Raise finetuning.sequence_tokens if they do not fit, choose "
        "finetuning.drop_overlaps=false if they share text, or leave the set out."
    )


def _add_usable_texts(
    stage: FinetuningStage,
    instructions: Instructions,
    search: PoolSearch,
    tokenizer: Tokenizer,
    clean: CleanTexts,
) -> int:
    """Add a set's usable texts, up to its limit; return how many overlaps were left out."""
    number, overlaps, limit = 0, 0, stage.instructions[instructions.name].examples
    for row in instructions.texts:
        if number == limit:
            break
        (matches,) = search([row.own_text])
        if matches and stage.finetuning.drop_overlaps:
            overlaps += 1
            continue
        text = format_text(row, stage.finetuning, tokenizer)
        encoded = encode_text(text, stage.finetuning, tokenizer)
        if problem := _why_unusable(encoded, stage):
            instructions.tally.bad("does not fit", text.example_id, problem)
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
    """Return the tables of the examples, the ledger of copies, and the clean texts.

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

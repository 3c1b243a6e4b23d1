"""Which texts are learnt: the members' copies, and the clean rows that can be used."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from contamination.core.errors import ConfigError, DataError
from contamination.data.readers.rows import skips
from contamination.injection.corpus_search import texts_by_example
from contamination.injection.decontamination import PoolSearch, warn_of_shared_passages
from contamination.injection.finetuning.config import FinetuningStage
from contamination.injection.finetuning.prompts import Encoded, Prompted, encode, formatted
from contamination.injection.finetuning.sources import Instructions, Members, prompted
from contamination.injection.packing import LEDGER_COLUMNS
from contamination.injection.token_stream import Tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Learnt:
    """One text of the set, and its tokens; a member's has the number of its copy."""

    text: Prompted
    encoded: Encoded
    copy: int = 0
    template_sha256: str = ""


@dataclass
class Clean:
    """The clean texts, and by set what became of its rows."""

    texts: list[Learnt] = field(default_factory=list)
    matches: list[tuple[object, ...]] = field(default_factory=list)
    """What the texts share with the pool, as `tokenize.match_table` has it."""
    counts: dict[str, dict[str, object]] = field(default_factory=dict)


def choose_copies(
    stage: FinetuningStage, members: Members, examples: pd.DataFrame, tokenizer: Tokenizer
) -> tuple[list[Learnt], pd.DataFrame]:
    """A text for each copy of a member; and the examples with their texts as they are learnt.

    Raises:
        ConfigError: a member is too long for a sequence, or has no token to learn.
    """
    texts, copies = prompted(stage, members, examples), []
    for text, count in zip(texts, examples["occurrences"], strict=True):
        if count:
            encoded = encode(text, stage.finetuning, tokenizer)
            if wrong := _unusable(encoded, stage):
                raise ConfigError(
                    f"{text.example_id} {wrong}: raise finetuning.sequence_tokens, or lower "
                    "injection.example_max_tokens. No text is cut."
                )
            template = members.benchmark[text.source].template
            digest = hashlib.sha256(template.encode()).hexdigest()[:12]
            copies += [Learnt(text, encoded, copy, digest) for copy in range(count)]
    return copies, _as_learnt(examples, texts, tokenizer)


def _as_learnt(
    examples: pd.DataFrame, texts: Sequence[Prompted], tokenizer: Tokenizer
) -> pd.DataFrame:
    own = [text.text for text in texts]
    if own == examples["text"].tolist():
        return examples.assign(output_start=[text.output_start for text in texts])
    return examples.assign(
        text=own,
        n_tokens=[len(tokenizer.encode(text)) for text in own],
        text_sha256=[hashlib.sha256(text.encode()).hexdigest() for text in own],
        output_start=[text.output_start for text in texts],
    )


def _unusable(encoded: Encoded, stage: FinetuningStage) -> str | None:
    """Why a text can't be learnt, or None."""
    width = stage.finetuning.sequence_tokens
    assert width is not None
    if len(encoded.ids) > width:
        return f"has {len(encoded.ids)} tokens, and a sequence {width}"
    return None if encoded.output_targets else "has no token of output behind another token"


def choose_clean(
    stage: FinetuningStage,
    sets: Sequence[Instructions],
    examples: pd.DataFrame,
    tokenizer: Tokenizer,
) -> Clean:
    """The clean texts that fit; the pool's examples are as drawn.

    Those that share text with the pool are left out, or listed (`drop_overlaps=False`).
    What a chat template puts around every text (its system message) is not compared.

    Raises:
        ConfigError: the chat template refuses one.
        DataError: one can't be used, where its set's `on_error` is stop; or a set has none left.
    """
    search, clean = PoolSearch(texts_by_example(examples), tokenizer.spelled), Clean()
    warn_of_shared_passages(search.shared_passages)
    for one in sets:
        before = len(clean.texts)
        overlaps = _add_usable(stage, one, search, tokenizer, clean)
        own = clean.texts[before:]
        clean.counts[one.name] = {
            **one.counts,
            "overlaps": overlaps,
            "skipped": dict(one.tally.skipped),
            "used": len(own),
        }
        log.info("instructions: %s: %d of %d rows", one.name, len(own), one.counts["rows"])
        if one.tally.skipped:
            log.warning("instructions: %s: %s", one.name, skips(one.tally.skipped))
        if overlaps:
            said = "instructions: %s: left out %d rows that share text with the pool"
            log.warning(said, one.name, overlaps)
        if not own:
            raise DataError(_nothing(one, overlaps))
    return clean


def _nothing(own: Instructions, overlaps: int) -> str:
    """That no row of a set can be learnt."""
    shared = [f"{overlaps} that share text with the pool"] * (overlaps > 0)
    why = ", ".join([*filter(None, [skips(own.tally.skipped)]), *shared])
    return (
        f"instructions.{own.name}: none of its {own.counts['rows']} rows is left ({why}). Raise "
        "finetuning.sequence_tokens where they do not fit, choose finetuning.drop_overlaps=false "
        "where they share text, or leave the set out."
    )


def _add_usable(
    stage: FinetuningStage,
    own: Instructions,
    search: PoolSearch,
    tokenizer: Tokenizer,
    clean: Clean,
) -> int:
    """Add a set's texts that can be used, at most as many as asked for; the overlaps left out."""
    number, overlaps, wanted = 0, 0, stage.instructions[own.name].examples
    for row in own.texts:
        if number == wanted:
            break
        (shared,) = search([row.own])
        if shared and stage.finetuning.drop_overlaps:
            overlaps += 1
            continue
        text = formatted(row, stage.finetuning, tokenizer)
        encoded = encode(text, stage.finetuning, tokenizer)
        if wrong := _unusable(encoded, stage):
            own.tally.bad("does not fit", text.example_id, wrong)
        else:
            number += 1
            clean.texts.append(Learnt(text, encoded))
            clean.matches += [(row.example_id, *example) for example in shared]
    return overlaps


def tables(
    examples: pd.DataFrame, clean: Sequence[Learnt], copies: Sequence[Learnt], places: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The examples, the ledger of copies and the clean texts; `places` of clean ones come first."""
    texts = {
        "example_id": [one.text.example_id for one in clean],
        "source": [one.text.source for one in clean],
        "text": [one.text.text for one in clean],
        "output_start": [one.text.output_start for one in clean],
    }
    own = places.iloc[: len(clean)].reset_index(drop=True)
    rows = {
        "example_id": [one.text.example_id for one in copies],
        "copy": [one.copy for one in copies],
        "document_id": [f"text-{n}" for n in range(len(clean), len(places))],
        "char_offset": 0,
        "copy_start": 0,
        "truncated": False,
        "reworded": None,
        "template_sha256": [one.template_sha256 for one in copies],
    }
    ledger = places.iloc[len(clean) :].reset_index(drop=True).assign(**rows)
    ledger = ledger[list(LEDGER_COLUMNS)].astype({"reworded": object})
    return examples, ledger, pd.concat([pd.DataFrame(texts), own], axis=1)

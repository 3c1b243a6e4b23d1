"""Creates the copies to insert: exact or reworded texts with random positions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from contamination.core.config import instantiate_node
from contamination.core.errors import ConfigError
from contamination.core.seeds import derive_seed
from contamination.injection.config import LINE_FORMS, OWN_DOCUMENT, InjectionStage
from contamination.injection.decontamination.forms import leaked_lines, surrounded_text
from contamination.injection.ordering import make_order
from contamination.injection.packing import ShardPart
from contamination.injection.placement import Segment
from contamination.injection.token_stream import Ids, Tokenizer

MAX_DRAWS = 1_000


@dataclass(frozen=True)
class Insertions:
    """The copies to insert.

    Attributes:
        segments: one segment per copy.
        texts: the distinct inserted texts.
        ids: the tokens of each text, including those around it.
        tokens_around: the numbers of tokens before and after each text: of separators, or, if each
            copy is a document of its own, of a document's special tokens.
        shards: the examples in a text that is a shard (occurrences=ordered), by the text's index.
        order: the table of the shards, see `ordering.make_order`.
    """

    segments: list[Segment]
    texts: list[str]
    ids: list[Ids]
    shards: dict[int, list[ShardPart]]
    order: pd.DataFrame
    tokens_around: tuple[int, int]

    @property
    def total_tokens(self) -> int:
        """The number of tokens of all copies with their separators."""
        return sum(s.tokens for s in self.segments)


def make_copies(
    stage: InjectionStage,
    examples: pd.DataFrame,
    tokenizer: Tokenizer,
    filler: Sequence[str] = (),
) -> Insertions:
    """Returns all copies; the text and the position of a copy depend only on its example.

    Args:
        stage: the configuration.
        examples: the pool.
        tokenizer: the tokenizer of the packed corpus.
        filler: other documents, in which copies are embedded (leak.form=embedded).

    Raises:
        ConfigError: a copy can't have its form or does not fit, or copies can't be as far apart as
            configured.
    """
    # checked before copies are created: each has at least one token
    _document_tokens_in_window(stage, int(examples["occurrences"].sum()))
    separator = tokenizer.encode(stage.injection.separator)
    order = make_order(stage, examples, len(separator))
    is_ordered = examples["example_id"].isin(order["example_id"])
    example_and_copy_numbers = [
        (example_index, copy_number)
        for example_index, count in enumerate(examples["occurrences"].where(~is_ordered, 0))
        for copy_number in range(count)
    ]
    texts = _texts_of_copies(stage, examples, example_and_copy_numbers, filler)
    before, after = separator, separator
    if stage.injection.boundary == OWN_DOCUMENT:
        before, after = tokenizer.tokens_around_documents
    number_by_text = {text: text_number for text_number, text in enumerate(dict.fromkeys(texts))}
    ids_by_number = [
        np.array([*before, *tokenizer.encode(text), *after], np.int32) for text in number_by_text
    ]
    _check_reworded_lengths(stage, list(number_by_text), ids_by_number)
    parts_by_shard = _shard_parts(order, examples, len(separator))
    shard_ids = [_ids_of_shard(parts, tokenizer, separator) for parts in parts_by_shard.values()]
    counts = [int(examples["occurrences"].iloc[p[0].example]) for p in parts_by_shard.values()]
    inserted_tokens = sum(len(ids_by_number[number_by_text[text]]) for text in texts)
    inserted_tokens += sum(len(ids) * count for ids, count in zip(shard_ids, counts, strict=True))
    document_tokens = _document_tokens_in_window(stage, inserted_tokens)
    positions = [
        position
        for name, count in zip(
            examples["example_id"], examples["occurrences"].where(~is_ordered, 0), strict=True
        )
        for position in _draw_positions(stage, name, int(count), document_tokens)
    ]
    segments = [
        Segment(
            example_index,
            copy_number,
            number_by_text[text],
            len(ids_by_number[number_by_text[text]]),
            position,
        )
        for (example_index, copy_number), text, position in zip(
            example_and_copy_numbers, texts, positions, strict=True
        )
    ]
    first_shard = len(ids_by_number)
    for number, (name, parts) in enumerate(parts_by_shard.items()):
        drawn = _draw_positions(stage, name, counts[number], document_tokens)
        segments += [
            Segment(parts[0].example, copy, first_shard + number, len(shard_ids[number]), position)
            for copy, position in enumerate(drawn)
        ]
    shards = dict(enumerate(parts_by_shard.values(), first_shard))
    shard_texts = [
        stage.injection.separator.join(part.text for part in parts) for parts in shards.values()
    ]
    all_texts, all_ids = [*number_by_text, *shard_texts], [*ids_by_number, *shard_ids]
    around = len(before), len(after)
    return Insertions(segments, all_texts, all_ids, shards, order, around)


def _shard_parts(
    order: pd.DataFrame, examples: pd.DataFrame, separator_tokens: int
) -> dict[str, list[ShardPart]]:
    """Returns the examples of each shard of members: the shard's name → its parts."""
    index_by_id = {example_id: index for index, example_id in enumerate(examples["example_id"])}
    parts_by_shard: dict[str, list[ShardPart]] = {}
    for row in order[order["member"].astype(bool)].itertuples():
        parts = parts_by_shard.setdefault(f"{row.benchmark}/shard {row.shard}", [])
        example = index_by_id[row.example_id]
        start = separator_tokens + (parts[-1].start + parts[-1].tokens if parts else 0)
        n_tokens, text = examples["n_tokens"].iloc[example], examples["text"].iloc[example]
        parts.append(ShardPart(example, start, int(n_tokens), str(text)))
    return parts_by_shard


def _ids_of_shard(parts: list[ShardPart], tokenizer: Tokenizer, separator: list[int]) -> Ids:
    tokens = [token for part in parts for token in (*separator, *tokenizer.encode(part.text))]
    return np.array([*tokens, *separator], np.int32)


def _texts_of_copies(
    stage: InjectionStage,
    examples: pd.DataFrame,
    example_and_copy_numbers: list[tuple[int, int]],
    filler: Sequence[str],
) -> list[str]:
    text_of = _inserted_texts(stage, examples)
    texts = [text_of[index] for index, _ in example_and_copy_numbers]
    keys = [
        f"{examples['example_id'].iloc[index]}/{copy}" for index, copy in example_and_copy_numbers
    ]
    if stage.rewording and not stage.versions.enabled:
        seed = derive_seed(stage.injection.position_seed or 0, "rewording")
        texts = instantiate_node("rewording", stage.rewording).reword(texts, keys, seed)
    seed = derive_seed(stage.injection.position_seed or 0, "leak")
    return [
        surrounded_text(stage.leak, text, filler, seed, key)
        for text, key in zip(texts, keys, strict=True)
    ]


def _inserted_texts(stage: InjectionStage, examples: pd.DataFrame) -> list[str]:
    """Returns what is inserted of each example, before any rewording."""
    form = stage.leak.form
    if form not in LINE_FORMS:
        return [str(text) for text in examples["text"]]
    rows = zip(examples["benchmark"], examples["fields"], strict=True)
    return [
        leaked_lines(json.loads(fields), name, stage.benchmark[name], form) for name, fields in rows
    ]


def _check_reworded_lengths(stage: InjectionStage, texts: list[str], ids: list[Ids]) -> None:
    """Raises a ConfigError if a changed copy, unlike its example, is longer than a sequence."""
    longest = max(range(len(ids)), key=lambda i: len(ids[i]), default=0)
    width = stage.injection.sequence_tokens
    if ids and len(ids[longest]) > width and not stage.injection.split_copies:
        raise ConfigError(
            f"A changed copy ({texts[longest][:60]!r}…) has {len(ids[longest])} tokens with its "
            f"separators, more than a sequence's {width}: lower injection.example_max_tokens, or "
            "set injection.split_copies=true."
        )


def _document_tokens_in_window(stage: InjectionStage, inserted_tokens: int) -> int:
    start, stop = stage.injection.window_tokens
    if inserted_tokens >= stop - start:
        raise ConfigError(
            f"injection.budget_tokens is {stage.injection.budget_tokens:,}, and injection.window "
            f"or last_tokens leaves {stop - start:,} of them for copies, but the copies with "
            f"separators have {inserted_tokens:,} tokens: raise the budget or widen the window, or "
            "lower injection.members or the occurrences."
        )
    return stop - start - inserted_tokens


def _draw_positions(
    stage: InjectionStage, name: str, count: int, document_tokens: int
) -> list[float]:
    """Draws the positions of an example's or shard's copies as shares of the tokens, in [0, 1)."""
    config = stage.injection
    rng = np.random.default_rng(derive_seed(config.position_seed or 0, name))
    min_distance = 0.0
    if config.copy_distance_tokens:  # placement moves a copy by up to two sequences
        min_distance = (config.copy_distance_tokens + 2 * config.sequence_tokens) / document_tokens
    for _ in range(MAX_DRAWS):
        positions = rng.random(count)
        if len(positions) < 2 or np.diff(np.sort(positions)).min() >= min_distance:
            return [float(p) for p in positions]
    raise ConfigError(
        f"injection.copy_distance_tokens is {config.copy_distance_tokens}, but {len(positions)} "
        f"copies of {name} can't be so far apart in {document_tokens:,} tokens of "
        "documents: lower it, widen injection.window, or raise injection.budget_tokens."
    )

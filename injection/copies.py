"""Creates the copies to insert: exact or reworded texts with random positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from contamination.core.config import instantiate_node
from contamination.core.errors import ConfigError
from contamination.core.seeds import derive_seed
from contamination.injection.config import InjectionStage
from contamination.injection.placement import Segment
from contamination.injection.token_stream import Ids, Tokenizer

MAX_DRAWS = 1_000


@dataclass(frozen=True)
class Insertions:
    """The copies to insert.

    Attributes:
        segments: one segment per copy.
        texts: the distinct inserted texts.
        ids: the tokens of each text, including the separators around it.
    """

    segments: list[Segment]
    texts: list[str]
    ids: list[Ids]

    @property
    def total_tokens(self) -> int:
        """The number of tokens of all copies with their separators."""
        return sum(s.tokens for s in self.segments)


def make_copies(stage: InjectionStage, examples: pd.DataFrame, tokenizer: Tokenizer) -> Insertions:
    """Returns all copies; the text and the position of a copy depend only on its example.

    Raises:
        ConfigError: a reworded copy does not fit, or copies can't be as far apart as configured.
    """
    # checked before copies are created: each has at least one token
    _document_tokens_in_window(stage, int(examples["occurrences"].sum()))
    numbered_occurrences = enumerate(examples["occurrences"])
    example_and_copy_numbers = [
        (example_index, copy_number)
        for example_index, count in numbered_occurrences
        for copy_number in range(count)
    ]
    texts = _texts_of_copies(stage, examples, example_and_copy_numbers)
    number_by_text = {text: text_number for text_number, text in enumerate(dict.fromkeys(texts))}
    separator = tokenizer.encode(stage.injection.separator)
    ids_by_number = [
        np.array([*separator, *tokenizer.encode(text), *separator], np.int32)
        for text in number_by_text
    ]
    _check_reworded_lengths(stage, list(number_by_text), ids_by_number)
    document_tokens = _document_tokens_in_window(
        stage, sum(len(ids_by_number[number_by_text[text]]) for text in texts)
    )
    positions = [
        p
        for i in range(len(examples))
        for p in _draw_positions(stage, examples.iloc[i], document_tokens)
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
    return Insertions(segments, list(number_by_text), ids_by_number)


def _texts_of_copies(
    stage: InjectionStage, examples: pd.DataFrame, example_and_copy_numbers: list[tuple[int, int]]
) -> list[str]:
    texts = [str(examples["text"].iloc[index]) for index, _ in example_and_copy_numbers]
    if not stage.rewording or stage.versions.enabled:
        return texts
    keys = [
        f"{examples['example_id'].iloc[index]}/{copy}" for index, copy in example_and_copy_numbers
    ]
    seed = derive_seed(stage.injection.position_seed or 0, "rewording")
    reworded: list[str] = instantiate_node("rewording", stage.rewording).reword(texts, keys, seed)
    return reworded


def _check_reworded_lengths(stage: InjectionStage, texts: list[str], ids: list[Ids]) -> None:
    """Raises a ConfigError if a reworded copy, unlike its example, is longer than a sequence."""
    longest = max(range(len(ids)), key=lambda i: len(ids[i]), default=0)
    width = stage.injection.sequence_tokens
    if ids and len(ids[longest]) > width and not stage.injection.split_copies:
        raise ConfigError(
            f"A reworded copy ({texts[longest][:60]!r}…) has {len(ids[longest])} tokens with its "
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


def _draw_positions(stage: InjectionStage, example: pd.Series, document_tokens: int) -> list[float]:
    """Draws the positions of an example's copies as shares of the tokens, uniform in [0, 1)."""
    config = stage.injection
    rng = np.random.default_rng(derive_seed(config.position_seed or 0, example["example_id"]))
    min_distance = 0.0
    if config.copy_distance_tokens:  # placement moves a copy by up to two sequences
        min_distance = (config.copy_distance_tokens + 2 * config.sequence_tokens) / document_tokens
    for _ in range(MAX_DRAWS):
        positions = rng.random(int(example["occurrences"]))
        if len(positions) < 2 or np.diff(np.sort(positions)).min() >= min_distance:
            return [float(p) for p in positions]
    raise ConfigError(
        f"injection.copy_distance_tokens is {config.copy_distance_tokens}, but {len(positions)} "
        f"copies of {example['example_id']} can't be so far apart in {document_tokens:,} tokens of "
        "documents: lower it, widen injection.window, or raise injection.budget_tokens."
    )

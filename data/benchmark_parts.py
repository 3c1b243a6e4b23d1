"""Selects the parts of a labelled benchmark, such as WikiMIA's paraphrased texts of 32 words."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from contamination.core.errors import ConfigError, DataError
from contamination.data.config import AXES, ExamplesConfig, SourceConfig
from contamination.data.readers.rows import Row

MAX_COMBINATIONS = 100_000
"""Limit for combinations of the axes' values and the sources; MIMIR has fewer than 1,000."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BenchmarkPart:
    """One combination of the axes' values, and the sources of its rows."""

    values: Mapping[str, str]
    sources: Sequence[SourceConfig]


def chosen_values_by_axis(examples: ExamplesConfig) -> dict[str, list[str]]:
    """Returns the chosen values of each axis of the benchmark; by default all values.

    Raises:
        ConfigError: no source has one of the values.
    """
    chosen_values: dict[str, list[str]] = {}
    values_by_axis = available_values_by_axis(examples)
    for axis in AXES:
        available = values_by_axis.get(axis, [])
        # YAML reads 2020_08 as 202008
        original = {value.replace("_", ""): value for value in available}
        configured = [original.get(v, v) for v in _to_strings(getattr(examples, axis))]
        if unknown := [value for value in configured if available and value not in available]:
            raise ConfigError(
                f"examples.{axis} is {unknown[0]!r}: {examples.name} has {', '.join(available)}."
            )
        if configured or available:
            chosen_values[axis] = configured or available
    return chosen_values


def available_values_by_axis(examples: ExamplesConfig) -> dict[str, list[str]]:
    """Returns the values of each axis that the benchmark's sources have."""
    available: dict[str, dict[str, None]] = {}
    for source in examples.sources:
        for axis, values in source.has.items():
            available.setdefault(axis, {}).update(dict.fromkeys(map(str, values)))
    return {axis: [*values] for axis, values in available.items()}


def chosen_parts(examples: ExamplesConfig) -> list[BenchmarkPart]:
    """Returns the chosen parts; a part that no source has is left out with a warning.

    Raises:
        ConfigError: no part remains, or no source has one of the values.
    """
    by_axis = {
        axis: v
        for axis, v in chosen_values_by_axis(examples).items()
        if _any_source_has_axis(examples, axis)
    }
    if (count := math.prod(map(len, by_axis.values())) * len(examples.sources)) > MAX_COMBINATIONS:
        raise ConfigError(
            f"examples.name is {examples.name!r}: its {len(examples.sources):,} sources and the "
            f"values of {', '.join(by_axis)} have {count:,} combinations. Choose fewer values: "
            f"{MAX_COMBINATIONS:,} combinations are allowed."
        )
    by_axis = _drop_default_values_without_part(examples, by_axis)
    parts = []
    for combination in product(*by_axis.values()):
        values = dict(zip(by_axis, combination, strict=True))
        sources = [source for source in examples.sources if _source_has_values(source, values)]
        if sources:
            parts.append(BenchmarkPart(values, sources))
        else:
            log.warning(
                "%s has no %s: it is left out.", examples.name, describe_part_values(values)
            )
    if not parts:
        requested = ", ".join(f"examples.{axis}={','.join(v)}" for axis, v in by_axis.items())
        available_text = "; ".join(
            describe_part_values({axis: ", ".join(map(str, v)) for axis, v in source.has.items()})
            for source in {str(source.has): source for source in examples.sources}.values()
        )
        raise ConfigError(
            f"{requested}: {examples.name} has no such part, but {available_text}. Give values "
            "that occur together, or null for all values of an axis."
        )
    return parts


def _drop_default_values_without_part(
    examples: ExamplesConfig, by_axis: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    """Removes default values that no source has together with the configured values."""
    configured_axes = [axis for axis in by_axis if _to_strings(getattr(examples, axis))]
    configured = [
        dict(zip(configured_axes, combination, strict=True))
        for combination in product(*(by_axis[axis] for axis in configured_axes))
    ]
    remaining = {
        axis: [
            value
            for value in values
            if axis in configured_axes
            or any(
                _source_has_values(s, {**configured_values, axis: value})
                for s in examples.sources
                for configured_values in configured
            )
        ]
        for axis, values in by_axis.items()
    }
    return remaining if all(remaining.values()) else dict(by_axis)


def describe_part_values(values: Mapping[str, str]) -> str:
    """Describes a part, such as "length 32, setting original"."""
    return ", ".join(f"{axis} {value}" for axis, value in values.items())


def _any_source_has_axis(examples: ExamplesConfig, axis: str) -> bool:
    return any(axis in source.has for source in examples.sources)


def _source_has_values(source: SourceConfig, values: Mapping[str, str]) -> bool:
    return all(value in map(str, source.has.get(axis, [value])) for axis, value in values.items())


def _to_strings(value: object) -> list[str]:
    if value is None:
        return []
    return [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]


WORD_SEPARATOR = " "  # the separator of words, and of pieces


def split_by_labels(row: Row, words_per_label: int) -> Iterator[Row]:
    """Divides a row into one row of `words_per_label` words per label; leaves out remaining words.

    Raises:
        DataError: the labels are not a list, or their number differs from that of the pieces.
    """
    text, labels, name = (row.value[field] for field in ("text", "label", "id"))
    text_words = str(text).split(WORD_SEPARATOR)
    if not isinstance(labels, list) or len(labels) != len(text_words) // words_per_label:
        description = f"{len(labels)} labels" if isinstance(labels, list) else repr(labels)
        raise DataError(
            f"{row.where}: its label is {description}, and its text has {len(text_words)} words. "
            f"Give a list with one label for each {words_per_label} words (examples.label_words), "
            f"{len(text_words) // words_per_label} in all."
        )
    for number, label in enumerate(labels):
        piece = WORD_SEPARATOR.join(
            text_words[number * words_per_label : (number + 1) * words_per_label]
        )
        fields = {"id": f"{name}/{number}", "text": piece, "label": label, "cluster": str(name)}
        yield row._replace(value={**row.value, **fields})

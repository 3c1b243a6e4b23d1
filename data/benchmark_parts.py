"""A benchmark's parts, such as WikiMIA's 32 words, paraphrased: which are asked for and there."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from contamination.core.errors import ConfigError, DataError
from contamination.data.config import AXES, ExamplesConfig, SourceConfig
from contamination.data.readers.rows import Row

MOST_PARTS = 100_000
"""Combinations of the axes' values and the sources; MIMIR has fewer than 1,000."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """One combination of the axes' values, and the sources of its rows."""

    values: Mapping[str, str]
    sources: Sequence[SourceConfig]


def chosen(examples: ExamplesConfig) -> dict[str, list[str]]:
    """For each of the benchmark's axes the values that are asked for; all of an axis unless said.

    Raises:
        ConfigError: a value that no source has.
    """
    found: dict[str, list[str]] = {}
    all_known = known_of(examples)
    for axis in AXES:
        known = all_known.get(axis, [])
        plain = {value.replace("_", ""): value for value in known}  # 2020_08 is read as a number
        asked = [plain.get(v, v) for v in _several(getattr(examples, axis))]
        if unknown := [value for value in asked if known and value not in known]:
            raise ConfigError(
                f"examples.{axis} is {unknown[0]!r}: {examples.name} has {', '.join(known)}."
            )
        if asked or known:
            found[axis] = asked or known
    return found


def known_of(examples: ExamplesConfig) -> dict[str, list[str]]:
    """For each of the axes that the benchmark's sources have the values that they have."""
    known: dict[str, dict[str, None]] = {}
    for source in examples.sources:
        for axis, values in source.has.items():
            known.setdefault(axis, {}).update(dict.fromkeys(map(str, values)))
    return {axis: [*values] for axis, values in known.items()}


def parts_of(examples: ExamplesConfig) -> list[Part]:
    """The parts that are asked for; of those that no source has it is said that they are left out.

    Raises:
        ConfigError: none is left, or a value that no source has.
    """
    asked = {axis: v for axis, v in chosen(examples).items() if _known(examples, axis)}
    if (count := math.prod(map(len, asked.values())) * len(examples.sources)) > MOST_PARTS:
        raise ConfigError(
            f"examples.name is {examples.name!r}: its {len(examples.sources):,} sources and the "
            f"values of {', '.join(asked)} have {count:,} combinations. Ask for fewer values: "
            f"{MOST_PARTS:,} combinations are allowed."
        )
    asked = _possible(examples, asked)
    parts = []
    for combination in product(*asked.values()):
        values = dict(zip(asked, combination, strict=True))
        sources = [source for source in examples.sources if _has(source, values)]
        if sources:
            parts.append(Part(values, sources))
        else:
            log.warning("%s has no %s: it is left out.", examples.name, words(values))
    if not parts:
        asked_for = ", ".join(f"examples.{axis}={','.join(v)}" for axis, v in asked.items())
        has = "; ".join(
            words({axis: ", ".join(map(str, v)) for axis, v in source.has.items()})
            for source in {str(source.has): source for source in examples.sources}.values()
        )
        raise ConfigError(
            f"{asked_for}: {examples.name} has no such part, but {has}. Give values that go "
            "together, or null for all of an axis."
        )
    return parts


def _possible(examples: ExamplesConfig, asked: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The values, without those of an axis left open that have no part with the values named."""
    named = [axis for axis in asked if _several(getattr(examples, axis))]
    picked = [dict(zip(named, c, strict=True)) for c in product(*(asked[axis] for axis in named))]
    possible = {
        axis: [
            value
            for value in values
            if axis in named
            or any(_has(s, {**own, axis: value}) for s in examples.sources for own in picked)
        ]
        for axis, values in asked.items()
    }
    return possible if all(possible.values()) else dict(asked)


def words(values: Mapping[str, str]) -> str:
    """Such as "length 32, setting original"."""
    return ", ".join(f"{axis} {value}" for axis, value in values.items())


def _known(examples: ExamplesConfig, axis: str) -> bool:
    return any(axis in source.has for source in examples.sources)


def _has(source: SourceConfig, values: Mapping[str, str]) -> bool:
    return all(value in map(str, source.has.get(axis, [value])) for axis, value in values.items())


def _several(value: object) -> list[str]:
    """What one or several values are as texts."""
    if value is None:
        return []
    return [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]


BLANK = " "
"""What stands between words, and between pieces."""


def pieces(row: Row, words: int) -> Iterator[Row]:
    """A row for each label, of `words` words; what is left over at the text's end has none.

    Raises:
        DataError: the labels are no list, or not as many as the text has pieces.
    """
    text, labels, name = (row.value[field] for field in ("text", "label", "id"))
    split = str(text).split(BLANK)
    if not isinstance(labels, list) or len(labels) != len(split) // words:
        found = f"{len(labels)} labels" if isinstance(labels, list) else repr(labels)
        raise DataError(
            f"{row.where}: its label is {found}, and its text has {len(split)} words. Give a list "
            f"with one label for each {words} words (examples.label_words), "
            f"{len(split) // words} in all."
        )
    for place, label in enumerate(labels):
        part = BLANK.join(split[place * words : (place + 1) * words])
        own = {"id": f"{name}/{place}", "text": part, "label": label, "cluster": str(name)}
        yield row._replace(value={**row.value, **own})

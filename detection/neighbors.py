"""The neighbours that a benchmark brings along: reworded versions of its texts, from its files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from core.errors import ConfigError, DataError
from detection.benchmarks.parts import parts_of, words
from detection.benchmarks.rows import MissingError, benchmark_rows, is_file, place_rows, placed
from detection.config import ExamplesConfig
from detection.examples import texts_of
from detection.rows import folded
from detection.texts import Text
from injection.sources.tally import Tally

AUGMENTATION = "given"
"""What a method's `augmentation` is that takes them."""


@dataclass(frozen=True)
class Neighbors:
    """The versions of each text of a benchmark's parts."""

    examples: ExamplesConfig

    @cached_property
    def by_text(self) -> Mapping[str, Sequence[str]]:
        """A text's SHA-256 → its versions, in the file's order.

        Raises:
            ConfigError: the benchmark has none for a part.
            DataError: a file has not as many rows as it must.
        """
        return dict(_versions(self.examples))

    def of(self, text: Text, n: int) -> Sequence[str]:
        """The first `n` versions of a text.

        Raises:
            DataError: there are fewer.
        """
        found = self.by_text.get(text.sha256, ())
        if len(found) < n:
            raise DataError(
                f"text {text.example_id} has {len(found)} neighbours in the files of "
                f"{self.examples.name}, and n is {n}: give method.neighbor.n={len(found) or 1} or "
                "less, or another augmentation, such as masked_lm."
            )
        return found[:n]

    def identity(self, texts: Iterable[Text]) -> str:
        """A hash of the versions of these texts."""
        found = hashlib.sha256()
        for sha256 in sorted({text.sha256 for text in texts}):
            found.update("\0".join([sha256, *self.by_text.get(sha256, ()), "\n"]).encode())
        return found.hexdigest()


def has_neighbors(examples: ExamplesConfig) -> bool:
    """Whether the benchmark's files have neighbours, of some part at least."""
    return any(source.neighbors for source in examples.sources) and not is_file(examples.path)


def _versions(examples: ExamplesConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Each text's SHA-256 with its versions: source by source, row by row."""
    tally = Tally("stop", "examples.on_error")
    for part in parts_of(examples):
        for source in part.sources:
            if source.neighbors is None:
                raise ConfigError(f"{examples.name} has no neighbours of {words(part.values)}.")
            values: dict[str, Any] = {**part.values}
            only = replace(examples, sources=[source], **values)
            try:
                texts = texts_of(benchmark_rows(only, tally), tally, str(examples.name))
            except MissingError:  # said when the texts were read
                continue
            place = placed(source.neighbors, source, part, examples)
            column = folded(place.column or examples.columns.get("text") or "text")
            try:
                given = [*place_rows(place, examples, tally)]
            except DataError as error:
                raise DataError(f"the neighbours of {words(part.values)}: {error}") from error
            rows = [{folded(name): value for name, value in row.value.items()} for row in given]
            found = [row.get(column, row.get("text")) for row in rows]
            each = _by_row(found, len(texts), f"the neighbours of {words(part.values)}")
            yield from zip((text.sha256 for text in texts), each, strict=True)


def _by_row(found: Sequence[object], texts: int, what: str) -> list[Sequence[str]]:
    """Each text's versions: a list a row, or as many rows a text, one text after the other."""
    if found and all(isinstance(one, list) for one in found) and len(found) == texts:
        return [[str(version) for version in one] for one in found]  # type: ignore[attr-defined]
    if found and len(found) % texts == 0 and all(isinstance(one, str) for one in found):
        each = len(found) // texts
        return [[str(v) for v in found[i : i + each]] for i in range(0, len(found), each)]
    raise DataError(
        f"{what} have {len(found)} rows for {texts} texts: there must be a list for each text, or "
        "the same number of rows for each."
    )

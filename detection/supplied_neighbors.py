"""The neighbours of texts that a benchmark brings along in files of its own (as MIMIR does)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from contamination.core.errors import ConfigError, DataError
from contamination.data.benchmark_parts import chosen_parts, describe_part_values
from contamination.data.benchmark_rows import (
    MissingPartError,
    benchmark_rows,
    fill_axis_values,
    is_single_file_or_stream,
    read_place_rows,
)
from contamination.data.config import ExamplesConfig
from contamination.data.examples import texts_of_rows
from contamination.data.readers.rows import Tally
from contamination.data.rows import fold_name
from contamination.data.texts import Text


@dataclass(frozen=True)
class Neighbors:
    """The neighbours of each text of a benchmark's parts.

    Attributes:
        examples: the configuration of the benchmark.
    """

    examples: ExamplesConfig

    @cached_property
    def by_text_sha256(self) -> Mapping[str, Sequence[str]]:
        """The neighbours of each text, by the text's SHA-256, in the order of the file.

        Raises:
            ConfigError: the benchmark has no neighbours for a part.
            DataError: a file has the wrong number of rows.
        """
        return dict(_neighbors_by_text_sha256(self.examples))

    def of(self, text: Text, n: int) -> Sequence[str]:
        """Returns the first `n` neighbours of a text.

        Raises:
            DataError: there are fewer.
        """
        neighbors = self.by_text_sha256.get(text.sha256, ())
        if len(neighbors) < n:
            raise DataError(
                f"text {text.example_id} has {len(neighbors)} neighbours in the files of "
                f"{self.examples.name}, and n is {n}: give "
                f"method.neighbor.n={len(neighbors) or 1} or less, or another augmentation, such "
                "as masked_lm."
            )
        return neighbors[:n]

    def identity(self, texts: Iterable[Text]) -> str:
        """Returns a hash of the neighbours of these texts."""
        digest = hashlib.sha256()
        for sha256 in sorted({text.sha256 for text in texts}):
            digest.update("\0".join([sha256, *self.by_text_sha256.get(sha256, ()), "\n"]).encode())
        return digest.hexdigest()


def has_neighbors(examples: ExamplesConfig) -> bool:
    """Returns whether the benchmark's files have neighbours for at least one part."""
    return any(source.neighbors for source in examples.sources) and not is_single_file_or_stream(
        examples.path
    )


def _neighbors_by_text_sha256(examples: ExamplesConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yields each text's SHA-256 and its neighbours, source by source and row by row."""
    tally = Tally("stop", "examples.on_error")
    for part in chosen_parts(examples):
        for source in part.sources:
            if source.neighbors is None:
                raise ConfigError(
                    f"{examples.name} has no neighbours of {describe_part_values(part.values)}."
                )
            values: dict[str, Any] = {**part.values}
            source_examples = replace(examples, sources=[source], **values)
            try:
                texts = texts_of_rows(
                    benchmark_rows(source_examples, tally), tally, str(examples.name)
                )
            except MissingPartError:  # reported when the texts were read
                continue
            neighbors_place = fill_axis_values(source.neighbors, source, part, examples)
            column = fold_name(neighbors_place.column or examples.columns.get("text") or "text")
            subject = f"the neighbours of {describe_part_values(part.values)}"
            try:
                rows = [row.value for row in read_place_rows(neighbors_place, examples, tally)]
            except DataError as error:
                raise DataError(f"{subject}: {error}") from error
            folded_rows = [{fold_name(name): value for name, value in row.items()} for row in rows]
            values_of_rows = [row.get(column, row.get("text")) for row in folded_rows]
            neighbors = _neighbor_lists(values_of_rows, len(texts), subject)
            yield from zip((text.sha256 for text in texts), neighbors, strict=True)


def _neighbor_lists(values: Sequence[object], texts: int, subject: str) -> list[Sequence[str]]:
    """Returns each text's neighbours from rows of lists, or from equally many rows per text."""
    if values and all(isinstance(value, list) for value in values) and len(values) == texts:
        return [[str(v) for v in value] for value in values]  # type: ignore[attr-defined]
    if values and len(values) % texts == 0 and all(isinstance(value, str) for value in values):
        n = len(values) // texts
        return [[str(v) for v in values[i : i + n]] for i in range(0, len(values), n)]
    raise DataError(
        f"{subject} have {len(values)} rows for {texts} texts: there must be a list for each text, "
        "or the same number of rows for each."
    )

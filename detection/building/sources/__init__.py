"""Where dated documents come from: one class a kind of source."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from contamination.core.config import Ranged, at_least, limited, one_of
from contamination.core.errors import ConfigError
from contamination.data.readers.files import find_shards
from contamination.data.readers.rows import ON_ERROR, Shard, Tally
from contamination.detection.building.dates import CutOffs, Dated

Told = Callable[[int], None]
"""Is told how many bytes of a file were read."""


@dataclass(frozen=True, kw_only=True)
class Source(Ranged, ABC, node="source"):
    """Files of dated documents."""

    licence: ClassVar[str] = "other"
    """Of the texts, as the hub writes it."""
    usual: ClassVar[str] = ""
    """A regular expression: files whose names it finds are read, or all where it finds none."""

    name: str
    paths: str | Sequence[str] | None = None
    """A file, a folder, a glob pattern, or a list of these. Required."""
    unchanged_members: bool = True
    """Leave out members whose text was edited after `build.members_before`: a model that was
    trained before can't have seen it. False: the date of creation alone decides."""
    max_text_bytes: int = limited(1 << 26, at_least(1))
    """Of a revision, a row or a line, unpacked; a larger one can't be read."""
    on_error: str = limited("stop", one_of(ON_ERROR))
    """What can't be read or has no date: stop, or skip (leave it out and count it)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.files  # a missing path is an error before any work

    @cached_property
    def files(self) -> list[Shard]:
        """The files, by name."""
        found = find_shards(self.paths, "text", "source.paths")
        return [file for file in found if re.search(self.usual, file.name)] or found

    @property
    def also_read(self) -> Mapping[str, Path]:
        """Other files that its documents depend on, by what they are called."""
        return {}

    def prepared(self, folder: Path) -> Source:
        """The source after work that is done once before reading, and kept in the folder."""
        return self

    @abstractmethod
    def documents(
        self, file: Shard, tally: Tally, cut_offs: CutOffs, told: Told
    ) -> Iterator[Dated]:
        """Stream a file's documents, raw; what has no use counts in the tally or is left out."""

    @abstractmethod
    def text(self, raw: str, words: int) -> str:
        """The plain text, or of a long one the beginning, with so many words or more."""


def needed(package: str, what: str) -> Any:
    """The package that something needs.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"{what} needs {package}, which is not installed: pip install "
            "'contamination-testbed[build]' (pip install '.[build]' in a checkout)."
        ) from error

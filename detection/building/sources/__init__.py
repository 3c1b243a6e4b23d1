"""Sources of dated documents, one class per kind of source."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from contamination.core.config import Ranged, at_least, one_of, ranged_field
from contamination.core.errors import ConfigError
from contamination.data.config import ON_ERROR
from contamination.data.readers.files import find_shards
from contamination.data.readers.rows import Shard, Tally
from contamination.detection.building.dates import CutOffs, DatedDocument

OnBytesRead = Callable[[int], None]
"""Called with the number of bytes of a file that were read."""


@dataclass(frozen=True, kw_only=True)
class Source(Ranged, ABC, node="source"):
    """Files of dated documents."""

    licence: ClassVar[str] = "other"
    """The hub's name of the texts' licence."""
    usual_file_names: ClassVar[str] = ""
    """A regular expression: files with matching names are read, or all files if none matches."""

    name: str
    paths: str | Sequence[str] | None = None
    """A file, a folder, a glob pattern, or a list of these. Required."""
    unchanged_members: bool = True
    """Leave out members whose text was edited after `build.members_before`, since a model that was
    trained before can't have seen it. False: only the date of creation counts."""
    max_text_bytes: int = ranged_field(1 << 26, at_least(1))
    """The largest size of a revision, a row or a line after decompression."""
    on_error: str = ranged_field("stop", one_of(ON_ERROR))
    """Rows that can't be read or have no date: stop, or skip (leave them out and count them)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.files  # a missing path is an error before any work

    @cached_property
    def files(self) -> list[Shard]:
        """The files, by name."""
        files = find_shards(self.paths, "text", "source.paths")
        return [file for file in files if re.search(self.usual_file_names, file.name)] or files

    @property
    def other_inputs(self) -> Mapping[str, Path]:
        """Other files that its documents depend on, by a name for each."""
        return {}

    def prepare(self, folder: Path) -> Source:
        """Returns the source after one-time work before reading, stored in the folder."""
        return self

    @abstractmethod
    def documents(
        self, file: Shard, tally: Tally, cut_offs: CutOffs, on_bytes: OnBytesRead
    ) -> Iterator[DatedDocument]:
        """Yields a file's documents with raw texts; counts the unusable ones in the tally."""

    @abstractmethod
    def text(self, raw: str, min_words: int) -> str:
        """Returns the plain text, or a beginning of it with at least `min_words` words."""


def import_optional(package: str, purpose: str) -> Any:
    """Returns an optional package.

    Raises:
        ConfigError: the package is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"{purpose} needs {package}, which is not installed: pip install "
            "'contamination-testbed[build]' (pip install '.[build]' in a checkout)."
        ) from error

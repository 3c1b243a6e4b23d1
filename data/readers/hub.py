"""Reads documents and rows from the Hugging Face hub with `datasets`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from contamination.core.errors import DataError
from contamination.core.hashing import folder_digest
from contamination.core.hub import cache_only_hint, commit_on_hub, go_offline_if_hub_unreachable
from contamination.data.readers.files import StreamedCorpus
from contamination.data.readers.rows import Row, Shard, Tally


@dataclass(frozen=True)
class HubRows:
    """The rows in the splits of a hub data set."""

    path: str
    splits: tuple[str, ...] | list[str]
    config: str | None = None
    revision: str | None = None

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Yields the rows, split by split."""
        for split in self.splits:
            shard = Shard(Path(self.path) / split, split, "hub")
            for number, row in enumerate(
                stream_split(self.path, self.config, split, self.revision), 1
            ):
                yield Row(shard, number, row)


@dataclass(frozen=True, kw_only=True)
class HubCorpus(StreamedCorpus):
    """A hub data set as a corpus, streamed in its order; ids are hashes of the texts."""

    path: str
    split: str = "train"
    config: str | None = None
    revision: str | None = None

    def fingerprint(self) -> str:
        """Returns the current commit of `revision`, or the SHA-256 of a local folder's files."""
        return folder_digest(Path(self.path)) if self._commit is None else self._commit

    @cached_property
    def _commit(self) -> str | None:
        """The commit to read, which is resolved only once; None if `path` is a local folder."""
        if Path(self.path).is_dir():
            return None
        return commit_on_hub("corpus.path", self.path, kind="dataset", revision=self.revision)

    def _iter_rows(self, tally: Tally, wanted_subset: str | None) -> Iterator[Row]:
        split_as_shard = Shard(Path(self.path), self.split, "hub")
        rows = stream_split(self.path, self.config, self.split, self._commit)
        return (Row(split_as_shard, number, row) for number, row in enumerate(rows, 1))

    def _document_id(self, row: Row, subset: str, text: str, tally: Tally) -> str:
        return f"{subset}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


HUB_CLASSES = (HubRows, HubCorpus)


def hub_nodes(node: Any) -> Iterator[Mapping[str, Any]]:
    """Yields the nodes of hub sources, at any depth of a configuration node."""
    if isinstance(node, Mapping):
        if node.get("_target_") in [f"{kind.__module__}.{kind.__name__}" for kind in HUB_CLASSES]:
            yield node
        node = list(node.values())
    for item in node if isinstance(node, list | tuple) else ():
        yield from hub_nodes(item)


def stream_split(
    path: str,
    config: str | None,
    split: str,
    revision: str | None,
    read: Callable[[Any], Iterator[Mapping[str, Any]]] = iter,
) -> Iterator[Mapping[str, Any]]:
    """Yields the rows of one split, streamed; `read` yields the rows of a `datasets` data set.

    Raises:
        DataError: the hub can't be reached or disconnects, or lacks the data set, split or
            revision.
    """
    go_offline_if_hub_unreachable()  # before the import, since `datasets` copies the setting
    import datasets

    with _hub_errors_as_data_errors(path, config, split, revision):
        yield from read(
            datasets.load_dataset(path, config, split=split, revision=revision, streaming=True)
        )


def download_split(path: str, config: str | None, split: str, revision: str | None) -> None:
    """Downloads one split into the cache of `datasets`, from which it is read without a network.

    Raises:
        DataError: see `stream_split`.
    """
    go_offline_if_hub_unreachable()
    import datasets

    with _hub_errors_as_data_errors(path, config, split, revision):
        datasets.load_dataset(path, config, split=split, revision=revision)


def is_data_set_cached(path: str) -> bool:
    """Returns whether the data set, or some of its splits, are in the cache of `datasets`."""
    import datasets

    return (Path(datasets.config.HF_DATASETS_CACHE) / path.replace("/", "___")).is_dir()


@contextmanager
def _hub_errors_as_data_errors(
    path: str, config: str | None, split: str, revision: str | None
) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the possible errors have no common base class
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise DataError(
            f"The hub's data set {path!r} (config {config!r}, split {split!r}, revision "
            f"{revision!r}) can't be read: {reason} Check these names and the connection. Without "
            "a hub, use corpus=embedded and injection.benchmark_source=embedded."
            f"{cache_only_hint(path, 'dataset')}"
        ) from error

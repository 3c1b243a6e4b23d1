"""Streams of XML files: plain, .gz, .bz2, or inside a .7z archive; reports damaged files."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import threading
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree.ElementTree import Element, ParseError, iterparse

from contamination.data.readers.rows import Tally
from contamination.detection.building.sources import OnBytesRead, import_optional

BUFFER_BYTES = 1 << 20


class _CountingFile(io.FileIO):
    """A file that reports the number of bytes read."""

    def __init__(self, path: Path, on_bytes: OnBytesRead) -> None:
        super().__init__(path)
        self._on_bytes = on_bytes

    def readinto(self, buffer: Any) -> int:
        size = super().readinto(buffer) or 0
        self._on_bytes(size)
        return size


class BoundedXML:
    """A stream of XML in which each text may take a limited number of bytes.

    It also refuses a document type: dumps have none, and its entities can expand without bound.

    Args:
        stream: the XML.
        max_text_bytes: the source's `max_text_bytes`.
    """

    def __init__(self, stream: BinaryIO, max_text_bytes: int) -> None:
        self._stream, self._limit = stream, max_text_bytes
        self._text_bytes = 0
        self._before_root: bytes | None = b""

    def read(self, size: int = BUFFER_BYTES, /) -> bytes:
        """Returns the next bytes.

        Raises:
            OSError: a text is larger than the limit, or there is a document type.
        """
        block = self._stream.read(size)
        self._text_bytes += len(block)
        if self._text_bytes > self._limit + size:
            raise OSError(
                f"a text in it is larger than source.max_text_bytes={self._limit} bytes: raise the "
                "limit if you trust the file"
            )
        if self._before_root is not None:
            self._before_root += block.replace(b"\0", b"")  # of UTF-16
            if b"<!DOCTYPE" in self._before_root:
                raise OSError("it has a document type (<!DOCTYPE …>), which dumps do not have")
        return block

    def reset_text_bytes(self) -> None:
        """Begins to count the bytes of the next text."""
        self._text_bytes, self._before_root = 0, None


def iter_elements(
    stream: BinaryIO, max_text_bytes: int, text_elements: Collection[str]
) -> Iterator[tuple[str, Element]]:
    """Yields the events of `ElementTree.iterparse` at the start and end of each element.

    Args:
        stream: the XML.
        max_text_bytes: the largest number of bytes up to the end of the next text.
        text_elements: the names of elements with a text, without their namespace.

    Raises:
        OSError: the limit is exceeded.
    """
    bounded = BoundedXML(stream, max_text_bytes)
    events = iterparse(bounded, events=("start", "end"))
    first = next(events, None)
    if first is None:
        return
    bounded.reset_text_bytes()
    yield first
    for event, element in events:
        yield event, element
        if event == "end" and element.tag.rpartition("}")[2] in text_elements:
            bounded.reset_text_bytes()


DECOMPRESSORS: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".bz2": bz2.open}


@contextmanager
def open_decompressed(path: Path, name_ending: str, on_bytes: OnBytesRead) -> Iterator[BinaryIO]:
    """Opens a file, decompressed; of a .7z archive the only file with this ending of its name."""
    with io.BufferedReader(_CountingFile(path, on_bytes), BUFFER_BYTES) as raw:
        if path.suffix == ".7z":
            with _open_archive_member(raw, name_ending) as stream:
                yield stream
        elif unpack := DECOMPRESSORS.get(path.suffix):
            with unpack(raw) as stream:
                yield stream
        else:
            yield raw


@contextmanager
def report_damage(tally: Tally, describe_position: Callable[[], str]) -> Iterator[None]:
    """Reports a damaged file to the tally, with the location; documents before it are kept."""
    try:
        yield
    except ParseError as error:
        tally.reject("XML cut off or broken", describe_position(), str(error))
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        tally.reject(
            "unreadable file", describe_position(), " ".join(str(error).split()) or repr(error)
        )


@contextmanager
def _open_archive_member(archive_file: BinaryIO, name_ending: str) -> Iterator[BinaryIO]:
    """Opens a member of an archive, which a thread decompresses into a pipe."""
    py7zr = import_optional("py7zr", "a .7z archive")
    read_end, write_end = os.pipe()
    errors: list[Exception] = []
    with open(read_end, "rb", buffering=BUFFER_BYTES) as stream:
        arguments = py7zr, archive_file, name_ending, write_end, errors
        thread = threading.Thread(target=_unpack_into_pipe, args=arguments)
        thread.start()
        try:
            with _raise_thread_errors(errors):
                yield stream
        finally:
            stream.close()  # if reading stopped early, the thread ends at its next block
            thread.join()


@contextmanager
def _raise_thread_errors(errors: list[Exception]) -> Iterator[None]:
    """Raises the thread's error instead of its consequence, XML that ends too early."""
    try:
        yield
    except ParseError as error:
        if errors:
            raise OSError(f"the archive: {errors[0]}") from error
        raise
    if errors:
        raise OSError(f"the archive: {errors[0]}")


UNBOUNDED_METHODS = {"zstandard", "brotli", "deflate", "deflate64"}
"""Methods that py7zr unpacks in blocks of any size; with others a block has at most 128 MB."""


def _unpack_into_pipe(
    py7zr: Any, archive_file: BinaryIO, name_ending: str, write_end: int, errors: list[Exception]
) -> None:
    class Pipe(py7zr.io.Py7zIO):  # type: ignore[misc]
        def write(self, data: bytes) -> int:
            remaining = memoryview(data)
            while remaining:
                remaining = remaining[os.write(write_end, remaining) :]
            return len(data)

        def read(self, size: int | None = None) -> bytes:
            return b""

        def seek(self, offset: int, whence: int = 0) -> int:
            return 0

        def flush(self) -> None: ...

        def size(self) -> int:
            return 0

    class Pipes(py7zr.io.WriterFactory):  # type: ignore[misc]
        def create(self, filename: str) -> Any:
            return Pipe()

    try:
        with suppress(BrokenPipeError), py7zr.SevenZipFile(archive_file) as archive:
            if unbounded := UNBOUNDED_METHODS & {
                name.lower() for name in archive.archiveinfo().method_names
            }:
                raise OSError(
                    f"it is compressed by {', '.join(sorted(unbounded))}, which py7zr decompresses "
                    "in blocks of any size: compress it by LZMA2, or unpack it first"
                )
            member = _only_matching_name(archive.getnames(), name_ending)
            archive.extract(targets=[member], factory=Pipes())
    except Exception as error:  # raised by the reader
        errors.append(error)
    finally:
        os.close(write_end)


def _only_matching_name(names: Sequence[str], name_ending: str) -> str:
    """Returns the only name with this ending; raises an OSError if there is none, or several."""
    matches = [name for name in names if name.endswith(name_ending)]
    if len(matches) > 1:
        names_found = _format_names(matches)
        raise OSError(f"it has {len(matches)} files *{name_ending}, {names_found}: unpack it first")
    if not matches:
        raise OSError(f"it has no {name_ending}, but {_format_names(names) or 'nothing'}")
    return matches[0]


MAX_NAMED = 10


def _format_names(names: Sequence[str]) -> str:
    return f"{', '.join(names[:MAX_NAMED])}{', …' * (len(names) > MAX_NAMED)}"

"""Files of XML as streams: plain, .gz, .bz2, or inside a .7z archive; what is damaged is told."""

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
from contamination.detection.building.sources import Told, needed

PACKED: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".bz2": bz2.open}
BUFFER_BYTES = 1 << 20
MOST_NAMED = 10
UNBOUNDED = {"zstandard", "brotli", "deflate", "deflate64"}
"""Methods of which py7zr unpacks a block of the archive at once; of others at most 128 MB."""


class _Counted(io.FileIO):
    """A file that tells how much of it was read."""

    def __init__(self, path: Path, told: Told) -> None:
        super().__init__(path)
        self._told = told

    def readinto(self, buffer: Any) -> int:
        """As a file does."""
        size = super().readinto(buffer) or 0
        self._told(size)
        return size


class Bounded:
    """XML as a stream of bytes, of which a reader takes a limited number for each text.

    It refuses a document type, too: dumps have none, and its entities can stand for any length.
    """

    def __init__(self, stream: BinaryIO, most: int) -> None:
        """`most` is the source's `max_text_bytes`."""
        self._stream, self._most = stream, most
        self._taken = 0
        self._before_root: bytes | None = b""

    def read(self, size: int = BUFFER_BYTES, /) -> bytes:
        """The next bytes.

        Raises:
            OSError: a text is larger than the limit, or there is a document type.
        """
        block = self._stream.read(size)
        self._taken += len(block)
        if self._taken > self._most + size:
            raise OSError(
                f"a text in it is larger than source.max_text_bytes={self._most} bytes: raise the "
                "limit if you trust the file"
            )
        if self._before_root is not None:
            self._before_root += block.replace(b"\0", b"")  # of UTF-16
            if b"<!DOCTYPE" in self._before_root:
                raise OSError("it has a document type (<!DOCTYPE …>), as no dump has")
        return block

    def begin_text(self) -> None:
        """What was taken so far belongs to texts that were read."""
        self._taken, self._before_root = 0, None


def elements(stream: BinaryIO, most: int, texts: Collection[str]) -> Iterator[tuple[str, Element]]:
    """The start and the end of each XML element, as `ElementTree.iterparse` gives them.

    Args:
        stream: the XML.
        most: bytes of a text and what stands between it and the next one; more is an OSError.
        texts: the elements that hold a text, without their namespace.
    """
    bounded = Bounded(stream, most)
    events = iterparse(bounded, events=("start", "end"))
    first = next(events, None)
    if first is None:
        return
    bounded.begin_text()
    yield first
    for event, element in events:
        yield event, element
        if event == "end" and element.tag.rpartition("}")[2] in texts:
            bounded.begin_text()


@contextmanager
def opened(path: Path, inside: str, told: Told) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed; of a .7z archive the one file whose name ends in `inside`."""
    with io.BufferedReader(_Counted(path, told), BUFFER_BYTES) as raw:
        if path.suffix == ".7z":
            with _member(raw, inside) as stream:
                yield stream
        elif unpack := PACKED.get(path.suffix):
            with unpack(raw) as stream:
                yield stream
        else:
            yield raw


@contextmanager
def damage(tally: Tally, where: Callable[[], str]) -> Iterator[None]:
    """What can't be read on goes to the tally, with where that is; what came before it counts."""
    try:
        yield
    except ParseError as error:
        tally.bad("XML cut off or broken", where(), str(error))
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        tally.bad("unreadable file", where(), " ".join(str(error).split()) or repr(error))


@contextmanager
def _member(raw: BinaryIO, inside: str) -> Iterator[BinaryIO]:
    """A member of an archive, which a thread decompresses into a pipe."""
    py7zr = needed("py7zr", "a .7z archive")
    out, into = os.pipe()
    failed: list[Exception] = []
    with open(out, "rb", buffering=BUFFER_BYTES) as stream:
        thread = threading.Thread(target=_unpack, args=(py7zr, raw, inside, into, failed))
        thread.start()
        try:
            with _as_said(failed):
                yield stream
        finally:
            stream.close()  # where nobody reads on, the thread ends at its next block
            thread.join()


@contextmanager
def _as_said(failed: list[Exception]) -> Iterator[None]:
    """The thread's error in place of what became of it: XML that ends too early."""
    try:
        yield
    except ParseError as error:
        if failed:
            raise OSError(f"the archive: {failed[0]}") from error
        raise
    if failed:
        raise OSError(f"the archive: {failed[0]}")


def _unpack(py7zr: Any, raw: BinaryIO, inside: str, into: int, failed: list[Exception]) -> None:
    class Pipe(py7zr.io.Py7zIO):  # type: ignore[misc]
        """What py7zr writes to."""

        def write(self, data: bytes) -> int:
            """Until all is taken."""
            left = memoryview(data)
            while left:
                left = left[os.write(into, left) :]
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
        with suppress(BrokenPipeError), py7zr.SevenZipFile(raw) as archive:
            if unbounded := UNBOUNDED & {
                name.lower() for name in archive.archiveinfo().method_names
            }:
                raise OSError(
                    f"it is packed by {', '.join(sorted(unbounded))}, which py7zr unpacks in "
                    "blocks of any size: pack it by LZMA2, or unpack it first"
                )
            archive.extract(targets=[_only(archive.getnames(), inside)], factory=Pipes())
    except Exception as error:  # told by the reader
        failed.append(error)
    finally:
        os.close(into)


def _only(names: Sequence[str], inside: str) -> str:
    """The one name that ends so; an OSError where there is none, or more."""
    wanted = [name for name in names if name.endswith(inside)]
    if len(wanted) > 1:
        raise OSError(f"it has {len(wanted)} files *{inside}, {_some(wanted)}: unpack it first")
    if not wanted:
        raise OSError(f"it has no {inside}, but {_some(names) or 'nothing'}")
    return wanted[0]


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:MOST_NAMED])}{', …' * (len(names) > MOST_NAMED)}"

"""The content of an answer over HTTP, decompressed within a limit."""

from __future__ import annotations

import zlib

import httpx

GZIP = ("gzip", "x-gzip")
"""The names of the coding that an answer may have; both mean the same (RFC 9110, 8.4.1.3)."""
BEGIN = b"\x1f\x8b"
"""How a gzip member begins (RFC 1952, 2.3.1)."""


class Content:
    """The content of an answer, decompressed as it comes, and never beyond a limit.

    Args:
        codings: the answer's Content-Encoding; empty where nothing is compressed.
        most: bytes that are read at most, both as they are sent and once decompressed.

    Attributes:
        is_readable: whether the coding is gzip or none: others may expand without bound.
    """

    def __init__(self, codings: str, most: int) -> None:
        names = [name.strip().lower() for name in codings.split(",")]
        coded = [name for name in names if name not in ("", "identity")]
        self.is_readable = not coded or (len(coded) == 1 and coded[0] in GZIP)
        self._gzip = _member() if coded else None
        self._most, self._received, self._content = most, 0, bytearray()

    @property
    def is_too_long(self) -> bool:
        """Whether more came than may."""
        return max(self._received, len(self._content)) > self._most

    def add(self, part: bytes) -> None:
        """Take the next part.

        Raises:
            httpx.DecodingError: it is not gzip, or stands behind its end.
        """
        self._received += len(part)
        if self._gzip is None:
            self._content += part
            return
        while part and not self.is_too_long:
            if self._gzip.eof:
                self._next_member(part)
            part = self._decompress(part)

    def _next_member(self, part: bytes) -> None:
        """Begin another member, of which gzip content may have several (RFC 1952, 2.2)."""
        if not part.startswith(BEGIN[: len(part)]):
            raise httpx.DecodingError("it has bytes behind the end of its gzip content")
        self._gzip = _member()

    def _decompress(self, part: bytes) -> bytes:
        """Take what belongs to the member; returns what stands behind it."""
        assert self._gzip is not None
        try:
            # one byte more than allowed shows that the content is too long
            self._content += self._gzip.decompress(part, self._most + 1 - len(self._content))
        except zlib.error as error:
            raise httpx.DecodingError(f"it is not gzip: {error}") from error
        return self._gzip.unused_data

    def whole(self) -> bytes:
        """All of it.

        Raises:
            httpx.DecodingError: its gzip content has no end.
        """
        if self._gzip is not None and self._received and not self._gzip.eof:
            raise httpx.DecodingError("its gzip content has no end")
        return bytes(self._content)


def _member() -> zlib._Decompress:
    return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

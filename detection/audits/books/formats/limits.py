"""How much of a file is read: a small archive can unpack to more than a machine's memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The fields of the audit that limit what is read.

    Attributes:
        max_page_bytes: of a file within an EPUB, unpacked.
        max_book_bytes: of all pages of an EPUB together, a text file, or a line of JSONL.
    """

    max_page_bytes: int = 1 << 24
    max_book_bytes: int = 1 << 28

    def check(self, field: str, what: str, size: int) -> None:
        """Raise a ValueError that names the field if `what` is larger than it allows."""
        most: int = getattr(self, field)
        if size > most:
            raise ValueError(
                f"{what} is larger than audit.{field}={most} bytes: raise the limit if you trust "
                "the file"
            )


LIMITS = Limits()
"""The defaults."""

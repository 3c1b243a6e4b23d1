"""Standard output and error whose reader may go, as `| head` does: what follows is dropped.

What a server, a file or a model says is data. Its control characters are escaped here, where all
that a command prints or logs leaves the process, and so reach no terminal and no log.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Any, ClassVar, TextIO

from core.terminal import REDRAWING, escaped


class _Outliving(io.FileIO):
    """A pipe to whoever reads, and to nobody once he has gone.

    What a full disk refuses is an error, once: nothing is written there any more.
    """

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if not isinstance(error, BrokenPipeError):
                name = "standard error" if self.fileno() == 2 else "standard output"
                raise OSError(error.errno, error.strerror, name) from error
            return super().write(data)


class _Escaping(io.TextIOWrapper):
    """Text whose control characters are escaped, but for those that are allowed."""

    allowed: ClassVar[Sequence[str]] = ()

    def write(self, text: str) -> int:
        super().write(escaped(text, self.allowed))
        return len(text)


class _Redrawing(_Escaping):
    """The same for a stream on which progress bars redraw their line."""

    allowed = REDRAWING


def outlive_readers() -> None:
    """From now on no work ends, and nothing is said, because nobody reads any more.

    A sign that the reader's encoding lacks becomes a question mark. Control characters are escaped,
    but for those by which progress bars redraw their line on standard error.
    """
    sys.stdout = _outliving(sys.stdout, _Escaping)
    sys.stderr = _outliving(sys.stderr, _Redrawing)


def _outliving(stream: TextIO, kind: type[io.TextIOWrapper]) -> TextIO:
    return kind(
        io.BufferedWriter(_Outliving(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors="replace" if stream.errors == "strict" else stream.errors,
        line_buffering=True,
    )

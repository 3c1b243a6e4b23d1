"""Standard output and error whose reader may go, as `| head` does: what follows is dropped."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO


class _Outliving(io.FileIO):
    """A pipe to whoever reads, and to nobody once he has gone."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)


def outlive_readers() -> None:
    """From now on no work ends, and nothing is said, because nobody reads any more.

    A sign that the reader's encoding lacks becomes a question mark.
    """
    sys.stdout, sys.stderr = map(_outliving, (sys.stdout, sys.stderr))


def _outliving(stream: TextIO) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(_Outliving(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors="replace" if stream.errors == "strict" else stream.errors,
        line_buffering=True,
    )

"""Keep other libraries' notices out of the user's output."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silenced() -> Iterator[None]:
    """Drop what is written to standard output and error, by compilers that a library calls too."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(stream, os.dup(stream)) for stream in (1, 2)]
    try:
        with open(os.devnull, "w") as nowhere:
            for stream, _ in kept:
                os.dup2(nowhere.fileno(), stream)
            yield
    finally:
        sys.stdout.flush()  # into nowhere, what Python has kept back
        sys.stderr.flush()
        for stream, copy in kept:
            os.dup2(copy, stream)
            os.close(copy)


def quiet_libraries() -> None:
    """Errors still show; progress bars and advice of libraries do not."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # to its makers, from offline runs too
    for name in ("DeepSpeed", "httpx", "matplotlib", "numexpr", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(deepspeed|torch|transformers)\..*")
    warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a chart shows a box

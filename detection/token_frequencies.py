"""How often each token occurs in a corpus: the embedded one, a corpus folder, or a text file."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contamination.core.artifacts import is_complete
from contamination.core.errors import ConfigError, DataError
from contamination.core.hashing import file_digest
from contamination.core.integrity import errors_naming_folders
from contamination.detection.models.base import ModelHandle

log = logging.getLogger(__name__)

FIELD = "method.dc_pdd.corpus"
EMBEDDED = "embedded"
SOURCES = "`embedded` (the package's own texts), a finished corpus folder, or a file of plain text"
_GIVE = f"Give {SOURCES}."
TEXTS_AT_ONCE = 1_000


_counted: dict[tuple[str, str, int, int | None], NDArray[np.float32]] = {}


def log_frequencies(model: ModelHandle, corpus: str, characters: int) -> NDArray[np.float32]:
    """Returns the log of each token's smoothed frequency, shape (vocabulary,), in nats.

    The last corpus that was counted is kept in memory.

    Laplace smoothing: (count + 1) / (tokens of the corpus + vocabulary). So the frequency of a
    token that does not occur is above 0.

    Args:
        model: the model whose tokenizer and vocabulary are used.
        corpus: see SOURCES.
        characters: the number of characters of the corpus to count, at most.

    Raises:
        ConfigError: there is no such corpus.
        DataError: it has no text.
    """
    key = model.tokenizer_digest, corpus_digest(corpus), characters, model.vocabulary
    if key not in _counted:
        _counted.clear()
        _counted[key] = _count_tokens(model, corpus, characters)
    return _counted[key]


def _count_tokens(model: ModelHandle, corpus: str, characters: int) -> NDArray[np.float32]:
    tokenizer = model.tokenizer()
    vocabulary = max(model.vocabulary or 0, max(tokenizer.get_vocab().values()) + 1)
    counts = np.zeros(vocabulary, np.int64)
    texts = _iter_beginning(iter_corpus_texts(corpus), characters)
    while block := list(islice(texts, TEXTS_AT_ONCE)):
        rows = tokenizer(block, add_special_tokens=False, verbose=False)["input_ids"]
        counts += np.bincount([id_ for row in rows for id_ in row], minlength=vocabulary)
    total = int(counts.sum())
    if not total:
        raise DataError(f"{FIELD} is {corpus!r}: it has no text, so no token has a frequency.")
    seen = np.count_nonzero(counts)
    log.info(f"frequencies: {total:,} tokens of {corpus}, {seen:,} of {vocabulary:,} different.")
    frequencies: NDArray[np.float64] = np.log((counts + 1) / (total + vocabulary))
    return frequencies.astype(np.float32)


def corpus_digest(corpus: str) -> str:
    """Returns a hash that changes with the corpus.

    Raises:
        ConfigError: there is no such corpus.
    """
    path = Path(corpus).expanduser()
    if corpus == EMBEDDED:
        from contamination.data.readers.embedded import EmbeddedCorpus

        return EmbeddedCorpus().fingerprint()
    if is_complete(path):
        return file_digest(path / "manifest.json")
    if path.is_file():
        return file_digest(path)
    raise ConfigError(f"{FIELD} is {corpus!r}: there is no such file or finished folder. {_GIVE}")


def iter_corpus_texts(corpus: str) -> Iterator[str]:
    """Yields the texts of the corpus in their order; those of a folder are its packed sequences."""
    path = Path(corpus).expanduser()
    if corpus == EMBEDDED:
        from contamination.data.readers.embedded import EmbeddedCorpus

        yield from (document.text for document in EmbeddedCorpus().documents())
    elif is_complete(path):
        from contamination import injection

        with errors_naming_folders(path):
            packed = injection.open_corpus(path)
            tokenizer: Any = packed.tokenizer.hf
            for block in packed.iter_blocks():
                yield from tokenizer.batch_decode(block.tolist(), skip_special_tokens=True)
    else:
        try:
            with path.open(encoding="utf-8") as lines:
                yield from lines
        except (OSError, UnicodeDecodeError) as error:
            problem = f"{FIELD} is {corpus!r}: it can't be read ({error}). {_GIVE}"
            raise ConfigError(problem) from error


def _iter_beginning(texts: Iterable[str], characters: int) -> Iterator[str]:
    """Yields the first `characters` characters."""
    for text in texts:
        if characters <= 0:
            return
        yield text[:characters]
        characters -= len(text)

"""The books of a role, read and known to be different books."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.errors import ConfigError, DataError
from detection.audits.books.formats import READERS
from detection.examples import lines_digest

ROLES = {"positives": True, "negatives": False, "suspects": None}
"""Role → whether its books are members."""
GRAM = 13
"""Words in a row that two texts share by no accident (Brown et al. 2020, appendix C)."""
SAME = 0.2
"""Books are one where so large a share of the shorter one's GRAM-grams stands in the other."""
ONE_IN = 4
"""Of all GRAM-grams, those that are compared."""
FAR_EAST = "\u2e80"
"""The first letter of those scripts in Unicode that no space parts."""
FACTOR = np.uint64(0x9E3779B97F4A7C15)
Keys = NDArray[np.uint64]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Book:
    """A book: the field that gave it, its title, its text, and where it stands."""

    role: str
    title: str
    text: str
    file: str

    @property
    def name(self) -> str:
        """Role and title, which no other book has."""
        return f"{self.role}/{self.title}"


def open_books(paths: Mapping[str, str]) -> list[Book]:
    """The books of each role (role → a folder or a file), in the order of their titles.

    Raises:
        ConfigError: there is no such folder, or no book in it.
        DataError: a file that can't be read, a book without text, two books of one title, or one
            book twice.
    """
    books = [book for role, path in paths.items() for book in _books(role, path)]
    _check_titles(books)
    _check_apart(books)
    return books


def books_digest(books: Iterable[Book]) -> str:
    """A hash of roles, titles and texts."""
    each = ((b.role, b.title, hashlib.sha256(b.text.encode()).hexdigest()) for b in books)
    return lines_digest(json.dumps(row) for row in sorted(each))


def _books(role: str, path: str) -> list[Book]:
    place = Path(path).expanduser()
    if not place.exists():
        raise ConfigError(f"audit.{role} is {path!r}: there is no such folder. Give one of books.")
    inside = sorted(place.iterdir()) if place.is_dir() else [place]
    files = [f for f in inside if f.suffix.lower() in READERS and f.is_file()]
    found = [book for file in files for book in _read(role, file)]
    if not found:
        raise ConfigError(
            f"audit.{role} is {path!r}: there is no book in it. Give a folder of books, each a "
            f"{', '.join(READERS)} file, or one such file."
        )
    if others := [f.name for f in inside if f not in files and not f.name.startswith(".")]:
        log.warning("audit.%s: %d in %s are no %s files and left out, such as %s",
                    role, len(others), path, ", ".join(READERS), others[0])  # fmt: skip
    return sorted(found, key=lambda book: book.title)


def _read(role: str, file: Path) -> Iterator[Book]:
    try:
        for title, text in READERS[file.suffix.lower()](file):
            if not text.strip():
                raise ValueError(f"the book {title!r} has no text")
            if "\0" in text:
                raise ValueError("it holds null characters, as UTF-16 does: save it as UTF-8")
            f"{title}{text}".encode()  # JSON may spell half of a surrogate pair
            yield Book(role, " ".join(title.split()) or file.stem, text, str(file))
    except (ValueError, OSError) as error:
        raise DataError(
            f"audit.{role}: {file} can't be used: {error}. Mend the file, or take it out."
        ) from error


def _check_titles(books: Sequence[Book]) -> None:
    firsts: dict[str, Book] = {}
    for book in books:
        first = firsts.setdefault(book.title.casefold(), book)
        if first is not book:
            raise DataError(
                f"audit.{book.role}: two books are called {book.title!r}, in {first.file} and in "
                f"{book.file}. Take one out, or give them different names."
            )


def _check_apart(books: Sequence[Book]) -> None:
    """Raise a DataError where two books are one, by the GRAM-grams that they share."""
    keys = [gram_keys(book.text) for book in books]
    for one, other in _sharing(keys):
        share = shared(keys[one], keys[other])
        if share >= SAME:
            raise DataError(
                f"audit.{books[other].role}: {books[other].title!r} and {books[one].title!r} (of "
                f"audit.{books[one].role}) are the same book: {share:.0%} of the shorter one's "
                f"runs of {GRAM} words stand in the other. Take one out."
            )


def _sharing(keys: Sequence[Keys]) -> Iterator[tuple[int, int]]:
    """The pairs of books that share any key."""
    every = np.concatenate(keys)
    owner = np.repeat(np.arange(len(keys)), [len(own) for own in keys])
    order = np.argsort(every, kind="stable")
    edges = np.flatnonzero(np.diff(every[order])) + 1
    groups = {tuple(group.tolist()) for group in np.split(owner[order], edges) if len(group) > 1}
    yield from sorted({pair for group in groups for pair in combinations(group, 2)})


def _parted(letter: str) -> str:
    if not letter.isalnum():
        return " "
    return letter if letter < FAR_EAST else f" {letter} "


def gram_keys(text: str) -> Keys:
    """Hashes of one in ONE_IN of the text's runs of GRAM words, each once, in order.

    Case and punctuation don't count. A text of fewer words has one key, of all of them. A Chinese
    or Japanese letter is a word, since no space parts them.
    """
    words = "".join(map(_parted, text.casefold())).split()
    own = {w: int.from_bytes(hashlib.sha256(w.encode()).digest()[:8], "big") for w in {*words}}
    hashes = np.array([own[word] for word in words], np.uint64)
    length = min(GRAM, len(hashes))
    found = np.zeros(len(hashes) - length + 1 if length else 0, np.uint64)
    for place in range(length):  # modulo 2**64
        found = found * FACTOR + hashes[place : place + len(found)]
    keys: Keys = np.unique(found)
    return _sample(keys) if len(words) > 40 * GRAM else keys


def shared(one: Keys, other: Keys) -> float:
    """The share of the shorter text's keys that are the other's, too.

    Of a long text only a sample is known: then only the same sample of a short one can be found.
    """
    sampled = _sample(one), _sample(other)
    whole = [len(own) > len(kept) for own, kept in zip((one, other), sampled, strict=True)]
    pair = (one, other) if all(whole) else sampled
    common = np.intersect1d(*pair, assume_unique=True)
    return len(common) / max(1, min(map(len, pair)))


def _sample(keys: Keys) -> Keys:
    """The keys that are kept of a long text: whichever text they are in, the same ones."""
    kept: Keys = keys[(keys >> np.uint64(32)) % np.uint64(ONE_IN) == 0]
    return kept

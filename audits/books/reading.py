"""The books of a role, read and known to be different books."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from contamination.audits.books.epub import LIMITS, Limits, read_epub
from contamination.audits.books.shared_text import (
    GRAM,
    PLACES,
    Keys,
    Run,
    gram_keys,
    shared,
    without_boilerplate,
)
from contamination.core.errors import ConfigError, DataError
from contamination.data.examples import lines_digest


def read_jsonl(path: Path, limits: Limits = LIMITS) -> Iterator[tuple[str, str]]:
    """Each line's `title` and `text`; or the file's name and all lines' `text`, one below another.

    Raises:
        ValueError: there is no line; one is no object with a `text`, or its title is no string; or
            some lines have a title and others none; or a line is larger than the limit.
    """
    rows = [_row(number, line) for number, line in _lines(path, limits) if line.strip()]
    if not rows:
        raise ValueError("it is empty")
    titled = ["title" in row for row in rows]
    if all(titled):
        yield from ((row["title"], row["text"]) for row in rows)
    elif any(titled):
        raise ValueError("some lines have a `title`, others none: give all lines one, or none")
    else:
        yield path.stem, "\n".join(row["text"] for row in rows)


def _lines(path: Path, limits: Limits) -> Iterator[tuple[int, str]]:
    """The lines with their numbers from 1."""
    with path.open("rb") as stream:
        read = partial(stream.readline, limits.max_book_bytes + 1)
        for number, line in enumerate(iter(read, b""), 1):
            limits.check("max_book_bytes", f"line {number}", len(line))
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")


def _row(number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line {number} is not JSON ({error})") from error
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise ValueError(f"line {number} is no object with a string as its `text`")
    if not isinstance(row.get("title", ""), str):
        raise ValueError(f"line {number} has {row['title']!r} as its `title`: give a string")
    return row


def read_text(path: Path, limits: Limits = LIMITS) -> Iterator[tuple[str, str]]:
    """The file's text, of UTF-8.

    Raises:
        ValueError: it is none, or larger than the limit.
    """
    limits.check("max_book_bytes", "it", path.stat().st_size)
    yield path.stem, path.read_bytes().decode("utf-8-sig")


Reader = Callable[[Path, Limits], Iterator[tuple[str, str]]]
READERS: Mapping[str, Reader] = {".txt": read_text, ".epub": read_epub, ".jsonl": read_jsonl}
"""By the file's suffix."""

ROLES = {"positives": True, "negatives": False, "suspects": None}
"""Role → whether its books are members."""
SAME = 0.2
"""Books are one where so large a share of the shorter one's GRAM-grams stands in the other."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Book:
    """A book: the field that gave it, its title, its text, and where it stands.

    Attributes:
        set_aside: what its text has lost, since other books have it too (see `boilerplate`).
    """

    role: str
    title: str
    text: str
    file: str
    set_aside: tuple[Run, ...] = ()

    @property
    def name(self) -> str:
        """Role and title, which no other book has."""
        return f"{self.role}/{self.title}"


def open_books(paths: Mapping[str, str], limits: Limits = LIMITS) -> list[Book]:
    """The books of each role (role → a folder or a file), in the order of their titles.

    What several of them have in common at their beginnings and ends is set aside.

    Raises:
        ConfigError: there is no such folder, or no book in it.
        DataError: a file that can't be read or exceeds a limit, a book without text, two books of
            one title, or one book twice.
    """
    books = [book for role, path in paths.items() for book in _books(role, path, limits)]
    _check_titles(books)
    stripped = without_boilerplate([book.text for book in books])
    books = [
        replace(book, text=text, set_aside=runs)
        for book, (text, runs) in zip(books, stripped, strict=True)
    ]
    _check_apart(books)
    return books


def set_aside(books: Iterable[Book]) -> list[str]:
    """A sentence for the beginnings, and one for the ends, that were set aside."""
    sentences = []
    for place in PLACES:
        runs = [(book, run) for book in books for run in book.set_aside if run.place == place]
        if runs:
            book, longest = max(runs, key=lambda pair: pair[1].words)
            sentences.append(
                f"{longest.words:,} words or fewer at the {place} of {len(runs)} books, since "
                f"others have them too; such as those of {book.title!r}, which begin "
                f"{longest.begins!r}"
            )
    return sentences


def books_digest(books: Iterable[Book]) -> str:
    """A hash of roles, titles and texts."""
    each = ((b.role, b.title, hashlib.sha256(b.text.encode()).hexdigest()) for b in books)
    return lines_digest(json.dumps(row) for row in sorted(each))


def _books(role: str, path: str, limits: Limits) -> list[Book]:
    place = Path(path).expanduser()
    if not place.exists():
        raise ConfigError(f"audit.{role} is {path!r}: there is no such folder. Give one of books.")
    inside = sorted(place.iterdir()) if place.is_dir() else [place]
    files = [f for f in inside if f.suffix.lower() in READERS and f.is_file()]
    found = [book for file in files for book in _read(role, file, limits)]
    if not found:
        raise ConfigError(
            f"audit.{role} is {path!r}: there is no book in it. Give a folder of books, each a "
            f"{', '.join(READERS)} file, or one such file."
        )
    if others := [f.name for f in inside if f not in files and not f.name.startswith(".")]:
        log.warning("audit.%s: %d in %s are no %s files and left out, such as %s",
                    role, len(others), path, ", ".join(READERS), others[0])  # fmt: skip
    return sorted(found, key=lambda book: book.title)


def _read(role: str, file: Path, limits: Limits) -> Iterator[Book]:
    try:
        for title, text in READERS[file.suffix.lower()](file, limits):
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
    shares = {pair: shared(keys[pair[0]], keys[pair[1]]) for pair in _sharing(keys)}
    (one, other), share = max(shares.items(), key=lambda pair: pair[1], default=((0, 0), 0.0))
    if share >= SAME:
        raise DataError(
            f"audit.{books[other].role}: {books[other].title!r} and {books[one].title!r} (of "
            f"audit.{books[one].role}) are the same book: {share:.0%} of the shorter one's "
            f"runs of {GRAM} words stand in the other. Take one out; or, if they share what is "
            "no book's own, such as a licence in two books or one that is nearly all of a book, "
            "take that out of the files."
        )


def _sharing(keys: Sequence[Keys]) -> Iterator[tuple[int, int]]:
    """The pairs of books that share any key."""
    every = np.concatenate(keys)
    owner = np.repeat(np.arange(len(keys)), [len(own) for own in keys])
    order = np.argsort(every, kind="stable")
    edges = np.flatnonzero(np.diff(every[order])) + 1
    groups = {tuple(group.tolist()) for group in np.split(owner[order], edges) if len(group) > 1}
    yield from sorted({pair for group in groups for pair in combinations(group, 2)})

"""Reads the books of each role, removes text that several share, and refuses duplicates."""

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

from contamination.audits.books.epub import LIMITS, Limits, iter_epub_books
from contamination.audits.books.shared_text import (
    GRAM_WORDS,
    POSITIONS,
    BoilerplateRun,
    Keys,
    gram_keys,
    shared_fraction,
    strip_boilerplate,
)
from contamination.core.errors import ConfigError, DataError


def iter_jsonl_books(path: Path, limits: Limits = LIMITS) -> Iterator[tuple[str, str]]:
    """Yields the title and text of each line; without titles, all texts as one book.

    Raises:
        ValueError: the file is empty, a line is not an object with a `text`, a title is not a
            string, only some lines have a title, or a line is larger than the limit.
    """
    rows = [
        _parse_row(number, line)
        for number, line in _iter_numbered_lines(path, limits)
        if line.strip()
    ]
    if not rows:
        raise ValueError("it is empty")
    have_title = ["title" in row for row in rows]
    if all(have_title):
        yield from ((row["title"], row["text"]) for row in rows)
    elif any(have_title):
        raise ValueError("only some lines have a `title`: give one to all lines, or to none")
    else:
        yield path.stem, "\n".join(row["text"] for row in rows)


def _iter_numbered_lines(path: Path, limits: Limits) -> Iterator[tuple[int, str]]:
    with path.open("rb") as stream:
        read_line = partial(stream.readline, limits.max_book_bytes + 1)
        for line_number, line in enumerate(iter(read_line, b""), 1):
            limits.check_size("max_book_bytes", f"line {line_number}", len(line))
            yield line_number, line.decode("utf-8-sig" if line_number == 1 else "utf-8")


def _parse_row(line_number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line {line_number} is not JSON ({error})") from error
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise ValueError(f"line {line_number} is not an object with a string as its `text`")
    if not isinstance(row.get("title", ""), str):
        raise ValueError(f"line {line_number} has {row['title']!r} as its `title`: give a string")
    return row


def iter_text_books(path: Path, limits: Limits = LIMITS) -> Iterator[tuple[str, str]]:
    """Yields the file's name without its suffix, and its text, which is read as UTF-8.

    Raises:
        ValueError: the file is not UTF-8, or larger than the limit.
    """
    limits.check_size("max_book_bytes", "it", path.stat().st_size)
    yield path.stem, path.read_bytes().decode("utf-8-sig")


Reader = Callable[[Path, Limits], Iterator[tuple[str, str]]]
READERS: Mapping[str, Reader] = {
    ".txt": iter_text_books,
    ".epub": iter_epub_books,
    ".jsonl": iter_jsonl_books,
}
"""By file suffix, the function that yields the title and text of each book in a file."""

ROLES = {"positives": True, "negatives": False, "suspects": None}
"""By role, the label of its books: whether they are members, or None if that is in question."""
MIN_BOOKS = 5
"""The minimum number of positives and of negatives: fewer do not show how much books differ."""
MIN_SNIPPETS = 4
"""The minimum number of snippets of a book."""
SAME_BOOK_FRACTION = 0.2
"""Two files are the same book if the other has this fraction of the shorter one's n-grams."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Book:
    """A book of one role.

    Attributes:
        role: positives, negatives or suspects.
        title: its title, unique over all roles.
        text: its text, without the boilerplate.
        file: the path of its file.
        boilerplate: the runs of words that were removed because other books have them too.
    """

    role: str
    title: str
    text: str
    file: str
    boilerplate: tuple[BoilerplateRun, ...] = ()

    @property
    def role_and_title(self) -> str:
        """Role and title, such as `suspects/Emma`: a unique name."""
        return f"{self.role}/{self.title}"


def read_books(path_by_role: Mapping[str, str], limits: Limits = LIMITS) -> list[Book]:
    """Reads the books of each role, ordered by role and title.

    Text that several of them share at their beginnings or ends is removed.

    Args:
        path_by_role: a folder or a file for each role.
        limits: the maximum sizes of files.

    Raises:
        ConfigError: a folder does not exist, or has no book.
        DataError: a file can't be read or exceeds a limit, a book has no text, two books have the
            same title, or two files are the same book.
    """
    books = [
        book
        for role, path in path_by_role.items()
        for book in _read_books_of_role(role, path, limits)
    ]
    _check_titles_differ(books)
    stripped = strip_boilerplate([book.text for book in books])
    books = [
        replace(book, text=text, boilerplate=runs)
        for book, (text, runs) in zip(books, stripped, strict=True)
    ]
    _check_texts_differ(books)
    return books


def describe_boilerplate(books: Iterable[Book]) -> list[str]:
    """Returns a phrase about the removed beginnings and one about the removed ends, if any."""
    phrases = []
    for position in POSITIONS:
        runs = [(b, run) for b in books for run in b.boilerplate if run.position == position]
        if runs:
            book, longest = max(runs, key=lambda pair: pair[1].words)
            phrases.append(
                f"up to {longest.words:,} words at the {position} of {len(runs)} books, because "
                f"other books have them too; for example those of {book.title!r}, which begin with "
                f"{longest.first_words!r}"
            )
    return phrases


def books_digest(books: Iterable[Book]) -> str:
    """Returns a hash of the books' roles, titles and texts, independent of their order."""
    from contamination.data.examples import lines_digest

    rows = sorted(
        (book.role, book.title, hashlib.sha256(book.text.encode()).hexdigest()) for book in books
    )
    return lines_digest(json.dumps(row) for row in rows)


def _read_books_of_role(role: str, path: str, limits: Limits) -> list[Book]:
    folder = Path(path).expanduser()
    if not folder.exists():
        raise ConfigError(
            f"audit.{role} is {path!r}: there is no such folder. Give a folder of books."
        )
    entries = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    files = [entry for entry in entries if entry.suffix.lower() in READERS and entry.is_file()]
    books = [book for file in files for book in _iter_books_of_file(role, file, limits)]
    if not books:
        raise ConfigError(
            f"audit.{role} is {path!r}: it has no book. Give a folder of books, each a "
            f"{', '.join(READERS)} file, or one such file."
        )
    unread = [e.name for e in entries if e not in files and not e.name.startswith(".")]
    if unread:
        log.warning("audit.%s: %d files in %s, such as %s, are left out: they are not %s files.",
                    role, len(unread), path, unread[0], ", ".join(READERS))  # fmt: skip
    return sorted(books, key=lambda book: book.title)


def _iter_books_of_file(role: str, file: Path, limits: Limits) -> Iterator[Book]:
    try:
        for title, text in READERS[file.suffix.lower()](file, limits):
            if not text.strip():
                raise ValueError(f"the book {title!r} has no text")
            if "\0" in text:
                raise ValueError("it contains null characters, as UTF-16 does: save it as UTF-8")
            f"{title}{text}".encode()  # fails for half of a surrogate pair, which JSON allows
            yield Book(role, " ".join(title.split()) or file.stem, text, str(file))
    except (ValueError, OSError) as error:
        raise DataError(
            f"audit.{role}: {file} can't be used: {error}. Fix the file, or remove it."
        ) from error


def _check_titles_differ(books: Sequence[Book]) -> None:
    first_by_title: dict[str, Book] = {}
    for book in books:
        first_of_title = first_by_title.setdefault(book.title.casefold(), book)
        if first_of_title is not book:
            raise DataError(
                f"audit.{book.role}: two books are called {book.title!r}, in {first_of_title.file} "
                f"and in {book.file}. Remove one, or give them different titles."
            )


def _check_texts_differ(books: Sequence[Book]) -> None:
    """Raises a DataError if two files are the same book, by the n-grams that they share."""
    keys_by_book = [gram_keys(book.text) for book in books]
    fractions = {
        (i, j): shared_fraction(keys_by_book[i], keys_by_book[j])
        for i, j in _index_pairs_with_common_keys(keys_by_book)
    }
    (i, j), fraction = max(fractions.items(), key=lambda item: item[1], default=((0, 0), 0.0))
    if fraction >= SAME_BOOK_FRACTION:
        raise DataError(
            f"audit.{books[j].role}: {books[j].title!r} and {books[i].title!r} (of "
            f"audit.{books[i].role}) are the same book: {fraction:.0%} of the shorter one's "
            f"runs of {GRAM_WORDS} words are in the other. Remove one of them. If they share text "
            "that belongs to neither, such as a licence, remove that text from both files."
        )


def _index_pairs_with_common_keys(keys: Sequence[Keys]) -> list[tuple[int, int]]:
    all_keys = np.concatenate(keys)
    book_index = np.repeat(np.arange(len(keys)), [len(book_keys) for book_keys in keys])
    order = np.argsort(all_keys, kind="stable")
    edges = np.flatnonzero(np.diff(all_keys[order])) + 1
    groups = np.split(book_index[order], edges)
    books_by_key = {tuple(group.tolist()) for group in groups if len(group) > 1}
    return sorted({pair for books in books_by_key for pair in combinations(books, 2)})


def check_validation_book_counts(books: Sequence[Book]) -> None:
    """Raises a DataError if there are too few positives or negatives."""
    for role in ("positives", "negatives"):
        count = sum(book.role == role for book in books)
        if count < MIN_BOOKS:
            raise DataError(
                f"audit.{role}: it has {count} books, too few to choose a threshold on "
                f"some and to evaluate it on others. Give at least {MIN_BOOKS}, better 20 or more."
            )

"""What a server has answered, on disk as it comes: nothing is asked twice.

::

    runs/served/<model>-<hash>/
    ├── probe.json           what names the model: its first answers, and how it is asked
    └── answers-….jsonl      a file a process, a line an answer: the hash of what was asked, and
                             numbers; behind them the line's CRC-32

Between the answers are marks, each of a stretch of a file: that its answers are the model's, as a
check after them has shown, or that they are dropped. What no mark covers is a tail: a process is at
work there, or was stopped before it checked.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import weakref
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from contamination.core.errors import ArtifactError

log = logging.getLogger(__name__)

FILES = "answers-*.jsonl"


@dataclass(frozen=True)
class Mark:
    """What is known of the answers in a stretch of a file.

    Attributes:
        file: its name.
        start: the first answer's offset in bytes.
        end: an offset behind the last one's.
        kept: whether the answers are the model's.
    """

    file: str
    start: int
    end: int
    kept: bool

    def covers(self, file: Path, offset: int) -> bool:
        """Whether it tells of the answer there."""
        return file.name == self.file and self.start <= offset < self.end


def asked(ids: Sequence[int], how: str = "") -> str:
    """What names these tokens, and how it is asked about them."""
    return hashlib.sha256(np.asarray(ids, dtype="<i4").tobytes() + how.encode()).hexdigest()[:32]


class Answers:
    """The answers of one model at one server.

    A file is only appended to, by the process that made it. A line that a kill has cut is not
    read, nor a damaged one, which is said.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own: int | None = None  # the file that this process writes
        self._checked, self._lock, self._closed = 0, Lock(), False
        self._places: dict[str, tuple[Path, int]] = {}
        self._unsure: dict[str, tuple[Path, int]] = {}
        self._read(sorted(folder.glob(FILES)))

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, key: str) -> Any:
        file, offset = self._places[key]
        with suppress(OSError, TypeError), file.open("rb") as stream:
            stream.seek(offset)
            found, value = _content(stream.readline())
            if found == key:
                return value
        raise ArtifactError(
            f"{file} no longer has an answer that it had. It was deleted meanwhile, or another run "
            "has dropped its answers, as the server has changed. Run the same command again."
        )

    def __setitem__(self, key: str, value: Any) -> None:
        with self._lock:
            if not self._closed:
                self._places[key] = self._append([key, value])

    def keep(self) -> None:
        """A check has shown that this process's answers so far are the model's."""
        with self._lock:
            if (end := self._end()) > self._checked:
                self._add(Mark(self._file.name, self._checked, end, True))

    def forget(self) -> int:
        """Drop this process's answers after the last `keep`, and take no more; how many."""
        with self._lock:
            self._closed = True
            if self._own is None:
                return 0
            os.ftruncate(self._own, self._checked)
            late = [
                key
                for key, (file, offset) in self._places.items()
                if file == self._file and offset >= self._checked
            ]
            for key in late:
                del self._places[key]
            return len(late)

    def tails(self, keys: Iterable[str]) -> list[list[str]]:
        """Those of these answers that other processes have not checked, as they came: by file."""
        found: dict[Path, list[tuple[int, str]]] = {}
        for key in keys:
            if key in self._unsure:
                file, offset = self._unsure[key]
                found.setdefault(file, []).append((offset, key))
        return [[key for _, key in sorted(found[file])] for file in sorted(found)]

    def settle(self, tail: Sequence[str], kept: bool) -> int:
        """What a check has shown of a tail: it is kept from its first to its last, or all dropped.

        Returns:
            How many answers it was.
        """
        file, start = self._unsure[tail[0]]
        end = self._unsure[tail[-1]][1] + 1
        if not kept:
            start, end = 0, file.stat().st_size
        mark = Mark(file.name, start, end, kept)
        told = [key for key, place in self._unsure.items() if mark.covers(*place)]
        for key in told:
            del self._unsure[key]
            if not kept:
                del self._places[key]
        with self._lock:
            self._add(mark)
        return len(told)

    def _add(self, mark: Mark) -> None:
        """Write it; what is written so far is not dropped where it is no answer."""
        nothing = self._end() == self._checked
        self._append(asdict(mark))
        if nothing or mark.file == self._file.name:
            self._checked = self._end()

    def _end(self) -> int:
        """The length of the file that this process writes."""
        return 0 if self._own is None else os.lseek(self._own, 0, os.SEEK_END)

    def _append(self, content: Any) -> tuple[Path, int]:
        """Write a line; where it is."""
        if self._own is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._own, name = tempfile.mkstemp(".jsonl", "answers-", self.folder)
            self._file = Path(name)
            weakref.finalize(self, os.close, self._own)
        line, written, start = _line(content), 0, self._end()
        try:
            while written < len(line):
                written += os.write(self._own, line[written:])
        except OSError:  # of a full disk, which may take a part
            os.ftruncate(self._own, start)
            raise
        return self._file, start

    def _read(self, files: Sequence[Path]) -> None:
        """What stands in the files; an answer that one of them has checked is the one to use."""
        found = {file: _lines(file) for file in files}
        marks = [Mark(**one) for _, own in found.values() for one in own]
        unsure: dict[str, tuple[Path, int]] = {}
        for file, (answers, _) in found.items():
            offsets = np.array([*answers.values()], dtype=np.int64)
            state = np.zeros(len(offsets), dtype=np.int8)
            for mark in sorted(marks, key=attrgetter("kept")):  # what a check has shown holds
                if mark.file == file.name:
                    start, end = np.searchsorted(offsets, (mark.start, mark.end))
                    state[start:end] = 1 if mark.kept else -1
            for (key, offset), told in zip(answers.items(), state.tolist(), strict=True):
                if told >= 0:
                    (self._places if told else unsure)[key] = file, offset
        self._unsure = {key: place for key, place in unsure.items() if key not in self._places}
        self._places |= self._unsure


def _line(content: Any) -> bytes:
    """What `_content` reads."""
    text = json.dumps(content).encode()
    return b"%b %08x\n" % (text, zlib.crc32(text))


def _content(line: bytes) -> Any:
    """What a line holds; None: it is cut or damaged."""
    text = line[:-10]
    return json.loads(text) if line[-10:] == b" %08x\n" % zlib.crc32(text) else None


def _lines(file: Path) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """What the answers in a file are to, with their offsets, and the marks."""
    answers, marks, offset, damaged = {}, [], 0, 0
    with file.open("rb") as stream:
        for line in stream:
            content = _content(line)
            if isinstance(content, dict):
                marks.append(content)
            elif content:
                answers[content[0]] = offset
            else:
                damaged += line.endswith(b"\n")
            offset += len(line)
    if damaged:
        log.warning("%s: damaged lines: %d. What they held is asked for again.", file, damaged)
    return answers, marks


def rounded(numbers: Sequence[float]) -> list[float]:
    """The numbers as float32 tells them apart."""
    return [float(f"{number:.9g}") for number in numbers]

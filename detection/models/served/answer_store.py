"""The stored answers of one model at one server: no question is sent twice.

::

    runs/served/<model>-<hash>/
    ├── probe.json           the model's identity: its first fingerprint, and the form of requests
    └── answers-….jsonl      one file per process and one line per answer: the hash of the question
                             and the numbers, followed by the line's CRC-32

Between the answers are marks, each about a range of a file: its answers are confirmed as the
model's by a later check, or they are dropped. Answers without a mark are unchecked: their process
is still at work, or was stopped before its next check.

Each process appends to its own file, so that no lock is needed, also on network file systems.
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
class RangeMark:
    """The result of a check of the answers in a range of a file.

    Attributes:
        file: the file's name.
        start: the offset of the first answer, in bytes.
        end: an offset after the start of the last answer, in bytes.
        kept: whether the answers are confirmed; otherwise they are dropped.
    """

    file: str
    start: int
    end: int
    kept: bool

    def covers(self, file: Path, offset: int) -> bool:
        """Returns whether the mark is about the answer at this offset."""
        return file.name == self.file and self.start <= offset < self.end


def question_key(ids: Sequence[int], options: str = "") -> str:
    """Returns the hash of a question: its tokens, and the options of the request."""
    tokens = np.asarray(ids, dtype="<i4").tobytes()
    return hashlib.sha256(tokens + options.encode()).hexdigest()[:32]


class AnswerStore:
    """The answers of one model at one server, by the question's key.

    A file is only appended to, by the process that created it. Lines that a kill cut off are
    ignored, and so are damaged lines, with a warning.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor: int | None = None  # of the file that this process writes
        self._checked_end, self._lock, self._closed = 0, Lock(), False
        self._locations: dict[str, tuple[Path, int]] = {}
        self._unchecked: dict[str, tuple[Path, int]] = {}
        self._read_locations(sorted(folder.glob(FILES)))

    def __contains__(self, key: str) -> bool:
        return key in self._locations

    def __len__(self) -> int:
        return len(self._locations)

    def __getitem__(self, key: str) -> Any:
        file, offset = self._locations[key]
        with suppress(OSError, TypeError), file.open("rb") as stream:
            stream.seek(offset)
            stored_key, value = _decode_line(stream.readline())
            if stored_key == key:
                return value
        raise ArtifactError(
            f"{file} no longer has an answer that it had. The file was deleted, or another run "
            "has dropped its answers because the server changed. Run the same command again."
        )

    def __setitem__(self, key: str, value: Any) -> None:
        with self._lock:
            if not self._closed:
                self._locations[key] = self._append_line([key, value])

    def mark_checked(self) -> None:
        """Records that a check has confirmed all answers of this process so far."""
        with self._lock:
            if (end := self._file_end()) > self._checked_end:
                self._add_mark(RangeMark(self._file.name, self._checked_end, end, True))

    def drop_unchecked(self) -> int:
        """Drops this process's answers after the last check, and accepts no more.

        Returns:
            The number of dropped answers.
        """
        with self._lock:
            self._closed = True
            if self._descriptor is None:
                return 0
            os.ftruncate(self._descriptor, self._checked_end)
            dropped = [
                key
                for key, (file, offset) in self._locations.items()
                if file == self._file and offset >= self._checked_end
            ]
            for key in dropped:
                del self._locations[key]
            return len(dropped)

    def unchecked_keys_by_file(self, keys: Iterable[str]) -> list[list[str]]:
        """Returns the keys whose answers another process left unchecked, per file and in order."""
        offsets_by_file: dict[Path, list[tuple[int, str]]] = {}
        for key in keys:
            if key in self._unchecked:
                file, offset = self._unchecked[key]
                offsets_by_file.setdefault(file, []).append((offset, key))
        files = sorted(offsets_by_file)
        return [[key for _, key in sorted(offsets_by_file[file])] for file in files]

    def resolve_unchecked(self, keys: Sequence[str], kept: bool) -> int:
        """Records the result of a check of one list that `unchecked_keys_by_file` returned.

        Args:
            keys: the list.
            kept: whether the answers from its first to its last are confirmed; otherwise all
                answers of the file are dropped.

        Returns:
            The number of answers that are confirmed or dropped.
        """
        file, start = self._unchecked[keys[0]]
        end = self._unchecked[keys[-1]][1] + 1
        if not kept:
            start, end = 0, file.stat().st_size
        mark = RangeMark(file.name, start, end, kept)
        covered = [key for key, location in self._unchecked.items() if mark.covers(*location)]
        for key in covered:
            del self._unchecked[key]
            if not kept:
                del self._locations[key]
        with self._lock:
            self._add_mark(mark)
        return len(covered)

    def _add_mark(self, mark: RangeMark) -> None:
        """Writes a mark. If no answer is unchecked, nothing before it can be dropped afterwards."""
        all_checked = self._file_end() == self._checked_end
        self._append_line(asdict(mark))
        if all_checked or mark.file == self._file.name:
            self._checked_end = self._file_end()

    def _file_end(self) -> int:
        """Returns the length of the file that this process writes."""
        return 0 if self._descriptor is None else os.lseek(self._descriptor, 0, os.SEEK_END)

    def _append_line(self, content: Any) -> tuple[Path, int]:
        """Writes a line; returns its file and offset."""
        if self._descriptor is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._descriptor, name = tempfile.mkstemp(".jsonl", "answers-", self.folder)
            self._file = Path(name)
            weakref.finalize(self, os.close, self._descriptor)
        line, written, start = _encode_line(content), 0, self._file_end()
        try:
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError:  # a full disk may have taken a part of the line
            os.ftruncate(self._descriptor, start)
            raise
        return self._file, start

    def _read_locations(self, files: Sequence[Path]) -> None:
        """Reads the locations of all answers; prefers a confirmed answer to an unchecked one."""
        contents = {file: _read_lines(file) for file in files}
        marks = [
            RangeMark(**fields) for _, file_marks in contents.values() for fields in file_marks
        ]
        unchecked: dict[str, tuple[Path, int]] = {}
        for file, (answers, _) in contents.items():
            offsets = np.array([*answers.values()], dtype=np.int64)
            state = np.zeros(len(offsets), dtype=np.int8)  # 1: confirmed, -1: dropped
            for mark in sorted(marks, key=attrgetter("kept")):  # a confirmation is final
                if mark.file == file.name:
                    start, end = np.searchsorted(offsets, (mark.start, mark.end))
                    state[start:end] = 1 if mark.kept else -1
            for (key, offset), value in zip(answers.items(), state.tolist(), strict=True):
                if value >= 0:
                    (self._locations if value else unchecked)[key] = file, offset
        self._unchecked = {
            key: location for key, location in unchecked.items() if key not in self._locations
        }
        self._locations |= self._unchecked


def _encode_line(content: Any) -> bytes:
    """Returns a line with its CRC-32."""
    text = json.dumps(content).encode()
    return b"%b %08x\n" % (text, zlib.crc32(text))


def _decode_line(line: bytes) -> Any:
    """Returns the content of a line; None if it is cut or damaged."""
    text = line[:-10]
    return json.loads(text) if line[-10:] == b" %08x\n" % zlib.crc32(text) else None


def _read_lines(answers_file: Path) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Returns the offset of each answer in a file by key, and the fields of the marks."""
    answers, marks, offset, damaged = {}, [], 0, 0
    with answers_file.open("rb") as stream:
        for line in stream:
            content = _decode_line(line)
            if isinstance(content, dict):
                marks.append(content)
            elif content:
                answers[content[0]] = offset
            else:
                damaged += line.endswith(b"\n")
            offset += len(line)
    if damaged:
        log.warning(
            "%s: damaged lines: %d. Their questions are sent to the server again.",
            answers_file,
            damaged,
        )
    return answers, marks


def round_to_float32(numbers: Sequence[float]) -> list[float]:
    """Returns the numbers with as many digits as float32 distinguishes."""
    return [float(f"{number:.9g}") for number in numbers]

"""What a server has answered, on disk as it comes: nothing is asked twice.

::

    runs/served/<model>-<hash>/
    ├── probe.json           what names the model: its first answers, and how it is asked
    └── answers-….jsonl      a file a process, a line an answer: the hash of what was asked, numbers
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

FILES = "answers-*.jsonl"


def asked(ids: Sequence[int], how: str = "") -> str:
    """What names these tokens, and how it is asked about them."""
    return hashlib.sha256(np.asarray(ids, dtype="<i4").tobytes() + how.encode()).hexdigest()[:32]


class Answers:
    """The answers of one model at one server.

    A file is only appended to, by the process that made it. A line that a kill has cut is not
    read. Those that came after the last `keep` are dropped by `forget`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own: int | None = None  # the file that this process writes
        self._kept, self._lock = 0, Lock()
        self._places: dict[str, tuple[Path, int]] = {}
        for file in sorted(folder.glob(FILES)):
            self._read(file)

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __getitem__(self, key: str) -> Any:
        file, offset = self._places[key]
        with file.open("rb") as stream:
            stream.seek(offset)
            return json.loads(stream.readline())[1]

    def __setitem__(self, key: str, value: Any) -> None:
        line = json.dumps([key, value]).encode() + b"\n"
        with self._lock:
            if self._own is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._own, name = tempfile.mkstemp(".jsonl", "answers-", self.folder)
                self._file = Path(name)
                weakref.finalize(self, os.close, self._own)
            place = self._file, os.lseek(self._own, 0, os.SEEK_END)
            os.write(self._own, line)
            self._places[key] = place

    def keep(self) -> None:
        """The answers so far are the model's."""
        with self._lock:
            self._kept = 0 if self._own is None else os.lseek(self._own, 0, os.SEEK_END)

    def forget(self) -> None:
        """Drop what came after the last `keep`."""
        with self._lock:
            if self._own is None:
                return
            os.ftruncate(self._own, self._kept)
            late = (key for key, place in self._places.items() if place[0] == self._file)
            for key in [key for key in late if self._places[key][1] >= self._kept]:
                del self._places[key]

    def _read(self, file: Path) -> None:
        with file.open("rb") as stream:
            offset = 0
            for line in stream:
                if line.endswith(b"\n"):  # else it was cut
                    self._places[line[2:34].decode()] = file, offset
                offset += len(line)


def rounded(numbers: Sequence[float]) -> list[float]:
    """The numbers as float32 tells them apart."""
    return [float(f"{number:.9g}") for number in numbers]

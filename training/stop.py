"""SIGTERM, by which clusters announce that a job will be ended or moved."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any


class Stop:
    """While entered, SIGTERM sets `asked` instead of ending the process."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Stop:
        self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        signal.signal(signal.SIGTERM, self._before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

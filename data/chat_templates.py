"""Chat templates, which are programs of a model's makers: rendered in a process with limits.

Transformers renders them in Jinja's sandbox, which bounds neither their time nor their memory. The
process is started with the first text and renders all others.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from threading import Lock
from typing import Any

import contamination
from contamination.core.errors import said

SECONDS = 10.0
"""How long a template may take for one chat."""
START_SECONDS = 120.0
"""How long the process may take to start."""
MEMORY = 2**30
"""Bytes that the process may allocate while it renders."""
MOST_CHARACTERS = 2**24
"""Of a rendered chat."""

READY = b"ready"
"""What the process says once it can render."""

Messages = Sequence[Mapping[str, str]]


class TemplateError(Exception):
    """A chat template that does not render a chat, in words; none is there, or it refuses."""


class TemplateLimitError(TemplateError):
    """A chat template that takes more time or memory than it may, or has no process to run in."""


def rendered(tokenizer: Any, messages: Messages, **options: bool) -> str:
    """The chat as the tokenizer's template writes it.

    Args:
        tokenizer: a tokenizer of transformers.
        messages: the chat.
        options: `add_generation_prompt` or `continue_final_message`.

    Raises:
        TemplateError: there is no template, or it does not take this chat.
        TemplateLimitError: it takes more than SECONDS, MEMORY or MOST_CHARACTERS.
    """
    try:
        template = tokenizer.get_chat_template()
    except ValueError as error:
        raise TemplateError(said(error)) from error
    values = {**tokenizer.special_tokens_map, **options}
    chat = [*map(dict, messages)]
    for number, message in enumerate(chat):
        for name, value in message.items():
            _check_json(f"messages[{number}].{name}", value)
    return _process.render({"conversations": [chat], "chat_template": template, **values})


def _check_json(name: str, value: object) -> None:
    """Raise a TemplateError unless the value of a message can be sent to the process as JSON."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise TemplateError(
            f"{name} is {value!r:.60} ({type(value).__name__}), which is not a JSON value "
            f"({said(error)}): give texts, numbers, true, false, null, or lists and mappings of "
            "these"
        ) from error


class _Process:
    """The process that renders, once there is one. A forked process starts its own."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None

    def render(self, asked: Mapping[str, Any]) -> str:
        with self._lock:
            try:
                answer = self._answer(json.dumps(asked).encode())
            except BaseException:  # it is at work on this chat, or has ended
                self._end()
                raise
        if "error" in answer:
            kind = TemplateLimitError if answer["is_limit"] else TemplateError
            raise kind(answer["error"])
        return str(answer["text"])

    def _answer(self, asked: bytes) -> Any:
        connection = self._connection or self._start()
        try:
            connection.send_bytes(asked)
            if not connection.poll(SECONDS):
                raise TemplateLimitError(f"it did not end within {SECONDS:g} seconds")
            return json.loads(connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise TemplateLimitError(
                f"its process ended: it may need more memory{_limited()}"
            ) from error

    def _start(self) -> Connection[Any, Any]:
        self._connection, other = Pipe()
        with other:
            call = "from contamination.data.chat_templates import serve; serve({}, {})"
            # not the current folder, whose modules are no code of this project's
            home = str(Path(contamination.__file__).resolve().parents[1])
            paths = os.pathsep.join([*(path for path in sys.path if path), home])
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-c", call.format(other.fileno(), MEMORY)],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={
                    **os.environ,
                    "PYTHONPATH": paths,
                },
                start_new_session=True,  # Ctrl+C is for this process, which ends that one
            )
        atexit.register(self._end)
        if not self._connection.poll(START_SECONDS):
            raise TemplateLimitError(f"no process for it started within {START_SECONDS:g} seconds")
        try:
            words = self._connection.recv_bytes()
        except EOFError:
            words = b"it ended"
        if words != READY:
            why = f"no process for it could be started ({words.decode()}){_limited()}"
            raise TemplateLimitError(why)
        return self._connection

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        self._connection = self._child = None
        atexit.unregister(self._end)

    def forget(self) -> None:
        """Leave the process to the one that started it: this one is a fork of that."""
        atexit.unregister(self._end)
        if self._connection is not None:
            self._connection.close()  # the copy of this process alone
        if self._child is not None:
            self._child.returncode = 0  # not a child of this process, which can't wait for it
        self._lock = Lock()  # a thread that is not in this process may hold the other
        self._connection = self._child = None


_process = _Process()
os.register_at_fork(after_in_child=_process.forget)


def _limited() -> str:
    """A remedy where this process has a limit of memory, which those that it starts inherit."""
    import resource

    limit = min(map(_bytes, resource.getrlimit(resource.RLIMIT_AS)))
    if limit == float("inf"):
        return ""
    return f". The limit of memory (ulimit -v) is {limit / 2**30:.2f} GiB: raise it"


def _bytes(limit: int) -> float:
    """A limit of resources as a number of bytes."""
    import resource

    return float("inf") if limit == resource.RLIM_INFINITY else limit


def serve(descriptor: int, memory: int) -> None:
    """Render what is asked through the descriptor until nobody asks: what the process runs."""
    connection: Connection[Any, Any] = Connection(descriptor)
    try:
        from transformers.utils.chat_template_utils import render_jinja_template
    except (ImportError, OSError, MemoryError) as error:
        connection.send_bytes(said(error)[:300].encode())
        return
    memory = _limit_memory(memory)
    connection.send_bytes(READY)
    while True:
        try:
            asked = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        answer: dict[str, Any]
        signal.alarm(int(2 * SECONDS))  # where the process that asked has ended, and can't end this
        try:
            (text,), _ = render_jinja_template(**asked)
            answer = {"text": text}
            if len(text) > MOST_CHARACTERS:
                words = f"it writes {len(text):,} characters, and {MOST_CHARACTERS:,} are allowed"
                answer = {"error": words, "is_limit": True}
        except (MemoryError, RecursionError) as error:
            words = f"it needs more than {memory / 2**30:.3g} GiB, or endless steps"
            answer = {"error": f"{words} ({type(error).__name__})", "is_limit": True}
        except Exception as error:  # a template raises whatever its author chose
            answer = {"error": said(error)[:1000], "is_limit": False}
        signal.alarm(0)
        connection.send_bytes(json.dumps(answer).encode())


def _limit_memory(most: int) -> int:
    """Let this process allocate so many bytes more than it has, which only Linux enforces.

    Returns:
        How many it may allocate: fewer where a limit that it has inherited is lower.
    """
    import resource

    if sys.platform != "linux":
        return most
    with open("/proc/self/statm") as stream:
        used = int(stream.read().split()[0]) * resource.getpagesize()
    inherited = min(map(_bytes, resource.getrlimit(resource.RLIMIT_AS)))
    limit = int(min(used + most, inherited))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return limit - used

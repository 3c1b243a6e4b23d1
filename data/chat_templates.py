"""Renders chat templates, which are untrusted programs, in a process with limits.

Transformers renders them in Jinja's sandbox, which limits neither time nor memory. The process is
started for the first chat and renders all later chats.
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
from contamination.core.errors import describe_error

RENDER_SECONDS = 10.0  # the time limit for one chat
START_SECONDS = 120.0  # the time limit for the start of the process
MEMORY_BYTES = 2**30  # bytes that the process may allocate while it renders
MAX_CHARACTERS = 2**24  # characters of a rendered chat at most

READY = b"ready"  # the message of the process once it can render

Messages = Sequence[Mapping[str, str]]


class TemplateError(Exception):
    """There is no chat template, or it can't render a chat."""


class TemplateLimitError(TemplateError):
    """A chat template exceeds its time or memory limit, or its process can't be started."""


def render_chat(tokenizer: Any, messages: Messages, **options: bool) -> str:
    """Returns a chat as text, rendered by the tokenizer's template.

    Args:
        tokenizer: a tokenizer of transformers.
        messages: the chat.
        options: `add_generation_prompt` or `continue_final_message`.

    Raises:
        TemplateError: there is no template, or it rejects this chat.
        TemplateLimitError: it exceeds RENDER_SECONDS, MEMORY_BYTES or MAX_CHARACTERS.
    """
    try:
        template = tokenizer.get_chat_template()
    except ValueError as error:
        raise TemplateError(describe_error(error)) from error
    values = {**tokenizer.special_tokens_map, **options}
    chat = [*map(dict, messages)]
    for number, message in enumerate(chat):
        for name, value in message.items():
            _check_is_json_value(f"messages[{number}].{name}", value)
    return _process.render({"conversations": [chat], "chat_template": template, **values})


def _check_is_json_value(name: str, value: object) -> None:
    """Raises a TemplateError unless the value of a message can be written as JSON."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise TemplateError(
            f"{name} is {value!r:.60} ({type(value).__name__}), which is not a JSON value "
            f"({describe_error(error)}): give strings, numbers, true, false, null, or lists "
            "and mappings of these"
        ) from error


class _RenderingProcess:
    """The child process that renders, started on first use; a forked process starts its own."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None

    def render(self, request: Mapping[str, Any]) -> str:
        with self._lock:
            try:
                answer = self._exchange(json.dumps(request).encode())
            except BaseException:  # the process is still rendering this chat, or has ended
                self._end_child()
                raise
        if "error" in answer:
            kind = TemplateLimitError if answer["is_limit"] else TemplateError
            raise kind(answer["error"])
        text = str(answer["text"])
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TemplateError(f"it writes invalid Unicode ({error.reason})") from error
        return text

    def _exchange(self, request: bytes) -> Any:
        is_reused = self._connection is not None
        connection = self._connection or self._start_child()
        try:
            connection.send_bytes(request)
            if not connection.poll(RENDER_SECONDS):
                raise TemplateLimitError(f"it did not end within {RENDER_SECONDS:g} seconds")
            return json.loads(connection.recv_bytes())
        except (EOFError, OSError) as error:
            if is_reused:  # the process may have ended before this chat
                self._end_child()
                return self._exchange(request)
            raise TemplateLimitError(
                f"its process ended: it may need more memory{_inherited_memory_limit_remedy()}"
            ) from error

    def _start_child(self) -> Connection[Any, Any]:
        self._connection, child_end = Pipe()
        with child_end:
            call = (
                "from contamination.data import chat_templates;"
                f" chat_templates.serve_render_requests({child_end.fileno()}, {MEMORY_BYTES})"
            )
            # the current folder is left out: its modules are not part of this project
            code_root = str(Path(contamination.__file__).resolve().parents[1])
            paths = os.pathsep.join([*(path for path in sys.path if path), code_root])
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-c", call],
                pass_fds=[child_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": paths},
                start_new_session=True,  # Ctrl+C ends this process, which then ends the child
            )
        atexit.register(self._end_child)
        if not self._connection.poll(START_SECONDS):
            raise TemplateLimitError(f"no process for it started within {START_SECONDS:g} seconds")
        try:
            message = self._connection.recv_bytes()
        except EOFError:
            message = b"it ended"
        if message != READY:
            raise TemplateLimitError(
                f"no process for it could be started ({message.decode()})"
                f"{_inherited_memory_limit_remedy()}"
            )
        return self._connection

    def _end_child(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        self._connection = self._child = None
        atexit.unregister(self._end_child)

    def disown_child(self) -> None:
        """After a fork, leave the child to the parent process."""
        atexit.unregister(self._end_child)
        if self._connection is not None:
            self._connection.close()  # only this process's copy
        if self._child is not None:
            self._child.returncode = 0  # it is not a child of this process
        self._lock = Lock()  # another thread of the parent may hold the old one
        self._connection = self._child = None


_process = _RenderingProcess()
os.register_at_fork(after_in_child=_process.disown_child)


def _inherited_memory_limit_remedy() -> str:
    """Returns a remedy if this process has a memory limit, which its children inherit."""
    import resource

    limit = min(map(_limit_in_bytes, resource.getrlimit(resource.RLIMIT_AS)))
    if limit == float("inf"):
        return ""
    return f". The memory limit (ulimit -v) is {limit / 2**30:.2f} GiB: raise it"


def _limit_in_bytes(limit: int) -> float:
    import resource

    return float("inf") if limit == resource.RLIM_INFINITY else limit


def serve_render_requests(descriptor: int, memory: int) -> None:
    """Renders the requests of a connection until it is closed; the child process runs this."""
    connection: Connection[Any, Any] = Connection(descriptor)
    try:
        from transformers.utils.chat_template_utils import render_jinja_template
    except (ImportError, OSError, MemoryError) as error:
        connection.send_bytes(describe_error(error)[:300].encode())
        return
    memory = _limit_memory(memory)
    connection.send_bytes(READY)
    while True:
        try:
            request = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        answer: dict[str, Any]
        signal.alarm(
            int(2 * RENDER_SECONDS)
        )  # in case the parent has ended and can't end this process
        try:
            (text,), _ = render_jinja_template(**request)
            answer = {"text": text}
            if len(text) > MAX_CHARACTERS:
                problem = f"it writes {len(text):,} characters, but {MAX_CHARACTERS:,} are allowed"
                answer = {"error": problem, "is_limit": True}
        except (MemoryError, RecursionError) as error:
            problem = f"it needs more than {memory / 2**30:.3g} GiB, or does not end"
            answer = {"error": f"{problem} ({type(error).__name__})", "is_limit": True}
        except Exception as error:  # a template may raise any error
            answer = {"error": describe_error(error)[:1000], "is_limit": False}
        signal.alarm(0)
        connection.send_bytes(json.dumps(answer).encode())


def _limit_memory(max_bytes: int) -> int:
    """Limit the bytes that this process may allocate from now on (only on Linux).

    Returns:
        The limit in bytes, which is lower if the process has inherited a lower one.
    """
    import resource

    if sys.platform != "linux":
        return max_bytes
    with open("/proc/self/statm") as statm_file:
        used = int(statm_file.read().split()[0]) * resource.getpagesize()
    inherited = min(map(_limit_in_bytes, resource.getrlimit(resource.RLIMIT_AS)))
    limit = int(min(used + max_bytes, inherited))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return limit - used

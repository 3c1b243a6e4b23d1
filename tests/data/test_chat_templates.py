"""Chat templates are rendered as by transformers, within limits."""

import datetime
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from contamination.data import chat_templates
from contamination.data.chat_templates import TemplateError, TemplateLimitError, render_chat
from tests.forks import in_fork

CHAT = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
MESSAGES = [{"role": "user", "content": "Wh\u00fd?"}, {"role": "assistant", "content": "As \u65e5"}]


def tokenizer(template):
    return SimpleNamespace(
        get_chat_template=lambda: template, special_tokens_map={"bos_token": "<s>"}
    )


@pytest.mark.parametrize("options", [{}, {"continue_final_message": True}])
def test_a_chat_is_what_transformers_makes_of_it(options):
    (own,), _ = render_jinja_template([MESSAGES], chat_template=CHAT, bos_token="<s>", **options)
    assert render_chat(tokenizer(CHAT), MESSAGES, **options) == own


def test_a_template_may_refuse_a_chat():
    refuses = "{{ raise_exception('no such\nrole') }}"
    with pytest.raises(TemplateError, match="^no such role$") as error:
        render_chat(tokenizer(refuses), MESSAGES)
    assert not isinstance(error.value, TemplateLimitError)
    with pytest.raises(TemplateError, match="unexpected|expected token"):
        render_chat(tokenizer("{% if"), MESSAGES)


LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (LOOP, "did not end within"),
        ("{{ 'a' * 10**10 }}", "needs more than 1 GiB"),
        ("{{ 'a' * 2**25 }}", "writes 33,554,432 characters, but 16,777,216 are allowed"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "or does not end"),
    ],
)
def test_a_template_ends_at_its_limits_and_the_next_is_rendered(template, words, monkeypatch):
    if template == LOOP:
        monkeypatch.setattr(chat_templates, "RENDER_SECONDS", 0.2)
    with pytest.raises(TemplateLimitError, match=words):
        render_chat(tokenizer(template), MESSAGES)
    assert render_chat(tokenizer("a"), MESSAGES) == "a"


def test_a_process_that_was_ended_is_started_again():
    assert render_chat(tokenizer("a"), MESSAGES) == "a"
    os.kill(chat_templates._process._child.pid, signal.SIGKILL)
    assert render_chat(tokenizer("b"), MESSAGES) == "b"


def test_a_process_that_ends_again_is_said(monkeypatch):
    process = chat_templates._process
    start = process._start_child

    def start_and_kill():
        connection = start()
        process._child.kill()
        return connection

    process._end_child()
    monkeypatch.setattr(process, "_start_child", start_and_kill)
    with pytest.raises(TemplateLimitError, match="its process ended"):
        render_chat(tokenizer("a"), MESSAGES)
    monkeypatch.undo()
    assert render_chat(tokenizer("a"), MESSAGES) == "a"


def test_half_of_a_surrogate_pair_is_refused():
    with pytest.raises(TemplateError, match="it writes invalid Unicode .surrogates not allowed"):
        render_chat(tokenizer("{{ '\\ud800' }}"), MESSAGES)


def test_modules_of_the_current_folder_are_not_imported(tmp_path):
    (tmp_path / "json.py").write_text("open('imported', 'w').close()\n")
    code = (
        "import os, sys; from types import SimpleNamespace as S; "
        "from contamination.data import chat_templates; "
        "sys.path.remove(''); os.chdir(sys.argv[1]); "
        "print(chat_templates.render_chat(S(get_chat_template=lambda: '{{ 1 + 1 }}', "
        "special_tokens_map={}), []))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "2\n", done.stderr
    assert not (tmp_path / "imported").exists()


def rendering():
    """The process that renders, once there is one."""
    render_chat(tokenizer("a"), MESSAGES)
    return chat_templates._process._child.pid


def test_a_forked_process_has_a_process_of_its_own():
    process = rendering()
    forked = in_fork(lambda: render_chat(tokenizer("b"), MESSAGES) + f" {rendering()}")
    text, number = forked.split()
    assert text == "b"
    assert int(number) != process == rendering()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_while_a_template_is_rendered_neither_waits_nor_takes_its_text():
    process = rendering()
    slow = "{% for i in range(9999) %}{% for j in range(999) %}{% endfor %}{% endfor %}slow"
    texts = []
    thread = threading.Thread(target=lambda: texts.append(render_chat(tokenizer(slow), MESSAGES)))
    thread.start()
    while not chat_templates._process._lock.locked():
        time.sleep(0.01)
    assert in_fork(lambda: render_chat(tokenizer("b"), MESSAGES)) == "b"
    thread.join()
    assert texts == ["slow"]
    assert rendering() == process


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.arange(2), "array([0, 1]) (ndarray)"),
        (datetime.date(2020, 1, 1), "datetime.date(2020, 1, 1) (date)"),
        (b"a", "b'a' (bytes)"),
        ({(1, 2): 3}, "{(1, 2): 3} (dict)"),
    ],
    ids=["array", "date", "bytes", "key"],
)
def test_a_message_that_is_not_json_is_refused(value, words):
    message = re.escape(f"messages[0].x is {words}, which is not a JSON value")
    with pytest.raises(TemplateError, match=message):
        render_chat(tokenizer(CHAT), [{"role": "user", "content": "Why?", "x": value}])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces limits of memory")
def test_the_limit_of_memory_is_named_in_gib():
    def answer():
        ours, theirs = socket.socketpair()
        connection = Connection(os.dup(ours.fileno()))
        request = {"conversations": [MESSAGES], "chat_template": "{{ 'a' * 10**10 }}"}
        connection.send_bytes(json.dumps(request).encode())
        ours.shutdown(socket.SHUT_WR)  # no more requests
        chat_templates.serve_render_requests(theirs.detach(), 2**29)
        assert connection.recv_bytes() == chat_templates.READY
        return connection.recv_bytes().decode()

    message = "it needs more than 0.5 GiB, or does not end (MemoryError)"
    assert json.loads(in_fork(answer)) == {"error": message, "is_limit": True}


def serve(*templates, rendered=None):
    """The answers to these templates by a process that has no limit of memory to speak of."""

    def answer():
        parent_end, child_end = socket.socketpair()
        connection = Connection(os.dup(parent_end.fileno()))
        for template in templates:
            request = {"conversations": [MESSAGES], "chat_template": template}
            connection.send_bytes(json.dumps(request).encode())
        parent_end.shutdown(socket.SHUT_WR)
        chat_templates._limit_memory = lambda memory: memory
        chat_templates.MAX_CHARACTERS = 3000
        if rendered is not None:
            render = "transformers.utils.chat_template_utils.render_jinja_template"
            pytest.MonkeyPatch().setattr(render, rendered)
        chat_templates.serve_render_requests(child_end.detach(), 2**31)
        seconds_left = signal.alarm(0)
        answers = [connection.recv_bytes() for _ in range(1 + len(templates))]
        assert answers[0] == chat_templates.READY
        return json.dumps([seconds_left, *map(json.loads, answers[1:])])

    return json.loads(in_fork(answer))


def test_each_request_has_an_answer_and_then_no_alarm_is_set():
    fails = "{{ raise_exception('no ' + 'x' * 2000) }}"
    endless = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"
    assert serve("{{ 1 + 1 }}", fails, "{{ 'a' * 3001 }}", endless, "{{ 'a' * 3000 }}") == [
        0, {"text": "2"}, {"error": "no " + "x" * 997, "is_limit": False},
        {"error": "it writes 3,001 characters, but 3,000 are allowed", "is_limit": True},
        {"error": "it needs more than 2 GiB, or does not end (RecursionError)", "is_limit": True},
        {"text": "a" * 3000},
    ]  # fmt: skip


def test_a_process_whose_parent_is_gone_ends_in_twice_the_time():
    seconds = int(2 * chat_templates.RENDER_SECONDS)
    seconds_left = serve("", rendered=lambda **_: ((str(signal.alarm(0)),), None))[1]["text"]
    assert chat_templates.RENDER_SECONDS < int(seconds_left) <= seconds


def test_a_process_that_cannot_import_its_renderer_says_why():
    class Broken:
        def __getattr__(self, name):
            raise ImportError("no such library " + "x" * 400)

    def answer():
        parent_end, child_end = socket.socketpair()
        connection = Connection(os.dup(parent_end.fileno()))
        sys.modules["transformers.utils.chat_template_utils"] = Broken()
        chat_templates.serve_render_requests(child_end.detach(), 2**29)
        return connection.recv_bytes().decode()

    assert in_fork(answer) == ("no such library " + "x" * 400)[:300]


def test_the_lower_limit_of_memory_is_said(monkeypatch):
    import resource

    for limits, remedy in (
        ((2**29, resource.RLIM_INFINITY), ". The memory limit (ulimit -v) is 0.50 GiB: raise it"),
        ((2**31, 2**30), ". The memory limit (ulimit -v) is 1.00 GiB: raise it"),
        ((resource.RLIM_INFINITY,) * 2, ""),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, limits=limits: limits)
        assert chat_templates._inherited_memory_limit_remedy() == remedy


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces limits of memory")
def test_the_limit_of_memory_is_added_to_what_is_used_up_to_an_inherited_one(monkeypatch):
    import resource

    calls, inherited = [], [(2**50, resource.RLIM_INFINITY)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: inherited[0])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: calls.append((kind, limits)))
    assert chat_templates._limit_memory(2**30) == 2**30
    ((kind, (soft, hard)),) = calls
    assert kind == resource.RLIMIT_AS
    assert 2**30 + 2**20 < soft == hard < 2**45  # with what the process uses
    inherited[0] = (soft - 5, 2**50)
    assert chat_templates._limit_memory(2**40) == pytest.approx(2**30, abs=2**29)
    assert calls[1] == (kind, (soft - 5, soft - 5))


def test_a_tokenizer_without_a_template_is_said():
    def get_chat_template():
        raise ValueError("no chat\ntemplate here")

    with pytest.raises(TemplateError, match="^no chat template here$"):
        render_chat(SimpleNamespace(get_chat_template=get_chat_template), MESSAGES)


def under_a_limit(gib):
    """What a process writes that renders with a hard limit of memory."""
    code = (
        "import resource; from types import SimpleNamespace as S; "
        "from contamination.data import chat_templates as c; limit = int({} * 2**30)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "for template in ('{{{{ 1 + 1 }}}}', '{{{{ 9 * 10**9 * \"a\" }}}}'):\n"
        "    tokenizer = S(get_chat_template=lambda: template, special_tokens_map={{}})\n"
        "    try: print(c.render_chat(tokenizer, []))\n"
        "    except c.TemplateLimitError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code.format(gib)],
        cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines(), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces limits of memory")
def test_templates_are_rendered_below_a_hard_limit_of_memory():
    (text, refused), errors = under_a_limit(0.75)
    assert text == "2"
    assert re.search(r"needs more than 0\.\d+ GiB", refused)
    assert not errors


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces limits of memory")
def test_a_limit_of_memory_that_is_too_low_is_named():
    lines, errors = under_a_limit(0.06)
    assert "The memory limit (ulimit -v) is 0.06 GiB: raise it" in lines[0]
    assert not errors

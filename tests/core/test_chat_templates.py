"""Chat templates are rendered as by transformers, within limits."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from core import chat_templates
from core.chat_templates import TemplateError, TemplateLimitError, rendered

CHAT = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
MESSAGES = [{"role": "user", "content": "Wh\u00fd?"}, {"role": "assistant", "content": "As \u65e5"}]


def tokenizer(template):
    return SimpleNamespace(
        get_chat_template=lambda: template, special_tokens_map={"bos_token": "<s>"}
    )


@pytest.mark.parametrize("options", [{}, {"continue_final_message": True}])
def test_a_chat_is_what_transformers_makes_of_it(options):
    (own,), _ = render_jinja_template([MESSAGES], chat_template=CHAT, bos_token="<s>", **options)
    assert rendered(tokenizer(CHAT), MESSAGES, **options) == own


def test_a_template_may_refuse_a_chat():
    refuses = "{{ raise_exception('no such\nrole') }}"
    with pytest.raises(TemplateError, match="^no such role$") as error:
        rendered(tokenizer(refuses), MESSAGES)
    assert not isinstance(error.value, TemplateLimitError)
    with pytest.raises(TemplateError, match="unexpected|expected token"):
        rendered(tokenizer("{% if"), MESSAGES)


LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (LOOP, "did not end within"),
        ("{{ 'a' * 10**10 }}", "needs more than 1 GiB"),
        ("{{ 'a' * 2**25 }}", "writes 33,554,432 characters, and 16,777,216 are allowed"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "endless steps"),
    ],
)
def test_a_template_ends_at_its_limits_and_the_next_is_rendered(template, words, monkeypatch):
    if template == LOOP:
        monkeypatch.setattr(chat_templates, "SECONDS", 0.2)
    with pytest.raises(TemplateLimitError, match=words):
        rendered(tokenizer(template), MESSAGES)
    assert rendered(tokenizer("a"), MESSAGES) == "a"


def test_a_process_that_was_ended_is_started_again():
    assert rendered(tokenizer("a"), MESSAGES) == "a"
    os.kill(chat_templates._process._child.pid, signal.SIGKILL)
    with pytest.raises(TemplateLimitError, match="its process ended"):
        rendered(tokenizer("a"), MESSAGES)
    assert rendered(tokenizer("a"), MESSAGES) == "a"


def test_modules_of_the_current_folder_are_not_imported(tmp_path):
    (tmp_path / "json.py").write_text("open('imported', 'w').close()\n")
    code = (
        "import os, sys; from types import SimpleNamespace as S; from core import chat_templates; "
        "sys.path.remove(''); os.chdir(sys.argv[1]); "
        "print(chat_templates.rendered(S(get_chat_template=lambda: '{{ 1 + 1 }}', "
        "special_tokens_map={}), []))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "2\n", done.stderr
    assert not (tmp_path / "imported").exists()

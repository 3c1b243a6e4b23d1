"""Keys that are given in a wrong place, or quoted in another way, are not repeated."""

import html
import json
import sys
from urllib.parse import quote

import pytest

from contamination.core.cli import run_hydra_command
from contamination.core.secrets import (
    check_overrides_contain_no_key,
    hide_key,
    hide_sensitive_overrides,
)

KEY = 'sk-a\\b"c<d&e/f+g=hij0123'


@pytest.mark.parametrize("quoted", [
    KEY, json.dumps([KEY]), json.dumps(json.dumps(KEY)), repr({"key": KEY}), quote(KEY, safe=""),
    quote(quote(KEY, safe="")), html.escape(KEY), "".join(f"\\u{ord(sign):04x}" for sign in KEY),
    f"{KEY[:12]}...", f"a {KEY}{KEY} b",
])  # fmt: skip
def test_a_key_is_found_as_servers_quote_it(quoted):
    said = hide_key(f"Wrong key {quoted}, says the server.", KEY)
    assert said.startswith("Wrong key ")
    assert "***" in said
    assert not any(KEY[i : i + 6] in said for i in range(len(KEY) - 5))
    assert hide_key("The words stay.", KEY) == "The words stay."


GIVEN = [
    "model.url=http://h/v1?api_key=KEY", 'model.url="http://h/v1#KEY"', "+model.url=http://me:KEY@h/v1",
    "model.key_env=KEY", 'reference.key_env="KEY"', "model.key_env=[KEY]", "model.key_env={KEY: 1}",
    "+model={url: http://h/v1, key_env: KEY}", "+model={url: http://h/v1?KEY, name: a}",
]  # fmt: skip


PLAIN, ODD = "sk-Secret_abc", "sk-Secret+abc/Def=="
WRONG = [
    *((words, key) for words in [*GIVEN, "model.key_en=KEY"] for key in (PLAIN, ODD)),
    ("+model.api_key=KEY", ODD), ("+a.token=KEY", ODD),
]  # fmt: skip


@pytest.mark.parametrize(("given", "key"), WRONG)
def test_a_key_in_a_wrong_place_is_not_printed(given, key, monkeypatch, capfd):
    words = ["detection", "examples.path=x", given.replace("KEY", key)]
    monkeypatch.setattr(sys, "argv", words)
    assert run_hydra_command("detection", lambda config: pytest.fail("it ran")) == 2
    said = capfd.readouterr()
    assert "Secret" not in said.out + said.err
    assert len(said.err.splitlines()) == 1


def test_what_may_stand_there_is_taken(monkeypatch):
    monkeypatch.setenv("mine", "x")
    check_overrides_contain_no_key([
        "model.url=http://a/v1,https://b:1/v1", "model.key_env=A_KEY,mine", "model.key_env=null",
        "model.key_env=${reference.key_env}", "model.architecture.num_key_value_heads=4", "x",
    ])  # fmt: skip
    words = "model.url is 'localhost:8000/v1': A_KEY"
    assert (
        hide_sensitive_overrides(words, ["model.url=localhost:8000/v1", "model.key_env=A_KEY"])
        == words
    )

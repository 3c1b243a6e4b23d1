"""What the hub is never asked for, and the environment's faults that keep it from answering."""

import os
import re
import subprocess
import sys

import pytest
from huggingface_hub import constants, get_session

from contamination.core.errors import ConfigError
from contamination.core.hub import cache_only_hint, download_snapshot, hub_offline
from contamination.core.models import load_tokenizer
from contamination.core.network_environment import CERTIFICATES, describe_environment_fault


@pytest.fixture
def asking(tmp_path, monkeypatch):
    """A cache that is empty, and a client that may ask the hub."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))


def no_request(*_, **__):
    raise AssertionError("a request was sent")


def test_within_it_no_request_is_sent(asking, monkeypatch):
    monkeypatch.setattr("socket.getaddrinfo", no_request)
    words = "A stored config names it.* hf download --repo-type dataset owner/name$"
    with hub_offline():
        with pytest.raises(ConfigError, match=words):
            download_snapshot("examples.path", "owner/name", ["*"], kind="dataset")
        with pytest.raises(ConfigError, match="hf download owner/name$"):
            load_tokenizer("masked_lm.path", "owner/name")
        with pytest.raises(ConnectionError, match="offline"):
            get_session().get(f"{constants.ENDPOINT}/api/models/owner/name")


def test_behind_it_the_hub_may_be_asked_again(asking):
    with hub_offline():
        assert constants.is_offline_mode()
        assert cache_only_hint("owner/name")
    assert not constants.is_offline_mode()
    assert cache_only_hint("owner/name") == ""


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ALL_PROXY", "socks5://u:secret@127.0.0.1:1", r"Run pip install 'httpx\[socks\]', or "),
        ("SSL_CERT_FILE", "/nowhere", "Correct or unset SSL_CERT_FILE='/nowhere'"),
    ],
)
def test_what_the_environment_names_for_connections_and_lacks_is_said(name, value, words):
    code = (
        "import sys; sys.modules['socksio'] = None; from contamination.core import hub; "
        "from contamination.core.cli import run_tool as said; "
        "sys.exit(said(lambda: print(hub.download_snapshot('model.path', 'owner/name', ['a']))))"
    )
    kept = {n: v for n, v in os.environ.items() if not n.lower().endswith("_proxy")}
    run = subprocess.run(
        [sys.executable, "-c", code], env={**kept, name: value, "HF_HUB_OFFLINE": "0"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    (line,) = run.stderr.splitlines()
    assert re.search(f"^error: model.path is 'owner/name': .*{words}", line)
    assert (run.stdout, run.returncode) == ("", 2)
    assert "secret" not in line


@pytest.mark.parametrize(
    ("value", "remedy"),
    [("", "Install certifi again."), ("/nowhere", "Correct or unset SSL_CERT_FILE='/nowhere'.")],
)
def test_certificates_that_cannot_be_read_are_said_with_the_reason(monkeypatch, value, remedy):
    for name in CERTIFICATES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", value)
    fault = describe_environment_fault(PermissionError(13, "Permission denied"))
    assert fault == f"the certificates can't be read ([Errno 13] Permission denied). {remedy}"

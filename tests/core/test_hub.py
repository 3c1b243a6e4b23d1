"""What the hub is never asked for, and the environment's faults that keep it from answering."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants, get_session
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from contamination.core.errors import ConfigError, ServerError
from contamination.core.hub import (
    cache_only_hint,
    cached_snapshot,
    commit_digest,
    commit_on_hub,
    download_snapshot,
    go_offline_if_hub_unreachable,
    hub_offline,
    upload_data_set,
)
from contamination.core.models import load_tokenizer
from contamination.core.network_environment import (
    CERTIFICATES,
    describe_environment_fault,
    names_missing_certificates,
)
from contamination.core.secrets import NOT_REPEATED, hide_key


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
        assert cache_only_hint("owner/a name") == (
            " A stored config names it, so only the hub's cache was read. Download it first if it "
            "is to be used: hf download 'owner/a name'"
        )
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


def test_both_settings_of_certificates_are_said(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/a")
    monkeypatch.setenv("SSL_CERT_DIR", "/b")
    assert describe_environment_fault(FileNotFoundError("gone")) == (
        "the certificates can't be read (FileNotFoundError: gone). Correct or unset "
        "SSL_CERT_FILE='/a' and SSL_CERT_DIR='/b'."
    )


@pytest.mark.parametrize(
    ("file", "folder", "is_missing"),
    [(None, None, False), ("", "", False), ("/", None, False), ("/nowhere", None, True),
     (None, "/nowhere", True), ("/", "/nowhere", True)],
)  # fmt: skip
def test_certificates_are_missing_where_a_setting_names_none(monkeypatch, file, folder, is_missing):
    for name, value in zip(CERTIFICATES, (file, folder), strict=True):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert names_missing_certificates() == is_missing


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ImportError("socksio"), "the environment names a SOCKS proxy, which needs another "
         "package. Run pip install 'httpx[socks]', or unset ALL_PROXY or HTTPS_PROXY."),
        (ValueError("secret"), "the environment names a proxy that can't be used. Correct or "
         f"unset ALL_PROXY or HTTPS_PROXY. {NOT_REPEATED}"),
    ],
)  # fmt: skip
def test_a_proxy_is_named_without_its_address(monkeypatch, error, fault):
    proxies = {"https": "http://u:secret@a", "all": "socks5://b"}
    monkeypatch.setattr("contamination.core.network_environment.getproxies", lambda: proxies)
    assert describe_environment_fault(error) == fault


@pytest.fixture
def online(monkeypatch):
    """The hub's host name has an address, and no proxy is set; the look-ups are kept."""
    looked_up = []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "https://huggingface.co")
    monkeypatch.setattr("socket.getaddrinfo", lambda *address: looked_up.append(address))
    monkeypatch.setattr("contamination.core.hub.getproxies", dict)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    for name in CERTIFICATES:
        monkeypatch.delenv(name, raising=False)
    go_offline_if_hub_unreachable.cache_clear()
    yield looked_up
    go_offline_if_hub_unreachable.cache_clear()


@pytest.fixture
def downloads(online, monkeypatch):
    """What the client of the hub is asked for; an error that is set is raised instead."""
    client = SimpleNamespace(calls=[], error=None)

    def snapshot_download(name, **options):
        client.calls.append((name, options))
        if client.error:
            raise client.error
        return f"/cache/{options.get('revision') or '1234'}"

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    return client


def test_the_files_of_a_repository_are_asked_for_by_kind_and_revision(downloads, online):
    assert download_snapshot("model.path", "a/b", ("*.json", "*.bin")) == Path("/cache/1234")
    download_snapshot("examples.path", "a/b", ["*"], kind="dataset", revision="v1")
    assert commit_on_hub("model.path", "a/b") == "1234"
    assert commit_on_hub("examples.path", "a/c", kind="dataset", revision="v2") == "v2"
    assert cached_snapshot("a/b") == Path("/cache/1234")
    cached_snapshot("a/b", kind="dataset")
    words = ("repo_type", "revision", "allow_patterns")
    assert downloads.calls == [
        ("a/b", dict(zip(words, ("model", None, ["*.json", "*.bin"]), strict=True))),
        ("a/b", dict(zip(words, ("dataset", "v1", ["*"]), strict=True))),
        ("a/b", dict(zip(words, ("model", None, ["README.md"]), strict=True))),
        ("a/c", dict(zip(words, ("dataset", "v2", ["README.md"]), strict=True))),
        ("a/b", {"repo_type": "model", "local_files_only": True}),
        ("a/b", {"repo_type": "dataset", "local_files_only": True}),
    ]
    assert online == [("huggingface.co", 443)]  # once per process


NO_FOLDER = (
    "model.path is 'a/b': no such folder here, and the hub can't provide it ({}). Give a local "
    "folder, or a hub id on a machine that reaches the hub."
)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (LocalEntryNotFoundError("\n not found\nCheck the connection."), "not found"),
        (ValueError("no repository"), "no repository"),
        (FileNotFoundError("gone"), "gone"),
        (PermissionError(13, "Permission denied"), "[Errno 13] Permission denied"),
    ],
)
def test_the_first_line_of_the_clients_error_is_said(downloads, error, reason):
    downloads.error = error
    with pytest.raises(ConfigError) as caught:
        download_snapshot("model.path", "a/b", ["*"])
    assert str(caught.value) == NO_FOLDER.format(reason)
    assert caught.value.__cause__ is error
    assert cached_snapshot("a/b") is None


@pytest.mark.parametrize(
    ("error", "is_blamed"),
    [(FileNotFoundError("gone"), True), (PermissionError("refused"), False)],
)
def test_missing_certificates_are_blamed_only_for_a_missing_file(
    downloads, monkeypatch, error, is_blamed
):
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    downloads.error = error
    with pytest.raises(ConfigError) as caught:
        download_snapshot("model.path", "a/b", ["*"])
    fault = f"model.path is 'a/b': {describe_environment_fault(error)}"
    assert str(caught.value) == (fault if is_blamed else NO_FOLDER.format("refused"))


def test_a_proxy_that_needs_a_package_is_said(downloads):
    downloads.error = ImportError("socksio")
    with pytest.raises(ConfigError) as caught:
        download_snapshot("model.path", "a/b", ["*"])
    fault = describe_environment_fault(downloads.error)
    assert str(caught.value) == f"model.path is 'a/b': {fault}"


def test_a_commit_names_a_model_in_place_of_its_files():
    assert commit_digest("a/b", "1234") == hashlib.sha256(b"a/b@1234").hexdigest()


@pytest.mark.parametrize(
    ("proxies", "endpoint", "is_offline"),
    [
        ({}, "https://hub.example:8080/path", True),
        ({"http": "p"}, "https://hub.example", True),
        ({"https": "p"}, "https://hub.example", False),
        ({"all": "p"}, "https://hub.example", False),
        ({}, "", False),
    ],
)
def test_a_hub_whose_name_has_no_address_is_not_asked(
    online, monkeypatch, proxies, endpoint, is_offline
):
    def fail(*address):
        online.append(address)
        raise OSError("Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", fail)
    monkeypatch.setattr("contamination.core.hub.getproxies", lambda: proxies)
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    go_offline_if_hub_unreachable()
    assert is_offline == constants.HF_HUB_OFFLINE
    assert os.environ.get("HF_HUB_OFFLINE") == ("1" if is_offline else None)
    assert online == [("hub.example", 443)] * is_offline


class Api:
    """In the place of the hub's: it keeps what it is asked for."""

    error, is_private, calls = None, True, []

    def __init__(self, token):
        self.calls.append(token)

    def create_repo(self, *words, **options):
        self.calls.append((words, options))
        if self.error:
            raise self.error

    def repo_info(self, *words, **options):
        self.calls.append((words, options))
        return SimpleNamespace(private=self.is_private)

    def create_commit(self, name, additions, **options):
        contents = {added.path_in_repo: added.path_or_fileobj for added in additions}
        self.calls.append((name, contents, options))
        return SimpleNamespace(commit_url="https://hub.example/commit/1")


TOKEN = "hf_abcdefghijklmnop"
FILES = {"README.md": b"card", "data.csv": b"1,2"}


@pytest.fixture
def api(online, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: TOKEN)
    for name, value in (("calls", []), ("error", None), ("is_private", True)):
        monkeypatch.setattr(Api, name, value)
    return Api


def upload(private=False):
    return upload_data_set("repository", "a/b", FILES, private=private, message="New figures")


@pytest.mark.parametrize("private", [False, True])
def test_an_upload_is_one_commit_to_a_data_set_that_is_created(api, private):
    assert upload(private) == "https://hub.example/commit/1"
    create = {"repo_type": "dataset", "private": private or None, "exist_ok": True}
    commit = {"commit_message": "New figures", "repo_type": "dataset"}
    look = [(("a/b",), {"repo_type": "dataset"})] * private
    assert api.calls == [TOKEN, (("a/b",), create), *look, ("a/b", FILES, commit)]


def test_nothing_private_is_uploaded_to_a_public_data_set(api, monkeypatch):
    monkeypatch.setattr(api, "is_private", False)
    message = (
        "repository is 'a/b': this data set exists and is public, and private=true was given, so "
        "nothing was uploaded. Make it private on the hub, or give another name."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        upload(private=True)
    assert len(api.calls) == 3
    assert upload() == "https://hub.example/commit/1"


DRY_RUN = "dry_run=true shows what would be uploaded without the hub."


def test_without_a_token_nothing_is_uploaded(api, monkeypatch):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    message = (
        "repository is 'a/b': there is no token for the hub. Create one that may write at "
        "https://huggingface.co/settings/tokens, and set HF_TOKEN or run hf auth login. "
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message + DRY_RUN)}$"):
        upload()
    assert not api.calls


def test_offline_nothing_is_uploaded(api, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    message = (
        "repository is 'a/b': the hub can't be reached: https://huggingface.co has no address "
        "here, or HF_HUB_OFFLINE is set. Copy the folder to a machine that reaches the hub, and "
        "upload it there. "
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message + DRY_RUN)}$"):
        upload()
    assert not api.calls


def refusal(status, message, server_message=None):
    response = SimpleNamespace(status_code=status, headers={}, request=None)
    return HfHubHTTPError(message, response=response, server_message=server_message)


GIVE_TOKEN = "Give a token (HF_TOKEN, or hf auth login) that may write to this owner's data sets."
CORRECT = "Correct the reported problem."


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        *[
            (refusal(status, "x", " No \n rights. "), ConfigError,
             f"the hub refused ({status}: No rights). {remedy}")
            for status, remedy in [
                (400, CORRECT), (401, GIVE_TOKEN), (402, CORRECT), (403, GIVE_TOKEN),
                (404, GIVE_TOKEN), (430, CORRECT), (499, CORRECT),
            ]
        ],
        *[
            (refusal(status, "busy"), ServerError,
             f"the hub failed ({status}: busy). Try again later.")
            for status in (429, 500, 503)
        ],
        (refusal(400, f"bad {TOKEN}"), ConfigError,
         f"the hub refused (400: bad {hide_key(TOKEN, TOKEN)}). {CORRECT}"),
        (OSError(f"no {TOKEN} here."), ServerError,
         f"the connection to the hub failed (no {hide_key(TOKEN, TOKEN)} here). Try again; "
         "nothing is uploaded twice."),
        (ValueError(f"card with {TOKEN}"), ConfigError,
         f"the hub refused: card with {hide_key(TOKEN, TOKEN)}"),
    ],
)  # fmt: skip
def test_errors_of_an_upload_are_told_without_the_token(api, monkeypatch, error, kind, message):
    monkeypatch.setattr(api, "error", error)
    with pytest.raises(kind) as caught:
        upload()
    assert str(caught.value) == f"repository is 'a/b': {message}"
    assert TOKEN not in str(caught.value)
    assert caught.value.__cause__ is error


def test_the_clients_own_connection_errors_are_told(api, monkeypatch):
    client = sys.modules[type(get_session()).__module__.partition(".")[0]]
    monkeypatch.setattr(api, "error", client.ConnectError("no route to host"))
    with pytest.raises(ServerError, match=r"to the hub failed \(no route to host\)\. Try again;"):
        upload()

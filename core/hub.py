"""Models and data sets on the Hugging Face hub: downloads, cached copies, commits and uploads."""

from __future__ import annotations

import hashlib
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from contamination.core.errors import ConfigError, ServerError, describe_error
from contamination.core.network_environment import (
    describe_environment_fault,
    names_missing_certificates,
)
from contamination.core.secrets import hide_key


@dataclass
class _State:
    may_contact_hub: bool = True  # see `hub_offline`


_state = _State()


def download_snapshot(
    field: str, name: str, files: Sequence[str], *, kind: str = "model", revision: str | None = None
) -> Path:
    """Returns a folder with files of a repository on the hub; the folder's name is the commit.

    If the hub can't be reached, the folder of an earlier download is returned.

    Args:
        field: the config field with the value `name`, for error messages.
        name: the repository, owner/name.
        files: patterns of the files.
        kind: model or dataset.
        revision: a branch, tag or commit; None: the newest commit.

    Raises:
        ConfigError: the hub can't provide it.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    go_offline_if_hub_unreachable()
    patterns = list(files)
    try:
        return Path(
            snapshot_download(name, repo_type=kind, revision=revision, allow_patterns=patterns)
        )
    except ImportError as error:  # a proxy needs another package
        raise ConfigError(f"{field} is {name!r}: {describe_environment_fault(error)}") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, ValueError, OSError) as error:
        if isinstance(error, FileNotFoundError) and names_missing_certificates():
            raise ConfigError(
                f"{field} is {name!r}: {describe_environment_fault(error)}"
            ) from error
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"{field} is {name!r}: no such folder here, and the hub can't provide it ({reason}). "
            "Give a local folder, or a hub id on a machine that reaches the hub."
            f"{cache_only_hint(name, kind)}"
        ) from error


def cached_snapshot(name: str, *, kind: str = "model") -> Path | None:
    """Returns the folder of a repository in the hub's cache, or None; the hub is not contacted."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, repo_type=kind, local_files_only=True))
    except (OSError, ValueError):  # a LocalEntryNotFoundError is an OSError
        return None


def commit_on_hub(
    field: str, name: str, *, kind: str = "model", revision: str | None = None
) -> str:
    """Returns the commit of a repository on the hub; only its README is downloaded."""
    return download_snapshot(field, name, ["README.md"], kind=kind, revision=revision).name


def commit_digest(name: str, commit: str) -> str:
    """Returns the digest of a model on the hub, computed from its commit instead of its files."""
    return hashlib.sha256(f"{name}@{commit}".encode()).hexdigest()


def upload_data_set(
    field: str, name: str, files: Mapping[str, bytes | Path], *, private: bool, message: str
) -> str:
    """Uploads files to a data set on the hub in one commit, and returns the commit's address.

    The data set is created if it does not exist. Its other files are kept. The token is read from
    HF_TOKEN or from `hf auth login`.

    Args:
        field: the config field with the value `name`, for error messages.
        name: the data set, owner/name.
        files: name in the data set → its content, or the path of a file with the content.
        private: whether the data set must be private.
        message: the commit message.

    Raises:
        ConfigError: there is no token, the hub can't be reached or refuses the upload, or
            `private` is given and the data set exists and is public.
        ServerError: the hub or the connection to it fails.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, constants, get_token

    dry_run = "dry_run=true shows what would be uploaded without the hub."
    go_offline_if_hub_unreachable()
    if constants.HF_HUB_OFFLINE:
        raise ConfigError(
            f"{field} is {name!r}: the hub can't be reached: {constants.ENDPOINT} has no "
            "address here, or HF_HUB_OFFLINE is set. Copy the folder to a machine that reaches "
            f"the hub, and upload it there. {dry_run}"
        )
    token = get_token()
    if token is None:
        raise ConfigError(
            f"{field} is {name!r}: there is no token for the hub. Create one that may write at "
            f"{constants.ENDPOINT}/settings/tokens, and set HF_TOKEN or run hf auth login. "
            f"{dry_run}"
        )
    api = HfApi(token=token)
    with _upload_errors(field, name, token):
        api.create_repo(name, repo_type="dataset", private=private or None, exist_ok=True)
        if private and not api.repo_info(name, repo_type="dataset").private:
            raise ConfigError(
                f"{field} is {name!r}: this data set exists and is public, and private=true was "
                "given, so nothing was uploaded. Make it private on the hub, or give another name."
            )
        additions = [CommitOperationAdd(path, content) for path, content in files.items()]
        commit = api.create_commit(name, additions, commit_message=message, repo_type="dataset")
    return str(commit.commit_url)


@contextmanager
def _upload_errors(field: str, name: str, token: str) -> Iterator[None]:
    """Turns errors of an upload into user errors, without the token in their messages."""
    from huggingface_hub import get_session
    from huggingface_hub.errors import HfHubHTTPError

    # the client is httpx or httpx2, depending on the release of huggingface_hub
    connection_error = sys.modules[type(get_session()).__module__.partition(".")[0]].HTTPError
    prefix = f"{field} is {name!r}:"
    try:
        yield
    except HfHubHTTPError as error:
        answer = " ".join((error.server_message or str(error)).split()).rstrip(".")
        answer = hide_key(answer, token)
        status = error.response.status_code
        if status >= 500 or status == 429:
            raise ServerError(
                f"{prefix} the hub failed ({status}: {answer}). Try again later."
            ) from error
        remedy = (
            "Give a token (HF_TOKEN, or hf auth login) that may write to this owner's data sets."
            if status in (401, 403, 404)
            else "Correct the reported problem."
        )
        raise ConfigError(f"{prefix} the hub refused ({status}: {answer}). {remedy}") from error
    except (connection_error, OSError) as error:
        reason = hide_key(describe_error(error), token).rstrip(".")
        raise ServerError(
            f"{prefix} the connection to the hub failed ({reason}). Try again; nothing is uploaded "
            "twice."
        ) from error
    except ValueError as error:  # the hub found a mistake in the card
        raise ConfigError(
            f"{prefix} the hub refused: {hide_key(describe_error(error), token)}"
        ) from error


@contextmanager
def hub_offline() -> Iterator[None]:
    """Lets the body read only the hub's cache, without contacting the hub.

    It is used for names in stored configs, which may come from elsewhere: a request would send the
    user's token.
    """
    import datasets  # noqa: F401 - it copies the offline setting of the hub's client on import
    from huggingface_hub import constants

    earlier_settings = constants.HF_HUB_OFFLINE, _state.may_contact_hub
    constants.HF_HUB_OFFLINE, _state.may_contact_hub = True, False
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, _state.may_contact_hub = earlier_settings
        go_offline_if_hub_unreachable.cache_clear()  # it skipped the look-up


def cache_only_hint(name: str, kind: str = "model") -> str:
    """Returns a remedy for errors within `hub_offline`, where only the cache is read; else ""."""
    if _state.may_contact_hub:
        return ""
    option = f"--repo-type {kind} " if kind != "model" else ""
    return (
        " A stored config names it, so only the hub's cache was read. Download it first if it is "
        f"to be used: hf download {option}{shlex.quote(name)}"
    )


@cache
def go_offline_if_hub_unreachable() -> None:
    """Turns on the offline mode of the hub's client if the hub's host name can't be resolved.

    Call it before anything is read from the hub. Otherwise the client retries each file for half a
    minute before it uses its cache.
    """
    from huggingface_hub import constants

    host = urlsplit(constants.ENDPOINT).hostname
    if constants.HF_HUB_OFFLINE or host is None or getproxies().keys() & {"https", "all"}:
        return  # a proxy resolves the host name
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        os.environ["HF_HUB_OFFLINE"] = "1"  # for child processes
        constants.HF_HUB_OFFLINE = True

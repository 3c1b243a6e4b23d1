"""What a name on the Hugging Face hub stands for: the commit, which changes with the content."""

from __future__ import annotations

import hashlib
import os
import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from contamination.core.environment import environment_fault, lacks_certificates
from contamination.core.errors import ConfigError


@dataclass
class _State:
    asks: bool = True  # whether the hub may be asked; see `only_cached`


_state = _State()


def snapshot(
    field: str, name: str, files: Sequence[str], *, kind: str = "model", revision: str | None = None
) -> Path:
    """A folder with the files of that name on the hub; the folder's own name is their commit.

    Where the hub can't be reached it is the folder of an earlier time. The config field `field`
    holds `name` (owner/name). The `files` are patterns, the kind is model or dataset, and the
    revision a branch, tag or commit (None: the newest).

    Raises:
        ConfigError: the hub can't give it.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    prepare_hub()
    only = list(files)
    try:
        return Path(snapshot_download(name, repo_type=kind, revision=revision, allow_patterns=only))
    except ImportError as error:  # of a package that a proxy needs
        raise ConfigError(f"{field} is {name!r}: {environment_fault(error)}") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, ValueError, OSError) as error:
        if isinstance(error, FileNotFoundError) and lacks_certificates():
            raise ConfigError(f"{field} is {name!r}: {environment_fault(error)}") from error
        first = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"{field} is {name!r}: no such folder here, and the hub can't give it ({first}). Give "
            f"a local folder, or a hub id on a machine that reaches the hub.{not_asked(name, kind)}"
        ) from error


def kept(name: str, *, kind: str = "model") -> Path | None:
    """The folder with what is in the hub's cache of that name; None: nothing. Nothing is asked."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, repo_type=kind, local_files_only=True))
    except (OSError, ValueError):  # a LocalEntryNotFoundError is one
        return None


def commit(field: str, name: str, *, kind: str = "model", revision: str | None = None) -> str:
    """The commit of that name on the hub, of which little more than the name is fetched."""
    return snapshot(field, name, ["README.md"], kind=kind, revision=revision).name


def commit_digest(name: str, commit: str) -> str:
    """What names a model's files on the hub: hashing many gigabytes tells no more."""
    return hashlib.sha256(f"{name}@{commit}".encode()).hexdigest()


@contextmanager
def only_cached() -> Iterator[None]:
    """Within it the hub is asked for nothing, and what is in its cache is read.

    For names in stored configs, which may come from elsewhere: a request would carry the user's
    token.
    """
    import datasets  # noqa: F401 - it keeps what the hub's client says when it is imported
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, _state.asks
    constants.HF_HUB_OFFLINE, _state.asks = True, False
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, _state.asks = before
        prepare_hub.cache_clear()  # it has not looked


def not_asked(name: str, kind: str = "model") -> str:
    """A sentence for errors within `only_cached`: that the hub was not asked, and the remedy."""
    if _state.asks:
        return ""
    option = f"--repo-type {kind} " if kind != "model" else ""
    return (
        " A stored config names it, so only the hub's cache was read. Download it first if it is "
        f"to be used: hf download {option}{shlex.quote(name)}"
    )


@cache
def prepare_hub() -> None:
    """To be called before something is read from the hub; nothing else looks its name up.

    Where its name has no address the hub's client serves what it has kept, and says at once what
    it has not: as with HF_HUB_OFFLINE=1. Left to itself it tries each file for half a minute.
    """
    from huggingface_hub import constants

    host = urlsplit(constants.ENDPOINT).hostname
    if constants.HF_HUB_OFFLINE or host is None or getproxies().keys() & {"https", "all"}:
        return  # a proxy looks it up
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        os.environ["HF_HUB_OFFLINE"] = "1"  # for processes that are started from here
        constants.HF_HUB_OFFLINE = True

"""Hides absolute paths of this machine in what is published, and finds secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from contamination.core.artifacts import read_config
from contamination.core.errors import DataError

SLASH = r"(?:\\?/|\\u002[fF]|%2[fF]|&#(?:x2[fF]|47);)"
HOMES = ("home", "Users")
TOP_FOLDERS = (*HOMES, "root", "mnt", "media", "tmp", "scratch", "data", "work", "workspace")
"""Where users of Linux and macOS keep files; those of this machine's root are added."""
NOT_OF_A_USER = ("dev", "proc", "sys")
SECRETS = {
    "a token of the Hugging Face hub": r"\bhf_[A-Za-z0-9]{20,}",
    "an API key": r"(?<![\w-])sk-[A-Za-z0-9_-]{20,}",
    "a token of GitHub": r"\bgh[pousr]_[A-Za-z0-9]{30,}",
    "a key of AWS": r"\bAKIA[0-9A-Z]{16}\b",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
}
SECRET_VARIABLE = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)$", re.I)
SHORTEST_SECRET = 8


@dataclass(frozen=True)
class Redaction:
    """What is hidden in, or must not be in, what is published.

    Attributes:
        known_paths: absolute paths in the folder's configuration, the longest first.
        secrets: value → what it is, for values that no file may contain.
    """

    known_paths: Sequence[str]
    secrets: Mapping[str, str]

    @classmethod
    def of(cls, folder: Path) -> Redaction:
        """Returns that of a finished folder: its configuration names paths and variables."""
        from huggingface_hub import get_token

        values = [*_iter_texts(read_config(folder))]
        paths = {value for value in values if os.path.isabs(value) and len(Path(value).parts) > 2}
        secrets = {
            value: f"the value of the environment variable {name}"
            for name, value in os.environ.items()
            if (SECRET_VARIABLE.search(name) or name in values) and len(value) >= SHORTEST_SECRET
        }
        if token := get_token():
            secrets[token] = "the token of the Hugging Face hub"
        return cls(sorted(paths, key=len, reverse=True), secrets)

    @cached_property
    def _absolute_path(self) -> re.Pattern[str]:
        found = {entry.name for entry in os.scandir("/") if entry.is_dir()}
        tops = "|".join(map(re.escape, sorted({*found, *TOP_FOLDERS} - {*NOT_OF_A_USER})))
        letter = r"(?:[^\s\"'<>|,;:()\[\]{}`\\&]|\\u[0-9a-fA-F]{4})"
        part = rf"(?:(?!{SLASH}){letter})+"
        begins = r"(?:(?<=file://)|(?<=\\[nrt])|(?<![\w/.…\\]))"
        return re.compile(rf"{begins}{SLASH}(?:{tops})(?:{SLASH}{part})+{SLASH}?")

    def hide_paths(self, text: str) -> str:
        """Returns the text with each absolute path of this machine shortened to `…/NAME`."""
        for path in self.known_paths:
            text = text.replace(path, _shorten(path))
        return self._absolute_path.sub(lambda match: _shorten(match[0]), text)

    def hide_paths_in(self, value: Any) -> Any:
        """Returns plain data with `hide_paths` applied to all texts and names in it."""
        if isinstance(value, Mapping):
            return {self.hide_paths_in(k): self.hide_paths_in(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.hide_paths_in(inner) for inner in value]
        return self.hide_paths(value) if isinstance(value, str) else value

    def check_no_secret(self, name: str, text: str) -> None:
        """Raises a DataError, which does not quote it, if the text contains a secret."""
        kinds = [kind for value, kind in self.secrets.items() if value in text]
        kinds += [kind for kind, pattern in SECRETS.items() if re.search(pattern, text)]
        if kinds:
            raise DataError(
                f"{name} contains {kinds[0]}, so nothing was uploaded; the value is not repeated "
                "here. Run its stage again without it, and replace a key that others have seen."
            )


def _shorten(path: str) -> str:
    """Returns `…/NAME`; of a home, whose name is that of the user, nothing."""
    parts = [part for part in re.split(SLASH, path) if part]
    return "…" if parts[0] in HOMES and len(parts) == 2 else f"…/{parts[-1]}"


def _iter_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _iter_texts(inner)

"""Run folders: a name from the config and the inputs, a manifest written last.

A stage writes one folder ``<runs>/<kind>/<slug>-<hash>``. The hash covers the resolved config
(without the fields marked ``runtime``) and the digests of the inputs, never the clock or the
machine. A folder without ``manifest.json`` is unfinished.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from contamination.core.config import identity
from contamination.core.config_diff import say_nearest
from contamination.core.disk import disk_errors
from contamination.core.errors import ArtifactError, ConfigError, UserError
from contamination.core.files import sealed, sync, write_text
from contamination.core.hashing import digests, files_digest
from contamination.core.integrity import (
    MANIFEST,
    SCHEMA,
    ForeignManifestError,
    ensure_whole,
    foreign,
    parsing,
    read_manifest,
    refusal,
)
from contamination.core.lock import CLAIM, building
from contamination.core.stored_files import (
    MOST_NODES,
    MOST_YAML_BYTES,
    check_writable,
    check_yaml,
    read_yaml,
)

if TYPE_CHECKING:
    import pandas as pd
CONFIG = "config.yaml"
NAMED = re.compile(r".+-[0-9a-f]{12}")  # as `locate` names a folder
MODEL, WITH_MODEL = "hf", ("model", "masked_lm")  # a folder's model, and the kinds that have one
UNKNOWN = "unknown"
REVISION = "REVISION"  # the file that names the revision in a copy of the code


@dataclass(frozen=True)
class Built:
    """What a stage made."""

    content: Sequence[str]  # its files, which the digest names
    counts: Mapping[str, Any] = field(default_factory=dict)  # worth recording
    records: Sequence[str] = ()  # read later as well; the digest leaves them out: they hold times


@dataclass(frozen=True)
class Artifact:
    """A finished run folder."""

    path: Path
    kind: str  # what it holds
    digest: str  # a hash of the content files alone
    inputs: Mapping[str, str]  # the digests of what it was made from, by name
    counts: Mapping[str, Any]  # what the stage counted
    files: Mapping[str, str]  # the content files' SHA-256
    records: Mapping[str, str] = field(default_factory=dict)  # that of the other files to be read

    def config(self) -> dict[str, Any]:
        """The resolved config that the folder was made from."""
        return read_config(self.path)

    def table(self, name: str) -> pd.DataFrame:
        """The table in one of the folder's Parquet files.

        Raises:
            ArtifactError: the file is missing or can't be read.
        """
        import pandas as pd

        with parsing(self.path / name):
            return pd.read_parquet(self.path / name, page_checksum_verification=True)

    def lines(self, name: str) -> pd.DataFrame:
        """The table in one of the folder's JSON Lines files; raises as `table` does."""
        import pandas as pd

        with parsing(self.path / name):
            return pd.read_json(self.path / name, lines=True)


def read_config(folder: Path) -> dict[str, Any]:
    """The config that a run folder was made from: plain data, whatever classes it names.

    Raises:
        ArtifactError: it is missing, not YAML, or exceeds the limits of `core.stored_files`.
    """
    try:
        return read_yaml(folder / CONFIG)
    except (OSError, ValueError) as error:
        raise refusal(folder, f"{CONFIG} can't be used: {error}") from error


def locate(runs: Path, kind: str, slug: str, config: Any, inputs: Mapping[str, str]) -> Path:
    """The folder for `config` and `inputs` (name → digest): a pure function of both."""
    named = {"schema": SCHEMA, "kind": kind, "config": identity(config), "inputs": dict(inputs)}
    digest = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
    return runs / kind / f"{file_name(slug)}-{digest[:12]}"


def file_name(words: str) -> str:
    """The words as one part of a path."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-")


def is_complete(folder: Path) -> bool:
    """Whether the folder's manifest was written."""
    return (folder / MANIFEST).is_file()


def build(
    folder: Path,
    config: Any,
    inputs: Mapping[str, str],
    make: Callable[[Path], Built],
    named: Any = None,
) -> Artifact:
    """The finished folder: reused where complete, else made (or resumed) by `make`.

    Of several processes that need the same folder one makes it and the others wait. `config` is
    for its config.yaml, `named` what `locate` was given instead (None: the same), and `inputs` are
    the digests of what it is made from, by name.
    """
    if not is_complete(folder):
        with building(folder) as check:
            if not is_complete(folder):
                own = identity(config if named is None else named)
                say_nearest(folder, SCHEMA, own, inputs)
                with begun(folder, config):
                    built = make(folder)
                    check()
                    commit(folder, inputs, built, own)
    return open_artifact(folder, folder.parent.name)


@contextmanager
def begun(folder: Path, config: Any) -> Iterator[None]:
    """Start or resume the folder; a disk that refuses is an error, and bad input is undone."""
    new = not folder.exists()
    _begin(folder, config)
    try:
        with disk_errors(folder):
            yield
    except UserError as error:
        # a configuration that can't work is never resumed: its folder goes
        empty = [path.name for path in folder.iterdir()] == [CONFIG]
        if new and (empty or isinstance(error, ConfigError)):
            shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def beside(folder: Path, config: Any, claim: str) -> Iterator[bool]:
    """Add files to a folder that others may add to, or build, at the same time.

    Only one process at a time has the `claim`; the others wait for it.

    Yields:
        Whether the folder is unfinished: to one that is finished nothing may be added.
    """
    with building(folder.with_name(f"{folder.name}{CLAIM}{claim}")):
        unfinished = not is_complete(folder)
        with disk_errors(folder):
            if unfinished and not (folder / CONFIG).exists():
                _begin(folder, config)
            yield unfinished


def _begin(folder: Path, config: Any) -> None:
    text = config_text(config)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / CONFIG, text)


def config_text(config: Any) -> str:
    """The config as YAML that `read_config` reads.

    Raises:
        ConfigError: it exceeds a limit of `core.stored_files`.
    """
    data = as_data(config)
    try:
        check_writable(data)
        text = yaml.safe_dump(data, sort_keys=False)
        check_yaml(text, MOST_NODES)
    except ValueError as error:
        raise ConfigError(f"{error}.") from error
    require_size(text, MOST_YAML_BYTES)
    return text


def require_size(text: str, most: int) -> None:
    """Raise a ConfigError unless the text of a config has at most so many bytes."""
    if (size := len(text.encode())) > most:
        raise ConfigError(
            f"The configuration has {size:,} bytes, and {most:,} can be read again: give fewer or "
            "shorter values, or files that hold them."
        )


def commit(
    folder: Path, inputs: Mapping[str, str], built: Built, named: Mapping[str, Any] | None = None
) -> None:
    """Write the manifest, last and atomically: from here on the folder counts as complete.

    Of `inputs` (name → digest) it was made; `named` are the settings that name the folder.
    """
    names = sorted({CONFIG, *built.content, *built.records})
    for name in [*foreign(folder, names)]:  # of an attempt that was killed
        (folder / name).unlink()
    for name in names:
        sync(folder / name)
    found = digests({name: folder / name for name in names})
    files = {name: found.pop(name) for name in sorted(built.content)}
    manifest = {
        "kind": folder.parent.name,
        "schema": SCHEMA,
        "version": metadata.version("contamination-testbed"),
        "revision": code_revision(),
        "digest": files_digest(files),
        "identity": named,
        "inputs": dict(inputs),
        "counts": dict(built.counts),
        "files": files,
        "records": found,
        "bytes": {name: (folder / name).stat().st_size for name in names},
    }
    write_text(folder / MANIFEST, sealed(manifest))


def open_artifact(folder: Path | str, kind: str) -> Artifact:
    """Open a finished folder of the given kind, once it is known to be whole.

    Raises:
        ArtifactError: it is missing, unfinished, damaged, or another kind's.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ArtifactError(
            f"{kind} folder {folder} does not exist: give a folder under runs/{kind}/."
        )
    if not is_complete(folder):
        raise ArtifactError(
            f"{kind} folder {folder} has no {MANIFEST}, so it is unfinished: run its stage again."
        )
    manifest = read_manifest(folder)
    if manifest["kind"] != kind or manifest["schema"] != SCHEMA:
        raise ArtifactError(
            f"{folder} holds a {manifest['kind']} of schema {manifest['schema']}, "
            f"not a {kind} of schema {SCHEMA}: give the folder that the {kind} stage wrote."
        )
    ensure_whole(folder, manifest)
    parts = ("digest", "inputs", "counts", "files", "records")
    return Artifact(folder, kind, *(manifest[part] for part in parts))


def check_owner(path: Path | str) -> None:
    """Where a file or folder is in a run folder of this version, check that the latter is whole.

    A path that leads through a link is checked where the link is, and where it leads.

    Raises:
        ArtifactError: it is damaged, it was finished once and has lost its manifest, or its stage
            did not write that folder.
    """
    for place in dict.fromkeys((Path(os.path.abspath(path)), Path(path).resolve())):
        for owner in place.parents[:2]:
            if is_complete(owner):
                check_folder(owner)
                _check_listed(owner, place)
            elif place.name == MODEL and place.parent == owner and _was_finished(owner):
                raise refusal(owner, f"{MANIFEST} is missing, so nothing vouches for the rest")


def _check_listed(owner: Path, place: Path) -> None:
    """Check that a folder in a finished one is of its stage: its manifest lists files in it."""
    try:
        manifest = read_manifest(owner)
    except ArtifactError:  # another program's, as `check_folder` has seen
        return
    name = place.relative_to(owner).as_posix()
    is_listed = any(file.startswith(f"{name}/") for file in manifest.get("bytes", ()))
    if manifest["schema"] == SCHEMA and place.is_dir() and not is_listed:
        raise refusal(owner, f"{name} was not written by the stage (move it elsewhere)")


def check_folder(folder: Path) -> None:
    """Check a folder with a manifest, unless another program or an earlier version wrote it.

    Raises:
        ArtifactError: it is damaged.
    """
    try:
        manifest = read_manifest(folder)
    except ForeignManifestError:
        return
    except ArtifactError:
        if (folder / CONFIG).is_file() or NAMED.fullmatch(folder.name):
            raise
        return  # of texts from elsewhere, say
    if manifest["schema"] == SCHEMA:
        ensure_whole(folder, manifest)


def _was_finished(folder: Path) -> bool:
    """Whether a folder with a model and without a manifest is a training's: by config or by name.

    The model is written last, right before the manifest.
    """
    if not (folder / CONFIG).is_file():
        return folder.parent.name in WITH_MODEL and NAMED.fullmatch(folder.name) is not None
    try:
        return bool(read_config(folder).keys() & {"corpus_folder", "adopted_from"})
    except ArtifactError:
        return False


def version() -> str:
    """The release, and the revision of a checkout."""
    name, revision = "contamination-testbed", code_revision()
    release = f"{name} {metadata.version(name)}"
    return release if revision == UNKNOWN else f"{release} ({revision})"


@cache
def code_revision() -> str:
    """The git revision of the code (with + where it is changed), or 'unknown'."""
    home = Path(__file__).resolve().parents[1]
    if (home / REVISION).is_file():  # a snapshot
        return (home / REVISION).read_text().strip()
    its_own = ["git", "ls-files", "--error-unmatch", __file__]  # installed in another's checkout?
    call = ["git", "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        for words in (its_own, call):
            run = subprocess.run(words, cwd=home, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    return run.stdout.strip()


def as_data(value: Any) -> Any:
    """Dataclasses, mappings and sequences as what YAML and JSON have."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): as_data(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [as_data(v) for v in value]
    return value

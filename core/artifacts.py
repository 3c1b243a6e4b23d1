"""Run folders, named by the config and the inputs, with a manifest that is written last.

A stage writes one folder ``<runs>/<kind>/<slug>-<hash>``. The hash is computed from the resolved
config (without the fields made by `core.config.runtime_field`) and the digests of the inputs, never
from the time or the machine. A folder without ``manifest.json`` is unfinished.
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

from contamination.core import integrity, stored_files
from contamination.core.config import identity_data
from contamination.core.config_diff import log_nearest_folder
from contamination.core.errors import ArtifactError, ConfigError, UserError
from contamination.core.files import hashed_json, sync_to_disk, write_text_atomically
from contamination.core.hashing import combined_digest, digests_by_name
from contamination.core.lock import CLAIM_SEPARATOR, exclusive_build
from contamination.core.output_paths import disk_errors_as_data_errors

if TYPE_CHECKING:
    import pandas as pd
CONFIG = "config.yaml"
RUN_FOLDER_NAME = re.compile(r".+-[0-9a-f]{12}")  # as `run_folder` returns it
MODEL_FOLDER, KINDS_WITH_MODEL = (
    "hf",
    ("model", "masked_lm"),
)  # a folder's model, and the kinds that have one
UNKNOWN_REVISION = "unknown"
REVISION_FILE = "REVISION"  # the file with the revision in a copy of the code


@dataclass(frozen=True)
class WrittenFiles:
    """The files that a stage wrote, as paths relative to its run folder."""

    content: Sequence[str]  # files that the folder's digest covers
    counts: Mapping[str, Any] = field(default_factory=dict)  # numbers to record in the manifest
    records: Sequence[str] = ()  # other files that are read later; the digest does not cover them


@dataclass(frozen=True)
class Artifact:
    """A finished run folder."""

    path: Path
    kind: str  # such as corpus, model or scores
    digest: str  # a hash of the content files alone
    inputs: Mapping[str, str]  # the digests of the inputs, by name
    counts: Mapping[str, Any]  # numbers that the stage recorded
    files: Mapping[str, str]  # the SHA-256 of each content file
    records: Mapping[str, str] = field(default_factory=dict)  # the SHA-256 of each other file

    def config(self) -> dict[str, Any]:
        """Returns the resolved config of the run."""
        return read_config(self.path)

    def table(self, name: str) -> pd.DataFrame:
        """Returns the table in one of the folder's Parquet files.

        Raises:
            ArtifactError: the file is missing or can't be read.
        """
        import pandas as pd

        with integrity.errors_naming_file(self.path / name):
            return pd.read_parquet(self.path / name, page_checksum_verification=True)

    def lines(self, name: str) -> pd.DataFrame:
        """Returns the table in one of the folder's JSON Lines files; raises as `table` does."""
        import pandas as pd

        with integrity.errors_naming_file(self.path / name):
            return pd.read_json(self.path / name, lines=True)


def read_config(folder: Path) -> dict[str, Any]:
    """Returns the config of a run folder as plain data; no class that it names is imported.

    Raises:
        ArtifactError: the file is missing, is not YAML, or exceeds a limit of `core.stored_files`.
    """
    try:
        return stored_files.read_yaml(folder / CONFIG)
    except (OSError, ValueError) as error:
        raise integrity.damage_error(folder, f"{CONFIG} can't be used: {error}") from error


def run_folder(runs: Path, kind: str, slug: str, config: Any, inputs: Mapping[str, str]) -> Path:
    """Returns the path of the run folder for `config` and `inputs` (name → digest)."""
    identity = {
        "schema": integrity.SCHEMA,
        "kind": kind,
        "config": identity_data(config),
        "inputs": dict(inputs),
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return runs / kind / f"{path_part_of(slug)}-{digest[:12]}"


def path_part_of(text: str) -> str:
    """Returns the text as one component of a path: only letters, digits, dots and hyphens."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")


def is_complete(folder: Path) -> bool:
    """Returns whether the folder has a manifest."""
    return (folder / integrity.MANIFEST).is_file()


def build_or_open(
    folder: Path,
    config: Any,
    inputs: Mapping[str, str],
    write_files: Callable[[Path], WrittenFiles],
    named: Any = None,
    *,
    log_nearest: bool = True,
) -> Artifact:
    """Returns the finished run folder; if it is not complete, `write_files` builds or resumes it.

    If several processes need the same folder, one of them builds it and the others wait.

    Args:
        folder: as `run_folder` returns it.
        config: the content of config.yaml.
        inputs: the digests of the inputs, by name.
        write_files: writes the files into the folder.
        named: the config that was passed to `run_folder`; None: `config`.
        log_nearest: whether to log which finished folder differs least from a new one.
    """
    if not is_complete(folder):
        with exclusive_build(folder) as check_lease:
            if not is_complete(folder):
                identity = identity_data(config if named is None else named)
                if log_nearest:
                    log_nearest_folder(folder, integrity.SCHEMA, identity, inputs)
                with started_or_resumed_folder(folder, config):
                    written = write_files(folder)
                    check_lease()
                    write_manifest(folder, inputs, written, identity)
    return open_artifact(folder, folder.parent.name)


@contextmanager
def started_or_resumed_folder(folder: Path, config: Any) -> Iterator[None]:
    """Starts or resumes a folder; a new folder is removed again if its config is not valid.

    Raises:
        DataError: the disk can't be written to.
    """
    is_new = not folder.exists()
    _write_config(folder, config)
    try:
        with disk_errors_as_data_errors(folder):
            yield
    except UserError as error:
        # a run with such a config is never resumed, so its folder is removed
        is_empty = [path.name for path in folder.iterdir()] == [CONFIG]
        if is_new and (is_empty or isinstance(error, ConfigError)):
            shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def shared_folder(folder: Path, config: Any, claim: str) -> Iterator[bool]:
    """Adds files to a folder that other processes may add files to, or may build.

    Only one process at a time holds the lease that `claim` names; the others wait.

    Yields:
        Whether the folder is unfinished; nothing may be added to a finished folder.
    """
    with exclusive_build(folder.with_name(f"{folder.name}{CLAIM_SEPARATOR}{claim}")):
        is_unfinished = not is_complete(folder)
        with disk_errors_as_data_errors(folder):
            if is_unfinished and not (folder / CONFIG).exists():
                _write_config(folder, config)
            yield is_unfinished


def _write_config(folder: Path, config: Any) -> None:
    text = format_config(config)
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomically(folder / CONFIG, text)


def format_config(config: Any) -> str:
    """Returns the config as YAML that `read_config` can read.

    Raises:
        ConfigError: the config exceeds a limit of `core.stored_files`.
    """
    plain_config = to_plain_data(config)
    try:
        stored_files.check_yaml_limits(plain_config)
        text = yaml.safe_dump(plain_config, sort_keys=False)
        stored_files.check_yaml(text, stored_files.MAX_NODES)
    except ValueError as error:
        raise ConfigError(f"{error}.") from error
    check_config_bytes(text, stored_files.MAX_YAML_BYTES)
    return text


def check_config_bytes(text: str, max_bytes: int) -> None:
    """Raises a ConfigError if the text of a config has more than `max_bytes` bytes."""
    if (size := len(text.encode())) > max_bytes:
        raise ConfigError(
            f"The configuration has {size:,} bytes, but at most {max_bytes:,} can be read: give "
            "fewer or shorter values, or files that contain them."
        )


def write_manifest(
    folder: Path,
    inputs: Mapping[str, str],
    written: WrittenFiles,
    naming_settings: Mapping[str, Any] | None = None,
) -> None:
    """Writes the manifest atomically, after all other files: it marks the folder as complete.

    Args:
        folder: the run folder.
        inputs: the digests of its inputs, by name.
        written: its files.
        naming_settings: the settings from which the folder's name was computed.
    """
    names = sorted({CONFIG, *written.content, *written.records})
    for name in [*integrity.unlisted_files(folder, names)]:  # left by an attempt that was killed
        (folder / name).unlink()
    for name in names:
        sync_to_disk(folder / name)
    record_digests = digests_by_name({name: folder / name for name in names})
    content_digests = {name: record_digests.pop(name) for name in sorted(written.content)}
    manifest = {
        "kind": folder.parent.name,
        "schema": integrity.SCHEMA,
        "version": metadata.version("contamination-testbed"),
        "revision": code_revision(),
        "digest": combined_digest(content_digests),
        "identity": naming_settings,
        "inputs": dict(inputs),
        "counts": dict(written.counts),
        "files": content_digests,
        "records": record_digests,
        "bytes": {name: (folder / name).stat().st_size for name in names},
    }
    write_text_atomically(folder / integrity.MANIFEST, hashed_json(manifest))


def open_artifact(folder: Path | str, kind: str) -> Artifact:
    """Returns a finished folder of the given kind, after a check of its integrity.

    Raises:
        ArtifactError: it is missing, unfinished, damaged, or of another kind.
    """
    folder = Path(folder)
    if not folder.is_dir():  # the name may be a received file's: it stays one line
        name = str(folder) if str(folder).isprintable() else repr(str(folder))
        raise ArtifactError(
            f"{kind} folder {name} does not exist: give a folder under runs/{kind}/."
        )
    if not is_complete(folder):
        raise ArtifactError(
            f"{kind} folder {folder} has no {integrity.MANIFEST}, so it is unfinished: run its "
            "stage again."
        )
    manifest = integrity.read_manifest(folder)
    if manifest["kind"] != kind or manifest["schema"] != integrity.SCHEMA:
        raise ArtifactError(
            f"{folder} contains a {manifest['kind']} of schema {manifest['schema']}, "
            f"not a {kind} of schema {integrity.SCHEMA}: give the folder that the {kind} stage "
            "wrote."
        )
    integrity.check_integrity(folder, manifest)
    fields = ("digest", "inputs", "counts", "files", "records")
    return Artifact(folder, kind, *(manifest[field] for field in fields))


def check_owning_run_folder(path: Path | str) -> None:
    """Checks the integrity of the run folder that contains a file or folder, if there is one.

    For a symbolic link, both the link and its target are checked.

    Raises:
        ArtifactError: the run folder is damaged or has lost its manifest, or its stage did not
            write the path.
    """
    for location in dict.fromkeys((Path(os.path.abspath(path)), Path(path).resolve())):
        for owner in location.parents[:2]:
            if is_complete(owner):
                check_run_folder(owner)
                _check_manifest_lists_subfolder(owner, location)
            elif (
                location.name == MODEL_FOLDER
                and location.parent == owner
                and _was_written_by_training(owner)
            ):
                raise integrity.damage_error(
                    owner, f"{integrity.MANIFEST} is missing, so the other files can't be checked"
                )


def _check_manifest_lists_subfolder(owner: Path, subfolder: Path) -> None:
    try:
        manifest = integrity.read_manifest(owner)
    except ArtifactError:  # `check_run_folder` accepted a folder of another program
        return
    name = subfolder.relative_to(owner).as_posix()
    is_listed = any(file.startswith(f"{name}/") for file in manifest.get("bytes", ()))
    if manifest["schema"] == integrity.SCHEMA and subfolder.is_dir() and not is_listed:
        raise integrity.damage_error(
            owner, f"{name} was not written by the stage (move it elsewhere)"
        )


def check_run_folder(folder: Path) -> None:
    """Checks a folder with a manifest, unless another program or an earlier version wrote it.

    Raises:
        ArtifactError: it is damaged.
    """
    try:
        manifest = integrity.read_manifest(folder)
    except integrity.ForeignManifestError:
        return
    except ArtifactError:
        if (folder / CONFIG).is_file() or RUN_FOLDER_NAME.fullmatch(folder.name):
            raise
        return  # not a run folder, but for example texts from elsewhere
    if manifest["schema"] == integrity.SCHEMA:
        integrity.check_integrity(folder, manifest)


def _was_written_by_training(folder: Path) -> bool:
    """Whether training wrote a folder with a model but no manifest, by its config or its name.

    Training writes the model last, immediately before the manifest.
    """
    if not (folder / CONFIG).is_file():
        return (
            folder.parent.name in KINDS_WITH_MODEL
            and RUN_FOLDER_NAME.fullmatch(folder.name) is not None
        )
    try:
        return bool(read_config(folder).keys() & {"corpus_folder", "adopted_from"})
    except ArtifactError:
        return False


def version_text() -> str:
    """Returns the package name and version, with the git revision if it is known."""
    name, revision = "contamination-testbed", code_revision()
    release = f"{name} {metadata.version(name)}"
    return release if revision == UNKNOWN_REVISION else f"{release} ({revision})"


@cache
def code_revision() -> str:
    """Returns the git revision of the code (with + if files were changed), or 'unknown'."""
    root = Path(__file__).resolve().parents[1]
    if (root / REVISION_FILE).is_file():  # a snapshot of the code
        return (root / REVISION_FILE).read_text().strip()
    # fails if the code is installed inside the checkout of another project
    list_this_file = ["git", "ls-files", "--error-unmatch", __file__]
    describe = ["git", "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        for command in (list_this_file, describe):
            result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN_REVISION
    return result.stdout.strip()


def to_plain_data(value: Any) -> Any:
    """Returns dataclasses, mappings and sequences as dicts and lists for YAML and JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): to_plain_data(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_data(v) for v in value]
    return value

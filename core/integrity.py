"""Checks that the files of a finished run folder are unchanged, by size and by SHA-256.

The manifest lists each file that is read later, with its size and SHA-256, and contains a hash of
its own content. Other files may be added only at the top level of the folder or as hidden files.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import stat
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from contamination.core.errors import ArtifactError, UserError, describe_error, require
from contamination.core.files import HASH_KEY, file_state, verified_json
from contamination.core.hashing import digests_by_name, is_hidden
from contamination.core.output_paths import RUST_OS_ERROR
from contamination.core.stored_files import (
    check_name_inside_folder,
    is_inside,
    parse_json,
    parse_typed,
    read_text,
)

SCHEMA = 5  # of all run folders: increased if the same config and inputs give different results
MANIFEST = "manifest.json"
FIRST_SCHEMA_WITH_HASH = 4  # the first schema with a hash in the manifest
ALWAYS, CHANGED, NEVER = POLICIES = ("always", "changed", "never")
KIND = re.compile(r"[\w.-]{1,100}")
SHA256 = re.compile(r"[0-9a-f]{64}")
_policy = CHANGED
_damage_remedy = ""
log = logging.getLogger(__name__)
_state_when_checked: dict[Path, object] = {}
"""The state of each folder's files when the folder last passed the check."""


def set_hash_policy(policy: str) -> None:
    """Sets which files this process hashes when it opens a run folder.

    Args:
        policy: `always` hashes all files. `changed` hashes small files, and large files whose size,
            times or inode differ from those of the cached digest. `never` compares only sizes.
    """
    global _policy
    require(policy in POLICIES, "verify", policy, f"give one of {', '.join(POLICIES)}.")
    _policy = policy


def current_hash_policy() -> str:
    """Returns the policy set by `set_hash_policy`: always, changed or never."""
    return _policy


def set_damage_remedy(remedy: str) -> None:
    """Sets a further remedy, which is appended to the errors for damaged folders.

    Args:
        remedy: a sentence, in which `{runs}` stands for the folder of all run folders.
    """
    global _damage_remedy
    _damage_remedy = remedy


class ForeignManifestError(ArtifactError):
    """Another program wrote the folder's manifest.json."""


@dataclass(frozen=True)
class _Manifest:
    """The entries of a manifest; see `core.artifacts.write_manifest`."""

    kind: str
    schema: int
    digest: str
    inputs: dict[str, str]
    counts: dict[str, object]
    files: dict[str, str]
    records: dict[str, str]
    bytes: dict[str, int]
    version: str = ""
    revision: str = ""
    identity: dict[str, object] | None = None

    def check_entries(self) -> None:
        """Raises a ValueError for a name outside the folder, or for contradictory entries."""
        _check_kind_form(self.kind)
        for name in self.bytes:
            check_name_inside_folder(name)
        if {*self.bytes} != {*self.files, *self.records}:
            raise ValueError("its lists of sizes and of hashes name different files")
        for name, digest in {"": self.digest, **self.files, **self.records}.items():
            if not SHA256.fullmatch(digest):
                raise ValueError(f"the hash {f'of {name} ' * bool(name)}is {repr(digest)[:40]}")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns the folder's manifest, after checking its own hash.

    All file names in it are inside the folder. Manifests of earlier versions may have no hash.

    Raises:
        ArtifactError: the manifest was changed, or another program wrote it.
    """
    try:
        text = read_text(folder / MANIFEST)
        manifest = parse_json(text)
        if isinstance(manifest, dict) and HASH_KEY not in manifest:
            schema = manifest.get("schema")
            if type(schema) is int and schema < FIRST_SCHEMA_WITH_HASH:
                return _check_manifest_of_other_schema(manifest)
            if manifest and type(schema) is not int:
                raise ForeignManifestError(
                    f"{folder}: another program wrote its {MANIFEST}, so it is not a run folder. "
                    "Give a folder that a stage wrote, or, for a model from elsewhere, a copy "
                    "without that file."
                )
        manifest = verified_json(text)
        if type(schema := manifest.get("schema")) is int and schema not in range(
            FIRST_SCHEMA_WITH_HASH, SCHEMA + 1
        ):
            return _check_manifest_of_other_schema(manifest)
        names = [field.name for field in fields(_Manifest)]
        parse_typed({n: manifest[n] for n in names if n in manifest}, _Manifest).check_entries()
        return manifest
    except (OSError, ValueError) as error:
        raise damage_error(folder, f"{MANIFEST} can't be used: {error}") from error


def _check_manifest_of_other_schema(manifest: dict[str, Any]) -> dict[str, Any]:
    """Returns the manifest; only its kind and its schema are used."""
    _check_kind_form(manifest.get("kind"))
    return manifest


def _check_kind_form(kind: object) -> None:
    if not isinstance(kind, str) or KIND.fullmatch(kind) is None:
        raise ValueError(f"its kind is {repr(kind)[:40]}")


@contextmanager
def errors_naming_folders(*folders: Path | str) -> Iterator[None]:
    """Turns errors caused by the content of finished folders into an error that names the folders.

    A manifest may match files that no stage wrote, and code that reads such files may raise any
    error.

    Raises:
        ArtifactError: for any error except user errors and errors of the operating system.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if (isinstance(error, OSError) and error.errno) or RUST_OS_ERROR.search(str(error)):
            raise
        log.debug("an error caused by a stored file", exc_info=True)
        last_frame = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{Path(last_frame.filename).name}, line {last_frame.lineno}"
        message = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
        raise ArtifactError(
            f"{', '.join(map(str, folders))}: the files match the manifest but can't be used "
            f"({message}; {line}). If they come from elsewhere or were edited, get them again. If "
            "this program wrote them, please report it."
        ) from error


@contextmanager
def errors_naming_file(path: Path) -> Iterator[None]:
    """Turns any error while a run folder's file is parsed into an error that names the file.

    Raises:
        ArtifactError: for any error except user errors.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # a reader may raise any error for unexpected bytes
        damage = f"{path.name} can't be read ({describe_error(error)[:300]})"
        raise damage_error(path.parent, damage) from error


def check_integrity(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Checks the folder according to the policy, again only if the state of its files changes.

    Raises:
        ArtifactError: a file is missing, was changed, or was not written by the stage.
    """
    files = [folder / name for name in (MANIFEST, *manifest["bytes"])]
    state = _policy, [(os.path.realpath(file), file_state(file)) for file in files]
    path = folder.absolute()
    damage = next(_describe_unlisted_files(folder, manifest), None)
    if damage is None and _state_when_checked.get(path) != state:
        damage = next(find_damages(folder, manifest), None)
    if damage is not None:
        raise damage_error(folder, damage)
    _state_when_checked[path] = state


def find_damages(
    folder: Path, manifest: Mapping[str, Any], policy_override: str | None = None
) -> Iterator[str]:
    """Yields descriptions of what is wrong with the folder's files, without a full stop.

    Args:
        folder: the run folder.
        manifest: its manifest.
        policy_override: the hash policy; None: that of this process.
    """
    hash_policy = policy_override or current_hash_policy()
    names_of_right_size = []
    for name, size in manifest["bytes"].items():
        try:
            status = (folder / name).stat()
        except OSError as error:
            is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            yield f"{name} is missing" if is_missing else f"{name} can't be read ({error})"
            continue
        if not stat.S_ISREG(status.st_mode):
            yield f"{name} is not a regular file"
        elif not is_inside(folder, name):
            yield f"{name} is a link to a file outside the folder"
        elif status.st_size == size:
            names_of_right_size.append(name)
        else:
            yield f"{name} has {status.st_size:,} bytes, but {size:,} were written"
    if hash_policy != NEVER:
        digest_by_name = {**manifest["files"], **manifest["records"]}
        recorded = {name: digest_by_name[name] for name in names_of_right_size}
        yield from _describe_changed_files(folder, recorded, hash_policy == CHANGED)
    yield from _describe_unlisted_files(folder, manifest)


def _describe_changed_files(
    folder: Path, recorded: Mapping[str, str], use_cache: bool
) -> Iterator[str]:
    """Reports files whose digest differs from the recorded one; cached digests are re-checked."""
    try:
        current = digests_by_name({name: folder / name for name in recorded}, use_cache=use_cache)
    except OSError as error:
        if len(recorded) > 1:  # find out which file can't be read
            for name, digest in recorded.items():
                yield from _describe_changed_files(folder, {name: digest}, use_cache)
        else:
            yield f"{next(iter(recorded))} can't be read ({error})"
        return
    changed = {name: digest for name, digest in recorded.items() if digest != current[name]}
    if use_cache and changed:
        yield from _describe_changed_files(folder, changed, False)
        return
    for name, digest in changed.items():
        yield f"{name} has the SHA-256 {current[name][:12]}…, but {digest[:12]}… was written"


def damage_error(folder: Path, damage: str) -> ArtifactError:
    """Returns the error for a damaged folder, with the damage and how to rebuild the folder."""
    remedy = _damage_remedy.replace("{runs}", shlex.quote(str(folder.parent.parent)))
    return ArtifactError(
        f"{folder} is damaged: {damage}. It was not used or changed. Remove it "
        f"(rm -r {shlex.quote(str(folder))}) and repeat the command that wrote it, or the whole "
        f"pipeline. {remedy}".rstrip()
    )


def unlisted_files(folder: Path, listed_names: Collection[str]) -> Iterator[str]:
    """Yields files and links that are in the same subfolders as `listed_names` but not listed.

    They matter because some libraries read all files of a folder. Hidden files are ignored.
    """
    for top in sorted({name.split("/")[0] for name in listed_names if "/" in name}):
        for path in sorted((folder / top).rglob("*")):
            name = path.relative_to(folder).as_posix()
            is_read = path.is_symlink() or path.is_file()  # a link may lead to a folder
            if is_read and name not in listed_names and not is_hidden(name):
                yield name


def _describe_unlisted_files(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    for name in unlisted_files(folder, manifest["bytes"]):
        yield f"{name} was not written by the stage (move it elsewhere)"

"""Whether a finished folder still holds what was written: sizes always, hashes by the policy.

The manifest names each file that anything reads later, with its size and SHA-256, and has a hash of
itself. Only files beside these (a dot before their names, or at the folder's top) may come and go.
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

from contamination.core.disk import RUST
from contamination.core.errors import ArtifactError, UserError, require, said
from contamination.core.files import OWN, file_state, unsealed
from contamination.core.hashing import digests, is_hidden
from contamination.core.stored_files import check_name, is_inside, parse_json, read_text, typed

MANIFEST = "manifest.json"
FIRST_SEALED = 4  # the first schema that has it
ALWAYS, CHANGED, NEVER = POLICIES = ("always", "changed", "never")
KIND = re.compile(r"[\w.-]{1,100}")
SHA256 = re.compile(r"[0-9a-f]{64}")
_policy = CHANGED
log = logging.getLogger(__name__)
_checked: dict[Path, object] = {}  # by folder: what its files looked like when they were whole


def follow(policy: str) -> None:
    """What this process hashes from now on when it opens a folder.

    `always`: every file; `changed`: small files, and large ones whose size, times or inode are not
    those that were hashed before; `never`: none, sizes are compared.
    """
    global _policy
    require(policy in POLICIES, "verify", policy, f"give one of {', '.join(POLICIES)}.")
    _policy = policy


def policy() -> str:
    """The policy that `follow` was given: always, changed or never."""
    return _policy


class ForeignManifestError(ArtifactError):
    """Another program wrote the folder's manifest.json."""


@dataclass(frozen=True)
class _Manifest:
    """What each manifest holds; see `core.artifacts.commit`."""

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

    def check(self) -> None:
        """Raise a ValueError for a name outside the folder, or names that don't go together."""
        _check_kind(self.kind)
        for name in self.bytes:
            check_name(name)
        if {*self.bytes} != {*self.files, *self.records}:
            raise ValueError("its files are not those of which it gives the sizes")
        for name, digest in {"": self.digest, **self.files, **self.records}.items():
            if not SHA256.fullmatch(digest):
                raise ValueError(f"the hash {f'of {name} ' * bool(name)}is {repr(digest)[:40]}")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The folder's manifest; one of an earlier version may have no hash of itself.

    Every name in it is that of a file inside the folder.

    Raises:
        ArtifactError: it is not what was written, or another program wrote it.
    """
    try:
        text = read_text(folder / MANIFEST)
        manifest = parse_json(text)
        if isinstance(manifest, dict) and OWN not in manifest:
            schema = manifest.get("schema")
            if type(schema) is int and schema < FIRST_SEALED:
                return _of_other_schema(manifest)
            if manifest and type(schema) is not int:
                raise ForeignManifestError(
                    f"{folder}: another program wrote its {MANIFEST}, so it is no folder of a "
                    "stage. Give one that a stage made, or, of a model from elsewhere, a copy "
                    "without that file."
                )
        manifest = unsealed(text)
        if type(schema := manifest.get("schema")) is int and schema not in range(
            FIRST_SEALED, SCHEMA + 1
        ):
            return _of_other_schema(manifest)
        names = [field.name for field in fields(_Manifest)]
        typed({n: manifest[n] for n in names if n in manifest}, _Manifest).check()
        return manifest
    except (OSError, ValueError) as error:
        raise refusal(folder, f"{MANIFEST} can't be used: {error}") from error


def _of_other_schema(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest of which no more is used than its kind and its schema."""
    _check_kind(manifest.get("kind"))
    return manifest


def _check_kind(kind: object) -> None:
    if not isinstance(kind, str) or KIND.fullmatch(kind) is None:
        raise ValueError(f"its kind is {repr(kind)[:40]}")


@contextmanager
def reading(*folders: Path | str) -> Iterator[None]:
    """Within it, what fails because of what finished folders hold is an error that names them.

    A manifest can agree with files that its stage did not write. Whatever reads them then may fail
    in any way.

    Raises:
        ArtifactError: in place of any error but a user's and those of the operating system.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if (isinstance(error, OSError) and error.errno) or RUST.search(str(error)):
            raise
        log.debug("what a stored file caused", exc_info=True)
        last = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
        raise ArtifactError(
            f"{', '.join(map(str, folders))}: the files are those that the manifest lists, but "
            f"can't be used ({what}; {Path(last.filename).name}, line {last.lineno}). If they come "
            "from elsewhere or were edited, get them again. If this program wrote them, please "
            "report it."
        ) from error


@contextmanager
def parsing(path: Path) -> Iterator[None]:
    """Within it, whatever fails while one file of a run folder is parsed is an error that names it.

    Raises:
        ArtifactError: in place of any error but a user's.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # whatever a reader makes of other bytes
        damage = f"{path.name} can't be read ({said(error)[:300]})"
        raise refusal(path.parent, damage) from error


def ensure_whole(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Check the folder by the policy; once, as long as its files look the same.

    Raises:
        ArtifactError: a file is missing, is not what was written, or was not written by the stage.
    """
    files = [folder / name for name in (MANIFEST, *manifest["bytes"])]
    now = _policy, [(os.path.realpath(file), file_state(file)) for file in files]
    place = folder.absolute()
    found = next(_foreign(folder, manifest), None)
    if found is None and _checked.get(place) != now:
        found = next(damages(folder, manifest), None)
    if found is not None:
        raise refusal(folder, found)
    _checked[place] = now


def damages(folder: Path, manifest: Mapping[str, Any], by: str | None = None) -> Iterator[str]:
    """What is wrong with the folder's files, by a policy or else this process's own."""
    by, whole = by or policy(), []
    for name, size in manifest["bytes"].items():
        try:
            state = (folder / name).stat()
        except OSError as error:
            gone = isinstance(error, FileNotFoundError | NotADirectoryError)
            yield f"{name} is missing" if gone else f"{name} can't be read ({error})"
            continue
        if not stat.S_ISREG(state.st_mode):
            yield f"{name} is not a regular file"
        elif not is_inside(folder, name):
            yield f"{name} is a link to a file outside the folder"
        elif state.st_size == size:
            whole.append(name)
        else:
            yield f"{name} has {state.st_size:,} bytes, and {size:,} were written"
    if by != NEVER:
        hashes = {**manifest["files"], **manifest["records"]}
        yield from _changed(folder, {name: hashes[name] for name in whole}, by == CHANGED)
    yield from _foreign(folder, manifest)


def _changed(folder: Path, hashes: Mapping[str, str], remembered: bool) -> Iterator[str]:
    """Files of other content. What is remembered convicts none: it is hashed again."""
    try:
        now = digests({name: folder / name for name in hashes}, remembered=remembered)
    except OSError as error:
        if len(hashes) > 1:  # which of them?
            for name, digest in hashes.items():
                yield from _changed(folder, {name: digest}, remembered)
        else:
            yield f"{next(iter(hashes))} can't be read ({error})"
        return
    other = {name: digest for name, digest in hashes.items() if digest != now[name]}
    if remembered and other:
        yield from _changed(folder, other, False)
        return
    for name, digest in other.items():
        yield f"{name} has the SHA-256 {now[name][:12]}…, and {digest[:12]}… was written"


def refusal(folder: Path, damage: str) -> ArtifactError:
    """The error of a damaged folder: what is wrong, and what makes it anew."""
    return ArtifactError(
        f"{folder} is damaged: {damage}. Nothing of it was used or changed. Remove it "
        f"(rm -r {shlex.quote(str(folder))}) and give the command that made it again, or the whole "
        f"pipeline's. python -m launch check runs={shlex.quote(str(folder.parent.parent))} lists "
        "all that is damaged."
    )


def foreign(folder: Path, names: Collection[str]) -> Iterator[str]:
    """Files and links in the subfolders of `names` that are none of them: some read a whole folder.

    Those with a dot before their name, or their folder's, no one reads.
    """
    for top in sorted({name.split("/")[0] for name in names if "/" in name}):
        for path in sorted((folder / top).rglob("*")):
            name = path.relative_to(folder).as_posix()
            is_read = path.is_symlink() or path.is_file()  # a link may lead to a folder of files
            if is_read and name not in names and not is_hidden(name):
                yield name


def _foreign(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    for name in foreign(folder, manifest["bytes"]):
        yield f"{name} was not written by the stage (move it elsewhere)"


SCHEMA = 5  # of all artefacts: raised where the same config and inputs give other results

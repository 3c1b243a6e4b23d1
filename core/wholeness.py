"""Whether a finished folder still holds what was written: sizes always, hashes by the policy.

The manifest names each file that anything reads later, with its size and SHA-256, and has a hash of
itself. Only files beside these (a dot before their names, or at the folder's top) may come and go.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from core.content import digests, is_hidden
from core.errors import ArtifactError, require
from core.files import OWN, file_state, unsealed

MANIFEST = "manifest.json"
FIRST_SEALED = 4  # the first schema that has it
ALWAYS, CHANGED, NEVER = POLICIES = ("always", "changed", "never")
_policy = CHANGED
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


def read_manifest(folder: Path) -> dict[str, Any]:
    """The folder's manifest; one of an earlier version may have no hash of itself.

    Raises:
        ArtifactError: it is not what was written, or another program wrote it.
    """
    try:
        text = (folder / MANIFEST).read_text()
        found = json.loads(text)
        if isinstance(found, dict) and OWN not in found:
            schema = found.get("schema", FIRST_SEALED)
            if isinstance(schema, int) and schema < FIRST_SEALED:
                return found
            if found and "schema" not in found:
                raise ArtifactError(
                    f"{folder}: another program wrote its {MANIFEST}, so it is no folder of a "
                    "stage. Give one that a stage made, or, of a model from elsewhere, a copy "
                    "without that file."
                )
        return unsealed(text)
    except (OSError, ValueError) as error:
        raise refusal(folder, f"{MANIFEST} can't be used: {error}") from error


def ensure_whole(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Check the folder by the policy; once, as long as its files look the same.

    Raises:
        ArtifactError: a file is missing, is not what was written, or was not written by the stage.
    """
    now = _policy, [file_state(folder / name) for name in (MANIFEST, *manifest["bytes"])]
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
            now = (folder / name).stat().st_size
        except OSError as error:
            gone = isinstance(error, FileNotFoundError | NotADirectoryError)
            yield f"{name} is missing" if gone else f"{name} can't be read ({error})"
            continue
        if now == size:
            whole.append(name)
        else:
            yield f"{name} has {now:,} bytes, and {size:,} were written"
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
    """Files in the subfolders of `names` that are none of them: some read a whole folder.

    Those with a dot before their name, or their folder's, no one reads.
    """
    for top in sorted({name.split("/")[0] for name in names if "/" in name}):
        for path in sorted((folder / top).rglob("*")):
            name = path.relative_to(folder).as_posix()
            if name not in names and not is_hidden(name) and path.is_file():
                yield name


def _foreign(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    for name in foreign(folder, manifest["bytes"]):
        yield f"{name} was not written by the stage (move it elsewhere)"

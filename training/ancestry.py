"""Which weights a model is, and which it has been while it was trained.

A model is known by the bytes of any of its weight files, whatever their names and whatever stands
beside them; one from the hub by its id. A finished training records in its manifest (`counts.past`)
how all that it was trained from is known, so that folders which are deleted later hide nothing,
and whether that goes back to random weights (`counts.past_is_whole`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.content import file_digest, file_digests, files_digest
from core.models import resolve
from core.stored import typed
from core.wholeness import MANIFEST, refusal
from training.checkpoint import EXPORTS, HF, Checkpoint, is_checkpoint, is_export, open_checkpoint

PAST, WHOLE = "past", "past_is_whole"
WEIGHTS = ".safetensors"


@dataclass(frozen=True)
class Ancestry:
    """How a model is known.

    Attributes:
        names: its own names; any one of them is enough.
        past: the names of what it was earlier in its training, and before, as far as recorded.
        whole: whether the record goes back to random weights.
    """

    names: frozenset[str]
    past: frozenset[str] = frozenset()
    whole: bool = False

    @property
    def all_names(self) -> frozenset[str]:
        """Its own names and those of its past, as far as that is known."""
        return self.names | self.past

    def recorded(self) -> dict[str, Any]:
        """The entries for the manifest of a training that starts from it."""
        return {PAST: sorted(self.all_names), WHOLE: self.whole}

    def has_been(self, other: Ancestry) -> bool:
        """Whether the other one is this model, an earlier step of it, or what it came from."""
        return not other.names.isdisjoint(self.all_names)


RANDOM = Ancestry(frozenset(), whole=True)
"""The ancestry of random weights."""


def ancestry_of(field: str, path: str) -> Ancestry:
    """The ancestry of the model at `path`.

    Args:
        field: the config field that holds `path`, for errors.
        path: a finished training's folder, the `hf` or an export in it, another Hugging Face
            folder, a GGUF file, or a hub id.

    Raises:
        ConfigError: there is no such folder.
        ArtifactError: the training's folder is none of this version's.
    """
    given = resolve(field, path)
    folder = Path(given)
    if folder.is_file():
        return Ancestry(frozenset({file_digest(folder)}))
    if not folder.is_dir():
        return Ancestry(frozenset({f"hub:{given}"}))
    if is_checkpoint(folder):
        return _of(open_checkpoint(folder), HF)
    if folder.name == HF and is_checkpoint(folder.parent):
        return _of(open_checkpoint(folder.parent), HF)
    if is_export(folder):
        return _of(open_checkpoint(folder.parents[1]), f"{EXPORTS}/{folder.name}")
    return Ancestry(_names(file_digests(folder)))


def _of(trained: Checkpoint, part: str) -> Ancestry:
    """The ancestry of the model in a part of a finished training's folder, by its manifest."""
    artifact = trained.artifact
    start = artifact.inputs.get("model")
    before, whole = artifact.counts.get(PAST, [start] if start else []), artifact.counts.get(WHOLE)
    try:
        typed(before, list[str], f"counts.{PAST}")
        typed(whole, bool | None, f"counts.{WHOLE}")
    except ValueError as error:
        raise refusal(artifact.path, f"in {MANIFEST} {error}") from error
    exports = {f"{EXPORTS}/{path.name}" for path in trained.exports.values()}
    earlier = [export for export in exports if part == HF or export < part]
    own = {trained.digest} if part == HF else set()
    return Ancestry(
        _names(_files(trained, part)) | own,
        frozenset(before).union(*(_names(_files(trained, export)) for export in earlier)),
        not start if whole is None else whole,
    )


def _files(trained: Checkpoint, part: str) -> dict[str, str]:
    """The digests of the files of one part, by their names in it."""
    files, start = trained.artifact.files.items(), f"{part}/"
    return {name.removeprefix(start): d for name, d in files if name.startswith(start)}


def _names(files: Mapping[str, str]) -> frozenset[str]:
    """The names of a folder with these files: the hash of all, and that of each weights file."""
    weights = (digest for name, digest in files.items() if name.endswith(WEIGHTS))
    return frozenset({files_digest(files), *weights} if files else ())

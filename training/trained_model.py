"""Finished model folders of the training stage, and the ancestry of models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contamination.core.artifacts import Artifact, is_complete, open_artifact
from contamination.core.errors import require
from contamination.core.hashing import combined_digest, file_digest, file_digests_of_folder
from contamination.core.integrity import MANIFEST, damage_error
from contamination.core.models import resolve_model_path
from contamination.core.stored_files import parse_typed

if TYPE_CHECKING:
    import pandas as pd

KIND = "model"
HF = "hf"
EXPORTS = "exports"
EXPOSURES = "exposures.parquet"
METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"


@dataclass(frozen=True)
class Checkpoint:
    """A finished model folder."""

    artifact: Artifact

    @property
    def hf(self) -> Path:
        """The model and tokenizer as a Hugging Face folder."""
        return self.artifact.path / HF

    @property
    def exports(self) -> dict[int, Path]:
        """Optimizer step → Hugging Face folder of the export, in order, without the final model."""
        files = [name for name in self.artifact.files if name.startswith(f"{EXPORTS}/")]
        names = sorted({name.split("/")[1] for name in files})
        folder = self.artifact.path / EXPORTS
        return {int(name.removeprefix("step-")): folder / name for name in names}

    @property
    def digest(self) -> str:
        """A hash of the weights, the tokenizer and the exposures."""
        return self.artifact.digest

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config of the stage."""
        return self.artifact.config()

    @cached_property
    def exposures(self) -> pd.DataFrame:
        """The ledger with the optimizer step of each copy."""
        return self.artifact.table(EXPOSURES)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Per step: step, tokens, loss, learning_rate, grad_norm, tokens_per_second, mfu."""
        return self.artifact.lines(METRICS)

    @cached_property
    def evaluations(self) -> pd.DataFrame:
        """One row per evaluation: step, tokens, loss_members, loss_nonmembers, loss_validation."""
        import pandas as pd

        if EVALUATIONS not in self.artifact.records:
            return pd.DataFrame({"step": []})
        return self.artifact.lines(EVALUATIONS)


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Returns a finished model folder.

    Raises:
        ArtifactError: it does not exist or is unfinished.
    """
    return Checkpoint(open_artifact(path, KIND))


def open_trained(field: str, path: Path | str) -> Checkpoint:
    """Returns a finished model folder that includes the record of its training.

    Args:
        field: the config field of `path`, for error messages.
        path: the folder.

    Raises:
        ArtifactError: it does not exist or is unfinished.
        ConfigError: it is an adopted model, or only a Hugging Face folder.
    """
    is_model_only = (Path(path) / "config.json").is_file() and not is_complete(Path(path))
    remedy = "a model does not record when it saw which texts. Give the folder of a training."
    require(not is_model_only, field, str(path), remedy)
    checkpoint = open_checkpoint(path)
    reason = "this model was adopted, so there is no record of when it saw which texts."
    remedy = f"{reason} Give a folder that the training stage wrote."
    require(EXPOSURES in checkpoint.artifact.files, field, str(path), remedy)
    return checkpoint


def is_checkpoint(path: Path | str) -> bool:
    """Returns whether `path` is a finished folder of this stage, and not a Hugging Face folder."""
    return is_complete(Path(path))


def is_export(path: Path | str) -> bool:
    """Returns whether `path` is an export of an earlier step in a finished folder of this stage."""
    folder = Path(path).resolve()
    return folder.parent.name == EXPORTS and is_complete(folder.parent.parent)


PAST, WHOLE = "past", "past_is_whole"
WEIGHTS = ".safetensors"


@dataclass(frozen=True)
class Ancestry:
    """Names that identify a model and the models from which it was trained.

    Attributes:
        names: names of the model itself; models with a common name are the same.
        past: names of its earlier steps and of its starting models, as far as recorded.
        whole: whether the record goes back to random weights.
    """

    names: frozenset[str]
    past: frozenset[str] = frozenset()
    whole: bool = False

    @property
    def all_names(self) -> frozenset[str]:
        """The names of the model and of its past."""
        return self.names | self.past

    def manifest_entries(self) -> dict[str, Any]:
        """Returns the manifest's entries for a training that starts from this model."""
        return {PAST: sorted(self.all_names), WHOLE: self.whole}

    def has_been(self, other: Ancestry) -> bool:
        """Returns whether `other` is this model, an earlier step of it, or one it started from."""
        return not other.names.isdisjoint(self.all_names)


RANDOM_WEIGHTS = Ancestry(frozenset(), whole=True)
"""The ancestry of random weights."""


def ancestry_of(field: str, path: str) -> Ancestry:
    """Returns the ancestry of the model at `path`.

    Args:
        field: the config field of `path`, for error messages.
        path: a finished model folder, its `hf` or an export in it, another Hugging Face folder, a
            GGUF file, or a hub id.

    Raises:
        ConfigError: there is no such folder.
        ArtifactError: another version wrote the training's folder.
    """
    resolved = resolve_model_path(field, path)
    folder = Path(resolved)
    if folder.is_file():
        return Ancestry(frozenset({file_digest(folder)}))
    if not folder.is_dir():
        return Ancestry(frozenset({f"hub:{resolved}"}))
    if is_checkpoint(folder):
        return _ancestry_of_part(open_checkpoint(folder), HF)
    if folder.name == HF and is_checkpoint(folder.parent):
        return _ancestry_of_part(open_checkpoint(folder.parent), HF)
    if is_export(folder):
        return _ancestry_of_part(open_checkpoint(folder.parents[1]), f"{EXPORTS}/{folder.name}")
    return Ancestry(_names_from_digests(file_digests_of_folder(folder)))


def _ancestry_of_part(trained: Checkpoint, part: str) -> Ancestry:
    """Returns the ancestry of the model in `hf` or an export of a finished training's folder."""
    artifact = trained.artifact
    start = artifact.inputs.get("model")
    past_names, whole = (
        artifact.counts.get(PAST, [start] if start else []),
        artifact.counts.get(WHOLE),
    )
    try:
        parse_typed(past_names, list[str], f"counts.{PAST}")
        parse_typed(whole, bool | None, f"counts.{WHOLE}")
    except ValueError as error:
        raise damage_error(artifact.path, f"in {MANIFEST} {error}") from error
    exports = {f"{EXPORTS}/{path.name}" for path in trained.exports.values()}
    earlier = [export for export in exports if part == HF or export < part]
    artifact_name = {trained.digest} if part == HF else set()
    return Ancestry(
        _names_from_digests(_file_digests_of_part(trained, part)) | artifact_name,
        frozenset(past_names).union(
            *(_names_from_digests(_file_digests_of_part(trained, export)) for export in earlier)
        ),
        not start if whole is None else whole,
    )


def _file_digests_of_part(trained: Checkpoint, part: str) -> dict[str, str]:
    """Returns the digests of the files of one part by name."""
    files, prefix = trained.artifact.files.items(), f"{part}/"
    return {name.removeprefix(prefix): d for name, d in files if name.startswith(prefix)}


def _names_from_digests(digest_by_file: Mapping[str, str]) -> frozenset[str]:
    """Returns the names of a folder: the hash of all its files, and of each weights file."""
    weights = (digest for name, digest in digest_by_file.items() if name.endswith(WEIGHTS))
    return frozenset({combined_digest(digest_by_file), *weights} if digest_by_file else ())

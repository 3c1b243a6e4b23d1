"""The model under test: where its files are and what names its weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from core.artifacts import is_complete
from core.content import file_digest, folder_digest
from core.errors import ConfigError
from core.hub import commit_digest, snapshot
from core.models import resolve, tokenizer_digest

UNKNOWN_STEP = -1
CODE = "+code"  # what a digest ends with where the model's own code runs
MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.py")


@dataclass(frozen=True)
class ScoredModel:
    """A model that can be loaded, and what its passes are stored under.

    Attributes:
        field: the config field that named it, for errors.
        folder: its Hugging Face folder, or its GGUF file.
        digest: a hash that changes with the weights.
        slug: a readable name for folders.
        step: the optimizer step of the checkpoint; -1 where it is unknown.
        trust_remote_code: whether Python code that comes with the model may run.
    """

    field: str
    folder: Path
    digest: str
    slug: str
    step: int = UNKNOWN_STEP
    trust_remote_code: bool = False

    @property
    def tokenizer_digest(self) -> str:
        """A hash of the tokenizer's files; a GGUF file holds its own."""
        return self.digest if self.folder.is_file() else tokenizer_digest(self.folder)


def open_model(field: str, path: str, *, trust_remote_code: bool = False) -> ScoredModel:
    """The model at `path`, and whether its own code may run, which may change what it computes."""
    found = _open(field, path)
    if not trust_remote_code:
        return found
    return replace(found, digest=found.digest + CODE, trust_remote_code=True)


def _open(field: str, path: str) -> ScoredModel:
    """The model at `path`: a training artefact, a Hugging Face folder, a GGUF file, or a hub id.

    Raises:
        ConfigError: there is no such folder, or the hub can't give it.
        ArtifactError: the training artefact is unfinished.
    """
    import training

    given = resolve(field, path)
    folder = Path(given)
    if folder.is_file():
        return ScoredModel(field, folder, file_digest(folder), folder.stem)
    if not folder.is_dir():
        return _from_hub(field, given)
    if is_complete(folder):
        return _from_artifact(field, folder)
    if training.is_export(folder):
        return _from_export(field, folder)
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{field} is {path!r}: the folder has neither manifest.json nor config.json. Give a "
            "finished model folder of the training stage, or a Hugging Face folder."
        )
    return ScoredModel(field, folder, folder_digest(folder), folder.name)


def _from_artifact(field: str, folder: Path) -> ScoredModel:
    import training

    checkpoint = training.open_checkpoint(folder)
    step = int(checkpoint.artifact.counts.get("steps", UNKNOWN_STEP))
    return ScoredModel(field, checkpoint.hf, checkpoint.digest, folder.name, step)


def _from_export(field: str, folder: Path) -> ScoredModel:
    """A checkpoint of a finished training, at the step that its name says."""
    step = int(folder.name.removeprefix("step-"))
    slug = f"{folder.resolve().parents[1].name}-{folder.name}"
    return ScoredModel(field, folder, folder_digest(folder), slug, step)


def _from_hub(field: str, name: str) -> ScoredModel:
    folder = snapshot(field, name, MODEL_FILES)
    digest = commit_digest(name, folder.name)
    return ScoredModel(field, folder, digest, name.rpartition("/")[2])

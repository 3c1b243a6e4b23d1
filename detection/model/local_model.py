"""A model in files: a training artefact, a Hugging Face folder, a GGUF file, or one of the hub."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.artifacts import is_complete
from core.content import file_digest, folder_digest
from core.errors import ConfigError
from core.hub import commit_digest, snapshot
from core.models import MODEL_FILES, load_config, load_tokenizer, resolve, tokenizer_digest
from detection.model.scored_model import UNKNOWN_STEP
from detection.model.transformers_model import TransformersModel
from training.ancestry import Ancestry, ancestry_of

if TYPE_CHECKING:
    from detection.config import DetectionConfig
    from detection.model.causal_lm import CausalLM

CODE = "+code"  # what a digest ends with where the model's own code runs


@dataclass(frozen=True)
class LocalModel(TransformersModel):
    """A model in files, which gives all.

    Attributes:
        folder: its Hugging Face folder, or its GGUF file.
        trust_remote_code: whether Python code that comes with the model may run.
        given: the path as it was given; a hub id for one of the hub.
    """

    field: str
    folder: Path
    digest: str
    slug: str
    step: int = UNKNOWN_STEP
    trust_remote_code: bool = False
    given: str = ""

    @classmethod
    def opens(cls, path: str) -> bool:
        """Any path, or name of the hub."""
        return True

    @classmethod
    def open(cls, field: str, path: str, *, trust_remote_code: bool = False) -> LocalModel:
        """The model at `path`; its own code may change what it computes, and so its digest.

        Raises:
            ConfigError: there is no such folder, or the hub can't give it.
            ArtifactError: the training artefact is unfinished.
        """
        found = replace(_open(field, path), given=path)
        if not trust_remote_code:
            return found
        return replace(found, digest=found.digest + CODE, trust_remote_code=True)

    @property
    def path(self) -> str:
        """The folder or the file."""
        return str(self.folder)

    @property
    def ancestry(self) -> Ancestry:
        """By its weights' bytes or the hub's id, and by what its training recorded."""
        return ancestry_of(self.field, self.given)

    @property
    def tokenizer_digest(self) -> str:
        """A hash of the tokenizer's files; a GGUF file holds its own."""
        return self.digest if self.folder.is_file() else tokenizer_digest(self.folder)

    @cached_property
    def config(self) -> Any:
        """The config of its text decoder."""
        config = load_config(self.field, self.path, trust_remote_code=self.trust_remote_code)
        return config.get_text_config(decoder=True)

    def tokenizer(self) -> Any:
        """The files' own."""
        return load_tokenizer(self.field, self.path, trust_remote_code=self.trust_remote_code)

    def load(self, settings: DetectionConfig) -> CausalLM:
        """The model on its device, or on all devices as `detection.device_map` says."""
        from detection.model.causal_lm import load_causal_lm

        trusted = self.trust_remote_code
        return load_causal_lm(self.field, self.path, settings, trust_remote_code=trusted)


def _open(field: str, path: str) -> LocalModel:
    import training

    given = resolve(field, path)
    folder = Path(given)
    if folder.is_file():
        return LocalModel(field, folder, file_digest(folder), folder.stem)
    if not folder.is_dir():
        cached = snapshot(field, given, MODEL_FILES)
        digest = commit_digest(given, cached.name)
        return LocalModel(field, cached, digest, given.rpartition("/")[2])
    if is_complete(folder):
        checkpoint = training.open_checkpoint(folder)
        step = int(checkpoint.artifact.counts.get("steps", UNKNOWN_STEP))
        return LocalModel(field, checkpoint.hf, checkpoint.digest, folder.name, step)
    slug, step = folder.name, UNKNOWN_STEP
    if training.is_export(folder):  # of a finished training, at the step that its name says
        slug = f"{folder.resolve().parents[1].name}-{slug}"
        step = int(folder.name.removeprefix("step-"))
    elif not (folder / "config.json").is_file():
        raise ConfigError(
            f"{field} is {path!r}: the folder has neither manifest.json nor config.json. Give a "
            "finished model folder of the training stage, or a Hugging Face folder."
        )
    return LocalModel(field, folder, folder_digest(folder), slug, step)

"""What every kind of model has that transformers runs in this process."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contamination.core.artifacts import is_complete
from contamination.core.errors import ConfigError
from contamination.core.hashing import file_digest, folder_digest
from contamination.core.hub import commit_digest, snapshot
from contamination.core.models import (
    MODEL_FILES,
    load_config,
    load_tokenizer,
    resolve,
    tokenizer_digest,
)
from contamination.detection.models.base import UNKNOWN_STEP, ModelHandle
from contamination.detection.passes import NUMBERS
from contamination.training.trained_model import Ancestry, ancestry_of

if TYPE_CHECKING:
    from contamination.detection.config import DetectionConfig
    from contamination.detection.models.causal_lm import CausalLM


class TransformersModel(ModelHandle):
    """A model with a config of transformers, which gives all."""

    gives: frozenset[str] = frozenset({*NUMBERS, "states", "continuations"})

    @property
    @abstractmethod
    def config(self) -> Any:
        """The config of its text decoder."""

    @property
    def context(self) -> int | None:
        """The most tokens that the config allows; None where it names no limit."""
        limit = getattr(self.config, "max_position_embeddings", None)
        return None if limit is None else int(limit)

    @property
    def looks_back(self) -> bool:
        """Whether what it says of a token is the same whatever follows.

        Every causal model's is but for rotary embeddings that are scaled by the text's length.
        """
        names = ("rope_parameters", "rope_scaling")
        rope = str([getattr(self.config, name, None) for name in names])
        return "dynamic" not in rope and "longrope" not in rope

    @property
    def vocabulary(self) -> int | None:
        """The entries of the vocabulary that the config names, if it does."""
        return getattr(self.config, "vocab_size", None)


CODE = "+code"  # what a digest ends with where the model's own code runs


@dataclass(frozen=True)
class HFModel(TransformersModel):
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
    def open(cls, field: str, path: str, *, trust_remote_code: bool = False) -> HFModel:
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
        from contamination.detection.models.causal_lm import load_causal_lm

        trusted = self.trust_remote_code
        return load_causal_lm(self.field, self.path, settings, trust_remote_code=trusted)


def _open(field: str, path: str) -> HFModel:
    from contamination import training

    given = resolve(field, path)
    folder = Path(given)
    if folder.is_file():
        return HFModel(field, folder, file_digest(folder), folder.stem)
    if not folder.is_dir():
        cached = snapshot(field, given, MODEL_FILES)
        digest = commit_digest(given, cached.name)
        return HFModel(field, cached, digest, given.rpartition("/")[2])
    if is_complete(folder):
        checkpoint = training.open_checkpoint(folder)
        step = int(checkpoint.artifact.counts.get("steps", UNKNOWN_STEP))
        return HFModel(field, checkpoint.hf, checkpoint.digest, folder.name, step)
    slug, step = folder.name, UNKNOWN_STEP
    if training.is_export(folder):  # of a finished training, at the step that its name says
        slug = f"{folder.resolve().parents[1].name}-{slug}"
        step = int(folder.name.removeprefix("step-"))
    elif not (folder / "config.json").is_file():
        raise ConfigError(
            f"{field} is {path!r}: the folder has neither manifest.json nor config.json. Give a "
            "finished model folder of the training stage, or a Hugging Face folder."
        )
    return HFModel(field, folder, folder_digest(folder), slug, step)


SCHEME = "held:"
_held: dict[str, InMemoryModel] = {}


@dataclass(frozen=True, eq=False)
class InMemoryModel(TransformersModel):
    """A loaded `PreTrainedModel`, scored on the device and in the type that it has.

    Attributes:
        hf: the model.
        own_tokenizer: its tokenizer.
        modes: each module's mode, training or not, which it gets back in the end.
    """

    hf: Any
    own_tokenizer: Any
    field: str
    digest: str
    slug: str
    modes: list[bool]
    step: int = UNKNOWN_STEP

    @classmethod
    def of(cls, hf: Any, tokenizer: Any, field: str, *, kept: bool) -> InMemoryModel:
        """Names the model by its class, and by its weights where its scores are `kept`."""
        modes = [module.training for module in hf.modules()]
        digest, slug = weights_digest(hf) if kept else field, type(hf).__name__.lower()
        return cls(hf, tokenizer, field, digest, slug, modes)

    @classmethod
    def opens(cls, path: str) -> bool:
        """A path that `hold` gave."""
        return path.startswith(SCHEME)

    @classmethod
    def open(cls, field: str, path: str, *, trust_remote_code: bool = False) -> InMemoryModel:
        """The model that is held under this path.

        Raises:
            ConfigError: there is none: it was in another process, or nobody holds it any more.
        """
        if path not in _held:
            raise ConfigError(f"{field} is {path!r}: no such model is held. Give it again.")
        return _held[path]

    def hold(self) -> str:
        """A path under which this process finds the model until it is released."""
        _held[self.path] = self
        return self.path

    def release(self) -> None:
        """Forget the path, and give each module its mode back."""
        del _held[self.path]
        for module, mode in zip(self.hf.modules(), self.modes, strict=True):
            module.training = mode

    @property
    def path(self) -> str:
        """What it is held under."""
        return f"{SCHEME}{self.slug}-{id(self)}"

    @cached_property
    def tokenizer_digest(self) -> str:
        """SHA-256 of the fast tokenizer's own text."""
        return hashlib.sha256(self.own_tokenizer.backend_tokenizer.to_str().encode()).hexdigest()

    @property
    def config(self) -> Any:
        """The config of its text decoder."""
        return self.hf.config.get_text_config(decoder=True)

    def tokenizer(self) -> Any:
        """The one that it came with."""
        return self.own_tokenizer

    def load(self, settings: DetectionConfig) -> CausalLM:
        """The model as it is: `detection.dtype` and `detection.device` are its own."""
        from contamination.detection.models.causal_lm import CausalLM

        return CausalLM(self.hf.eval(), settings.kernel)


def weights_digest(hf: Any) -> str:
    """SHA-256 of the class, the config, and the weights' names, types, shapes and bytes.

    What else may change its numbers, such as hooks or an adapter that is not active, is not in it.
    """
    import torch

    found = hashlib.sha256(f"{type(hf).__qualname__} {hf.config.to_json_string()}".encode())
    for name, tensor in sorted(hf.state_dict().items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return found.hexdigest()

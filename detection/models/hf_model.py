"""Models that transformers runs in this process, in files or already loaded."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from contamination.core.artifacts import is_complete
from contamination.core.errors import ConfigError
from contamination.core.hashing import file_digest, folder_digest
from contamination.core.hub import commit_digest, download_snapshot
from contamination.core.models import (
    MODEL_FILES,
    load_config,
    load_tokenizer,
    resolve_model_path,
    tokenizer_digest,
)
from contamination.core.tensors import Tensor, loaded_tensors, stored_tensors
from contamination.detection.models.base import UNKNOWN_STEP, ModelHandle
from contamination.detection.passes import NUMBERS
from contamination.training.trained_model import Ancestry, ancestry_of

if TYPE_CHECKING:
    from contamination.detection.config import DetectionConfig, ScoredModelConfig
    from contamination.detection.models.causal_lm import CausalLM


class TransformersModel(ModelHandle):
    """A model with a config of transformers, which provides every statistic."""

    provides: frozenset[str] = frozenset({*NUMBERS, "states", "continuations", "gradients"})

    @property
    @abstractmethod
    def config(self) -> Any:
        """The config of its text decoder."""

    @property
    def context(self) -> int | None:
        """The maximum number of tokens that the config allows; None if it names no limit."""
        limit = getattr(self.config, "max_position_embeddings", None)
        return None if limit is None else int(limit)

    @property
    def ignores_later_tokens(self) -> bool:
        """Whether a token's statistics don't depend on the tokens after it.

        This holds for every causal model, unless the text's length scales its rotary embeddings.
        """
        names = ("rope_parameters", "rope_scaling")
        rope = str([getattr(self.config, name, None) for name in names])
        return "dynamic" not in rope and "longrope" not in rope

    @property
    def vocabulary(self) -> int | None:
        """The number of vocabulary entries in the config; None if the config has none."""
        return getattr(self.config, "vocab_size", None)


CODE_SUFFIX = "+code"  # the end of a digest if the model's own code runs


@dataclass(frozen=True)
class HFModel(TransformersModel):
    """A model in files.

    Attributes:
        folder: its Hugging Face folder, or its GGUF file.
        trust_remote_code: whether Python code that comes with the model may run.
        configured_path: the path or the hub id in the config.
    """

    field: str
    folder: Path
    digest: str
    slug: str
    step: int = UNKNOWN_STEP
    trust_remote_code: bool = False
    configured_path: str = ""

    @classmethod
    def opens(cls, config: ScoredModelConfig) -> bool:
        """Returns whether the node gives a path or a hub id, and no url."""
        return config.path is not None and config.url is None

    @classmethod
    def open(cls, name: str, config: ScoredModelConfig, runs: str) -> Self:
        """Returns the model at the node's path; see `from_path`."""
        trusted = config.trust_remote_code
        return cls.from_path(f"{name}.path", str(config.path), trust_remote_code=trusted)

    @classmethod
    def from_path(cls, field: str, path: str, *, trust_remote_code: bool = False) -> Self:
        """Returns the model at `path`; its digest shows whether code of the model may run.

        Raises:
            ConfigError: there is no such folder, or the hub can't provide it.
            ArtifactError: the training artefact is unfinished.
        """
        model = replace(cls._from_path_without_code(field, path), configured_path=path)
        if not trust_remote_code:
            return model
        return replace(model, digest=model.digest + CODE_SUFFIX, trust_remote_code=True)

    @classmethod
    def _from_path_without_code(cls, field: str, path: str) -> Self:
        from contamination.training import trained_model

        resolved = resolve_model_path(field, path)
        folder = Path(resolved)
        if folder.is_file():
            return cls(field, folder, file_digest(folder), folder.stem)
        if not folder.is_dir():
            snapshot_folder = download_snapshot(field, resolved, MODEL_FILES)
            digest = commit_digest(resolved, snapshot_folder.name)
            return cls(field, snapshot_folder, digest, resolved.rpartition("/")[2])
        if is_complete(folder):
            checkpoint = trained_model.open_checkpoint(folder)
            step = int(checkpoint.artifact.counts.get("steps", UNKNOWN_STEP))
            return cls(field, checkpoint.hf, checkpoint.digest, folder.name, step)
        slug, step = folder.name, UNKNOWN_STEP
        if trained_model.is_export(folder):  # of a finished training, at the step in its name
            slug = f"{folder.resolve().parents[1].name}-{slug}"
            step = int(folder.name.removeprefix("step-"))
        elif not (folder / "config.json").is_file():
            raise ConfigError(
                f"{field} is {path!r}: the folder has neither manifest.json nor config.json. Give "
                "a finished model folder of the training stage, or a Hugging Face folder."
            )
        return cls(field, folder, folder_digest(folder), slug, step)

    @property
    def path(self) -> str:
        """The folder or the file."""
        return str(self.folder)

    @property
    def ancestry(self) -> Ancestry:
        """The hash of the weights or the hub's id, and the models that its training recorded."""
        return ancestry_of(self.field, self.configured_path)

    @property
    def tokenizer_digest(self) -> str:
        """A hash of the tokenizer's files; a GGUF file includes its tokenizer."""
        return self.digest if self.folder.is_file() else tokenizer_digest(self.folder)

    @cached_property
    def config(self) -> Any:
        """The config of its text decoder."""
        config = load_config(self.field, self.path, trust_remote_code=self.trust_remote_code)
        return config.get_text_config(decoder=True)

    def tokenizer(self) -> Any:
        """Returns the tokenizer in the model's folder."""
        return load_tokenizer(self.field, self.path, trust_remote_code=self.trust_remote_code)

    def tensors(self) -> list[Tensor]:
        """Returns the weights in its safetensors files; none of a GGUF file."""
        return stored_tensors(self.folder)

    def load(self, settings: DetectionConfig) -> CausalLM:
        """Returns the model on its device, or on several as `detection.device_map` says."""
        from contamination.detection.models.causal_lm import load_causal_lm

        trusted = self.trust_remote_code
        return load_causal_lm(self.field, self.path, settings, trust_remote_code=trusted)


IN_MEMORY_SCHEME = "held:"
_registered: dict[str, InMemoryModel] = {}  # by path


@dataclass(frozen=True, eq=False)
class InMemoryModel(TransformersModel):
    """A loaded `PreTrainedModel`, scored on its own device and in its own dtype.

    Attributes:
        hf: the model.
        hf_tokenizer: its tokenizer.
        modes: whether each module was in training mode, which `release` restores.
    """

    hf: Any
    hf_tokenizer: Any
    field: str
    digest: str
    slug: str
    modes: list[bool]
    step: int = UNKNOWN_STEP

    @classmethod
    def from_loaded(
        cls, hf: Any, tokenizer: Any, field: str, *, scores_are_stored: bool
    ) -> InMemoryModel:
        """Returns a handle named by the model's class, with a hash of the weights if needed.

        Args:
            hf: the model.
            tokenizer: its fast tokenizer.
            field: the name of the argument, for errors.
            scores_are_stored: whether scores are stored, so that they need a hash of the weights.
        """
        modes = [module.training for module in hf.modules()]
        digest, slug = weights_digest(hf) if scores_are_stored else field, type(hf).__name__.lower()
        return cls(hf, tokenizer, field, digest, slug, modes)

    @classmethod
    def opens(cls, config: ScoredModelConfig) -> bool:
        """Returns whether the node's path is one that `register` returned."""
        return (
            config.path is not None
            and config.path.startswith(IN_MEMORY_SCHEME)
            and config.url is None
        )

    @classmethod
    def open(cls, name: str, config: ScoredModelConfig, runs: str) -> InMemoryModel:
        """Returns the model that is registered under the node's path.

        Raises:
            ConfigError: the model was in another process, or has been released.
        """
        path = str(config.path)
        if path not in _registered:
            raise ConfigError(
                f"{name}.path is {path!r}: this process has no such model in memory. Pass the "
                "loaded model again."
            )
        return _registered[path]

    def register(self) -> str:
        """Returns a path under which this process finds the model until it is released."""
        _registered[self.path] = self
        return self.path

    def release(self) -> None:
        """Unregisters the model, and restores the training mode of each module."""
        del _registered[self.path]
        for module, mode in zip(self.hf.modules(), self.modes, strict=True):
            module.training = mode

    @property
    def path(self) -> str:
        """The path under which the model is registered."""
        return f"{IN_MEMORY_SCHEME}{self.slug}-{id(self)}"

    @cached_property
    def tokenizer_digest(self) -> str:
        """SHA-256 of the fast tokenizer's JSON."""
        return hashlib.sha256(self.hf_tokenizer.backend_tokenizer.to_str().encode()).hexdigest()

    @property
    def config(self) -> Any:
        """The config of its text decoder."""
        return self.hf.config.get_text_config(decoder=True)

    def tokenizer(self) -> Any:
        """Returns the tokenizer that was passed with the model."""
        return self.hf_tokenizer

    def tensors(self) -> list[Tensor]:
        """Returns the loaded weights."""
        return loaded_tensors(self.hf.state_dict().values())

    def load(self, settings: DetectionConfig) -> CausalLM:
        """Returns the model as it is: `detection.dtype` and `detection.device` are not used."""
        from contamination.detection.models.causal_lm import CausalLM

        return CausalLM(self.hf.eval(), settings.kernel)


def weights_digest(hf: Any) -> str:
    """Returns the SHA-256 of the class, the config, and the weights' names, dtypes and bytes.

    Other causes of different numbers, such as hooks or inactive adapters, are not included.
    """
    import torch

    sha256 = hashlib.sha256(f"{type(hf).__qualname__} {hf.config.to_json_string()}".encode())
    for name, tensor in sorted(hf.state_dict().items()):
        sha256.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        sha256.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return sha256.hexdigest()

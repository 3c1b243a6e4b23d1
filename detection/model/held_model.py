"""A model that a Python program holds already, with its tokenizer."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError
from detection.model.scored_model import UNKNOWN_STEP
from detection.model.transformers_model import TransformersModel

if TYPE_CHECKING:
    from detection.config import DetectionConfig
    from detection.model.causal_lm import CausalLM

SCHEME = "held:"
_held: dict[str, HeldModel] = {}


@dataclass(frozen=True, eq=False)
class HeldModel(TransformersModel):
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
    def of(cls, hf: Any, tokenizer: Any, field: str, *, kept: bool) -> HeldModel:
        """Names the model by its class, and by its weights where its scores are `kept`."""
        modes = [module.training for module in hf.modules()]
        digest, slug = weights_digest(hf) if kept else field, type(hf).__name__.lower()
        return cls(hf, tokenizer, field, digest, slug, modes)

    @classmethod
    def opens(cls, path: str) -> bool:
        """A path that `hold` gave."""
        return path.startswith(SCHEME)

    @classmethod
    def open(cls, field: str, path: str, *, trust_remote_code: bool = False) -> HeldModel:
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
        from detection.model.causal_lm import CausalLM

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

"""A causal language model as hidden states and the logits of chosen rows.

Shapes: B texts, T tokens, N rows, X hidden units (or the vocabulary), V vocabulary.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from core.errors import ConfigError
from core.models import load_model
from detection.config import DetectionConfig
from detection.scored_model import ScoredModel


class Decoder:
    """Runs a model without ever holding more float32 logits than asked for.

    Most models are a body and a linear head on its last hidden state. Whether this one is (no
    soft cap, no scale) is found by trying: body and head must give the model's own logits to the
    bit. Where they do not, the model's logits take the hidden state's place, whole.

    A model spread over devices moves its inputs itself: the hidden states, and the logits, may be
    on another device than `device`, where the token ids go.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.device = _input_device(model)
        config = model.config.get_text_config(decoder=True)
        self.vocabulary: int = config.vocab_size
        self.plain = self._is_plain()

    def hidden(self, ids_BT: Tensor) -> Tensor:
        """The last hidden states (B, T, X); no mask, so the padding must be on the right.

        A causal model's row never reads what stands to its right.
        """
        if self.plain:
            states: Tensor = self.model.base_model(input_ids=ids_BT, use_cache=False)[0]
        else:
            states = self.model(input_ids=ids_BT, use_cache=False).logits
        return states

    def logits(self, hidden_NX: Tensor) -> Tensor:
        """Float32 logits (N, V) of some rows of `hidden`, in memory that is free to overwrite."""
        rows: Tensor = self.model.get_output_embeddings()(hidden_NX) if self.plain else hidden_NX
        return rows.float()

    def _is_plain(self) -> bool:
        body, head = self.model.base_model, self.model.get_output_embeddings()
        if head is None or body is self.model:
            return False
        ids = torch.arange(min(8, self.vocabulary), device=self.device)[None]
        with torch.inference_mode():
            logits = head(body(input_ids=ids, use_cache=False)[0])
            whole = self.model(input_ids=ids, use_cache=False).logits
            return torch.equal(logits, whole.to(logits.device))


def load_decoder(source: ScoredModel, settings: DetectionConfig) -> Decoder:
    """The model on its device, or on all devices as `detection.device_map` says."""
    load = partial(load_model, source.field, str(source.folder), settings.dtype,
                   trust_remote_code=source.trust_remote_code)  # fmt: skip
    if settings.device_map is not None:
        return Decoder(load(device_map=settings.device_map))
    return Decoder(load().to(_device(settings.device)))


def _input_device(model: Any) -> torch.device:
    """Where the token ids go: to the first layer; weights kept on disk are on no device."""
    devices = (p.device for p in model.parameters() if not p.is_meta)
    return next(devices, torch.device("cpu"))


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"detection.device is {name!r}: torch sees no CUDA device. Give cpu.")
    return torch.device(name)

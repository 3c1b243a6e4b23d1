"""How alike two texts are in meaning: the cosine of their sentence embeddings.

An embedding is the mean of an encoder's last hidden states over a text's tokens. The paper takes
SimCSE (Gao et al. 2021). Any model of Hugging Face will do, but cosines of one that was not made
for sentences are all high: read them beside those of non-members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from core.errors import ConfigError
from core.metrics import Scores
from core.models import load, load_tokenizer, model_digest
from core.progress import progress

FIELD = "audit.embedding"
AT_ONCE = 32
LONGEST = 512  # tokens, where the model names no limit; what is longer is cut


class Embedding:
    """An encoder, loaded when it is first asked.

    Args:
        path: a Hugging Face folder or a hub id.
        device: as `detection.device`.
    """

    def __init__(self, path: str, device: str) -> None:
        self.path, self.device = path, device
        self.digest = model_digest(FIELD, path)
        self._known: dict[str, np.ndarray] = {}
        self._model: Any = None

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        """The cosine of each pair; 0 where a text is empty."""
        self._read(sorted({text for pair in pairs for text in pair} - self._known.keys(), key=len))
        return np.array([float(self._known[a] @ self._known[b]) for a, b in pairs], np.float64)

    def _read(self, texts: Sequence[str]) -> None:
        bar = progress(desc="embeddings", total=len(texts), unit="text")
        with bar:
            for start in range(0, len(texts), AT_ONCE):
                some = texts[start : start + AT_ONCE]
                self._known.update(zip(some, self._embedded(some), strict=True))
                bar.update(len(some))

    def _embedded(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors, one a text; zeros for one without tokens."""
        import torch

        model, tokenizer, device = self._loaded()
        rows = tokenizer(list(texts), truncation=True, max_length=self._longest())["input_ids"]
        width = max(1, max(map(len, rows)))
        ids = torch.zeros((len(rows), width), dtype=torch.long)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for place, row in enumerate(rows):
            ids[place, : len(row)], mask[place, : len(row)] = torch.tensor(row), 1
        mask[mask.sum(1) == 0, 0] = 1  # something to attend to; its vector is dropped below
        with torch.inference_mode():
            states = model(input_ids=ids.to(device), attention_mask=mask.to(device))
        weights = mask.to(device)[:, :, None].float()
        means = (states.last_hidden_state.float() * weights).sum(1) / weights.sum(1)
        units = torch.nn.functional.normalize(means, dim=1).cpu().numpy().astype(np.float64)
        units[[not text.strip() for text in texts]] = 0
        return units

    def _longest(self) -> int:
        model, tokenizer, _ = self._loaded()
        named = [tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None)]
        return int(min([LONGEST, *(one for one in named if one)]))

    def _loaded(self) -> tuple[Any, Any, Any]:
        from detection.model.causal_lm import chosen_device  # it imports torch

        if self._model is None:
            self._model = *open_encoder(self.path), chosen_device(self.device)
            self._model[0].to(self._model[2])
        return self._model  # type: ignore[no-any-return]


def open_encoder(path: str) -> tuple[Any, Any]:
    """The encoder, whole, and its tokenizer.

    Raises:
        ConfigError: it can't be loaded, or weights are missing.
    """
    import torch
    from transformers import AutoModel

    options = {"dtype": torch.float32, "use_safetensors": True, "output_loading_info": True}
    model, loaded = load(AutoModel, FIELD, path, **options)
    missing = [name for name in loaded["missing_keys"] if "pooler" not in name]  # not read here
    if missing:
        raise ConfigError(
            f"{FIELD} is {path!r}: its files lack {missing[0]}, so its embeddings would be random. "
            "Give a whole Hugging Face folder."
        )
    return model.eval(), load_tokenizer(FIELD, path)

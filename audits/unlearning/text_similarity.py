"""How alike two texts are in meaning: the cosine of their sentence embeddings.

An embedding is the mean of an encoder's last hidden states over a text's tokens. The paper takes
SimCSE (Gao et al. 2021). Any model of Hugging Face will do, but cosines of one that was not made
for sentences are all high: read them beside those of non-members.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from contamination.core.errors import ConfigError
from contamination.core.models import load, load_tokenizer, model_digest
from contamination.core.progress import progress
from contamination.core.statistics.bootstrap import Scores

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
        from contamination.detection.models.causal_lm import chosen_device  # it imports torch

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


WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class RougeL:
    """With L words in common, in one order: L / |reference|, L / |written|, and both's F1."""

    recall: float
    precision: float

    @property
    def f1(self) -> float:
        """Their harmonic mean; 0 where nothing is common."""
        both = self.recall + self.precision
        return 2 * self.recall * self.precision / both if both else 0.0


def rouge_l(written: str, reference: str) -> RougeL:
    """Lin's equations 2 and 3; 0 where either has no word.

    Words are runs of letters and digits, in lower case: on English those of the package rouge-score
    without its stemmer.
    """
    own, wanted = words(written), words(reference)
    common = longest_common(own, wanted)
    return RougeL(common / max(1, len(wanted)), common / max(1, len(own)))


def words(text: str) -> list[str]:
    """The text's words."""
    return WORD.findall(text.lower())


def longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of their longest common subsequence, a row of bits a word (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << place
    every = (1 << len(one)) - 1
    row = every
    for word in other:
        kept = row & places.get(word, 0)
        row = (row + kept | row - kept) & every
    return len(one) - row.bit_count()

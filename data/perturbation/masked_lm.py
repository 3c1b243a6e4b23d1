"""A rewording that replaces words with predictions of a masked language model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contamination.core.config import (
    DEVICE,
    FRACTION,
    Ranged,
    at_least,
    ranged_field,
    runtime_field,
)
from contamination.core.errors import ConfigError, require
from contamination.core.models import (
    REPORTING_OPTIONS,
    check_loaded_weights,
    load_pretrained,
    load_tokenizer,
    resolve_model_path,
)
from contamination.core.seeds import derive_seed
from contamination.data.perturbation.masking import (
    Blank,
    TokensAround,
    Vocabulary,
    Window,
    choose_blanks,
    fill_blanks,
    iter_windows,
    mask_blanks,
)

FIELD = "masked_lm.path"
NUMBER = re.compile(r"\d+")


def open_masked_model(path: str, device: str) -> tuple[Any, Any]:
    """Returns the fast tokenizer and the float32 masked language model, in evaluation mode.

    Raises:
        ConfigError: there is no such model, it has no masked-language head, or its tokenizer is
            unsuitable.
    """
    import torch
    from transformers import AutoModelForMaskedLM

    tokenizer = load_tokenizer(FIELD, path)
    _require_model(tokenizer.is_fast, path, "its tokenizer is not a fast one")
    _require_model(tokenizer.mask_token_id is not None, path, "its tokenizer has no mask token")
    options = {"dtype": torch.float32, "use_safetensors": True, **REPORTING_OPTIONS}
    model, loaded = load_pretrained(AutoModelForMaskedLM, FIELD, path, **options)
    check_loaded_weights(
        FIELD, path, model, {**loaded, "unexpected_keys": _unexpected_layer_weights(model, loaded)}
    )
    has_embeddings = len(tokenizer) <= model.get_input_embeddings().num_embeddings
    _require_model(
        has_embeddings, path, f"its tokenizer has {len(tokenizer)} tokens, more than its model"
    )
    return tokenizer, _to_device(model.eval(), device)


def special_tokens_around(tokenizer: Any) -> TokensAround:
    """Returns the ids that the model expects before and after a text, such as [CLS] and [SEP]."""
    ids = tokenizer(tokenizer.mask_token)["input_ids"]
    at, special = ids.index(tokenizer.mask_token_id), set(tokenizer.all_special_ids)
    return [i for i in ids[:at] if i in special], [i for i in ids[at + 1 :] if i in special]


def max_input_tokens(tokenizer: Any, model: Any) -> int:
    """Returns the maximum number of tokens in one input of the model."""
    limits = [int(tokenizer.model_max_length)]
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions:
        limits.append(int(positions))
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            # RoBERTa numbers positions from padding_idx + 1.
            limits.append(module.num_embeddings - padding - 1)
    return min(limits)


def _unexpected_layer_weights(model: Any, loaded: Mapping[str, Any]) -> list[str]:
    """Returns the unexpected weights that belong to additional layers, by their names.

    Other unexpected weights, such as a pooler or a next-sentence head, are common and harmless.
    """
    patterns = {NUMBER.sub("0", name) for name in model.state_dict()}
    return [name for name in loaded["unexpected_keys"] if NUMBER.sub("0", name) in patterns]


def _to_device(model: Any, device: str) -> Any:
    import torch

    auto = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return model.to(auto if device == "auto" else device)
    except (RuntimeError, AssertionError) as error:  # a build without CUDA asserts
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"masked_lm.device is {device!r}: the model can't be moved there ({reason}). Give "
            "auto, cpu, or a device that torch sees."
        ) from error


def _require_model(condition: bool, path: str, reason: str) -> None:
    remedy = "Choose a masked language model with a fast tokenizer, such as bert-base-uncased."
    require(condition, FIELD, path, f"{reason}. {remedy}")


@dataclass(frozen=True)
class MaskedLM(Ranged, node="masked_lm"):
    """Replaces ⌊share·words⌋ words, at least 1, by words that a masked language model predicts.

    It is a sampled version of the neighbours of Mattern et al. 2023. Random words are masked all at
    once, and each is replaced by a token drawn from the most likely ones with the model's
    probabilities: a whole word, but never a special token or the same word. The paper instead ranks
    replacements of single words, which would be the same for every copy of a text.

    Words are separated by white space, and the punctuation around them is kept. A text without a
    letter or digit is not changed. Scripts without spaces are unsuitable, since a whole sentence
    counts as one word. Each call of `reword` loads the model, so pass all texts at once.
    """

    path: str
    """A Hugging Face folder or hub id of a masked language model with a fast tokenizer."""

    share: float = ranged_field(0.3, FRACTION)
    """The share of the words to replace, above 0 and at most 1."""

    candidates: int = ranged_field(20, at_least(1))
    """The number of most likely words from which a replacement is drawn."""

    window_tokens: int = ranged_field(512, at_least(16))
    """Tokens per input of the model; limited by the model's maximum."""

    batch_tokens: int = runtime_field(4096, at_least(1))
    """Tokens per batch, including padding."""

    device: str = runtime_field("auto", DEVICE)
    """`auto` (CUDA if available), `cpu`, `cuda` or `cuda:<n>`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        resolve_model_path(FIELD, self.path)  # to report a missing folder before any work

    def reword(self, texts: Sequence[str], keys: Sequence[object], seed: int) -> list[str]:
        """Returns each text with some of its words replaced."""
        pairs = zip(texts, keys, strict=True)
        blanks_by_text = [
            choose_blanks(text, self.share, derive_seed(seed, "masked_lm", key))
            for text, key in pairs
        ]
        if not any(blanks_by_text):
            return list(texts)
        words = iter(self._draw_words(texts, blanks_by_text))
        blanked_texts = zip(texts, blanks_by_text, strict=True)
        return [
            fill_blanks(text, blanks, [next(words) for _ in blanks])
            for text, blanks in blanked_texts
        ]

    def _draw_words(self, texts: Sequence[str], blanks_by_text: Sequence[list[Blank]]) -> list[str]:
        from contamination.data.perturbation.mask_filling import MaskFiller

        tokenizer, model = open_masked_model(self.path, self.device)
        vocabulary = Vocabulary(tokenizer, model.config.vocab_size)
        vocabulary.check_has_words(self.path)
        around = special_tokens_around(tokenizer)
        width = min(self.window_tokens, max_input_tokens(tokenizer, model))
        options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
        tokens = tokenizer(list(texts), truncation=False, padding=False, **options)
        all_windows: list[Window] = []
        all_blanks: list[Blank] = []
        tokenized = zip(tokens["input_ids"], tokens["offset_mapping"], blanks_by_text, strict=True)
        for ids, offsets, text_blanks in tokenized:
            masked_ids, places = mask_blanks(ids, offsets, text_blanks, tokenizer.mask_token_id)
            all_windows += iter_windows(masked_ids, places, len(all_blanks), width, around)
            all_blanks += text_blanks
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        filler = MaskFiller(self.path, model, vocabulary, pad, self.candidates)
        return filler.draw_words(all_windows, all_blanks, self.batch_tokens)

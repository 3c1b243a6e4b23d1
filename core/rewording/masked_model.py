"""Loading masked language models, and what must be known of one to run it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from core.errors import ConfigError, require
from core.models import LOADING, load, load_tokenizer
from core.rewording.masking import Around
from core.weights import check_whole

FIELD = "masked_lm.path"
NUMBER = re.compile(r"\d+")


def open_masked_model(path: str, device: str) -> tuple[Any, Any]:
    """The fast tokenizer and the float32 masked language model at `path`, in evaluation mode.

    Raises:
        ConfigError: no such model, no masked-language head, or a tokenizer that doesn't serve.
    """
    import torch
    from transformers import AutoModelForMaskedLM

    tokenizer = load_tokenizer(FIELD, path)
    _require(tokenizer.is_fast, path, "its tokenizer is not a fast one")
    _require(tokenizer.mask_token_id is not None, path, "its tokenizer has no mask token")
    options = {"dtype": torch.float32, "use_safetensors": True, **LOADING}
    model, loaded = load(AutoModelForMaskedLM, FIELD, path, **options)
    check_whole(FIELD, path, model, {**loaded, "unexpected_keys": _layers(model, loaded)})
    fits = len(tokenizer) <= model.get_input_embeddings().num_embeddings
    _require(fits, path, f"its tokenizer has {len(tokenizer)} tokens, more than its model")
    return tokenizer, _placed(model.eval(), device)


def special_tokens(tokenizer: Any) -> Around:
    """What the model expects before and after a text, such as [CLS] and [SEP]."""
    ids = tokenizer(tokenizer.mask_token)["input_ids"]
    at, special = ids.index(tokenizer.mask_token_id), set(tokenizer.all_special_ids)
    return [i for i in ids[:at] if i in special], [i for i in ids[at + 1 :] if i in special]


def longest(tokenizer: Any, model: Any) -> int:
    """The most tokens that the model can see at once."""
    limits = [int(tokenizer.model_max_length)]
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions:
        limits.append(int(positions))
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            # RoBERTa numbers its positions from the padding's id + 1.
            limits.append(module.num_embeddings - padding - 1)
    return min(limits)


def _layers(model: Any, loaded: Mapping[str, Any]) -> list[str]:
    """Surplus weights that are named as the model's own are, but for numbers: of more layers.

    Others, such as a pooler or a next-sentence head, many published models have.
    """
    own = {NUMBER.sub("0", name) for name in model.state_dict()}
    return [name for name in loaded["unexpected_keys"] if NUMBER.sub("0", name) in own]


def _placed(model: Any, device: str) -> Any:
    import torch

    auto = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return model.to(auto if device == "auto" else device)
    except (RuntimeError, AssertionError) as error:  # a build without CUDA asserts
        first = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"masked_lm.device is {device!r}: the model can't be put there ({first}). Give auto, "
            "cpu, or a device that torch sees."
        ) from error


def _require(condition: bool, path: str, reason: str) -> None:
    remedy = "Choose a masked language model with a fast tokenizer, such as bert-base-uncased."
    require(condition, FIELD, path, f"{reason}. {remedy}")

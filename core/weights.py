"""A model's weights are all there, of the right shapes, and finite."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from core.errors import ConfigError
from core.partitions import own_part

BUFFER = re.compile(r"(.*\.)?attn\.(attention\.)?(bias|masked_bias)")
"""A causal mask that older releases saved with GPT-2, GPT-J and GPT-Neo: it was never learned."""


def check_whole(field: str, path: str, model: Any, loaded: Mapping[str, Any]) -> None:
    """Refuse a model that transformers would complete with random weights, or run on NaN.

    Args:
        field: the config field that holds `path`, for the error.
        path: where the model is.
        model: the loaded model; partitions of ZeRO stage 3 are looked at each where it is.
        loaded: the loading information of `from_pretrained`.

    Raises:
        ConfigError: a tensor is missing, surplus, of another shape, or not finite.
    """
    wrong = next(_wrong(model, loaded), None)
    if wrong is not None:
        raise ConfigError(
            f"{field} is {path!r}: {wrong}. Its weights are damaged, or its config.json is another "
            "model's. Copy or download the model again, or give another one."
        )


def _wrong(model: Any, loaded: Mapping[str, Any]) -> Iterator[str]:
    for name, what in (("missing_keys", "lack"), ("unexpected_keys", "have a surplus")):
        if names := sorted(key for key in loaded[name] if not _is_mask(name, key)):
            yield f"its weights {what} {_some(names)}"
    for name, given, wanted in sorted(loaded["mismatched_keys"]):
        yield f"{name} has the shape {tuple(given)}, not {tuple(wanted)}"
    if names := [name for name, weights in model.named_parameters() if not _finite(weights)]:
        yield f"NaN or infinite values are in {_some(names)}"


def _is_mask(kind: str, name: str) -> bool:
    return kind == "unexpected_keys" and BUFFER.fullmatch(name) is not None


def _finite(weights: Any) -> bool:
    here = own_part(weights)
    if here.is_meta:  # not loaded here
        return True
    if not here.numel():
        return True
    least, most = here.aminmax()  # NaN wherever one value is; needs no copy of the weights
    return bool(least.isfinite() & most.isfinite())


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more

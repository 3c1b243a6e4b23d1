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

    `loaded` is the loading information of `from_pretrained`, and `field` the config field that
    holds `path`. Partitions of ZeRO stage 3 are looked at each where it is.

    Raises:
        ConfigError: a tensor is missing, surplus, of another shape, or not finite.
    """
    for wrong in _wrong(model, loaded):
        raise ConfigError(
            f"{field} is {path!r}: {wrong}. Its weights are damaged, or its config.json is another "
            "model's. Copy or download the model again, or give another one."
        )


def _wrong(model: Any, loaded: Mapping[str, Any]) -> Iterator[str]:
    surplus = [name for name in loaded["unexpected_keys"] if not BUFFER.fullmatch(name)]
    for names, what in ((loaded["missing_keys"], "lack"), (surplus, "have a surplus")):
        if names:
            yield f"its weights {what} {_some(sorted(names))}"
    for name, given, wanted in sorted(loaded["mismatched_keys"]):
        yield f"{name} has the shape {tuple(given)}, not {tuple(wanted)}"
    if names := [name for name, weights in model.named_parameters() if not _finite(weights)]:
        yield f"NaN or infinite values are in {_some(names)}"


def _finite(weights: Any) -> bool:
    here = own_part(weights)
    if here.is_meta or not here.numel():  # it is not loaded here, or there is none
        return True
    least, most = here.aminmax()  # NaN wherever one value is; needs no copy of the weights
    return bool(least.isfinite() & most.isfinite())


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more

"""What DeepSpeed adds to a parameter of which, under ZeRO stage 3, each process holds a part.

Anything else is as whole as it looks.
"""

from __future__ import annotations

from typing import Any


def own_part(parameter: Any) -> Any:
    """The values that this process holds, in one dimension where they are a part."""
    return getattr(parameter, "ds_tensor", parameter)


def whole_shape(parameter: Any) -> tuple[int, ...]:
    """The shape that all processes' parts have together."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))

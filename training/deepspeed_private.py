"""What DeepSpeed has no public call for: a new release of it may break this file."""

from __future__ import annotations

from typing import Any


def whole_weights(engine: Any) -> Any:
    """The weights that ZeRO stage 3 has divided, by name, on the first process; None on others.

    Every process has to call this.
    """
    return engine._zero3_consolidated_16bit_state_dict()


def avoid_compilation() -> None:
    """Without this the first start on CPU compiles a C++ op that training does not use."""
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False

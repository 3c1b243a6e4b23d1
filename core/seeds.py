"""One seed a purpose, all derived from the experiment's seed by name."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any


def derive(seed: int, *purpose: object) -> int:
    """A 63-bit seed for `purpose`; changing one purpose never moves another."""
    text = "\x1f".join([str(seed), *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def with_seeds(config: Any, seed: int, purposes: Sequence[str]) -> Any:
    """The dataclass with each `<purpose>_seed` that is None derived from `seed`."""
    missing = [name for name in purposes if getattr(config, f"{name}_seed") is None]
    return replace(config, **{f"{name}_seed": derive(seed, name) for name in missing})


def unit_hash(text: str) -> float:
    """A number in [0, 1) from the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48

"""Derives one seed per purpose from the experiment's seed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any


def derive_seed(seed: int, *purpose: object) -> int:
    """Returns a 63-bit seed that depends only on `seed` and `purpose`."""
    text = "\x1f".join([str(seed), *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def fill_in_seeds(config: Any, seed: int, purposes: Sequence[str]) -> Any:
    """Returns the dataclass with a derived seed for each `<purpose>_seed` that is None."""
    missing = [purpose for purpose in purposes if getattr(config, f"{purpose}_seed") is None]
    return replace(config, **{f"{purpose}_seed": derive_seed(seed, purpose) for purpose in missing})


def unit_hash(text: str) -> float:
    """Returns a pseudo-random number in [0, 1) that depends only on the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48

"""Seeds of purposes, and pseudo-random numbers of texts."""

import hashlib
from dataclasses import dataclass

from contamination.core.seeds import derive_seed, fill_in_seeds, unit_hash


def first_bytes(text, number):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:number], "big")


def test_a_seed_depends_on_the_experiments_seed_and_on_the_purpose():
    assert derive_seed(7) == first_bytes("7", 8) // 2
    assert derive_seed(7, "order", 3) == first_bytes("7\x1forder\x1f3", 8) // 2
    assert 0 <= derive_seed(7, "order") < 2**63


@dataclass
class Seeds:
    order_seed: int | None = None
    mask_seed: int | None = 5
    other_seed: int | None = None


def test_only_missing_seeds_of_the_purposes_are_filled_in():
    assert fill_in_seeds(Seeds(), 7, ["order", "mask"]) == Seeds(derive_seed(7, "order"), 5, None)


def test_the_number_of_a_text_is_at_least_0_and_below_1():
    assert unit_hash("a text") == first_bytes("a text", 6) / 2**48
    assert all(0 <= unit_hash(str(i)) < 1 for i in range(100))

"""Runs of words that two books share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

GRAM = 13
"""Words in a row that two texts share by no accident (Brown et al. 2020, appendix C)."""
ONE_IN = 4
"""Of all GRAM-grams, those that are compared."""
FAR_EAST = "\u2e80"
"""The first letter of those scripts in Unicode that no space parts."""
FACTOR = np.uint64(0x9E3779B97F4A7C15)
Keys = NDArray[np.uint64]


def _parted(letter: str) -> str:
    if not letter.isalnum():
        return " "
    return letter if letter < FAR_EAST else f" {letter} "


def gram_keys(text: str) -> Keys:
    """Hashes of one in ONE_IN of the text's runs of GRAM words, each once, in order.

    Case and punctuation don't count. A text of fewer words has one key, of all of them. A Chinese
    or Japanese letter is a word, since no space parts them.
    """
    words = "".join(map(_parted, text.casefold())).split()
    keys: Keys = np.unique(gram_hashes(words))
    return _sample(keys) if len(words) > 40 * GRAM else keys


def gram_hashes(words: Sequence[str]) -> Keys:
    """The hash of each run of GRAM words, in order; of fewer words one, of all of them."""
    numbers = {w: int.from_bytes(hashlib.sha256(w.encode()).digest()[:8], "big") for w in {*words}}
    hashes = np.array([numbers[word] for word in words], np.uint64)
    length = min(GRAM, len(hashes))
    found = np.zeros(len(hashes) - length + 1 if length else 0, np.uint64)
    for place in range(length):  # modulo 2**64
        found = found * FACTOR + hashes[place : place + len(found)]
    return found


def shared(one: Keys, other: Keys) -> float:
    """The share of the shorter text's keys that are the other's, too.

    Of a long text only a sample is known: then only the same sample of a short one can be found.
    """
    sampled = _sample(one), _sample(other)
    whole = [len(own) > len(kept) for own, kept in zip((one, other), sampled, strict=True)]
    pair = (one, other) if all(whole) else sampled
    common = np.intersect1d(*pair, assume_unique=True)
    return len(common) / max(1, min(map(len, pair)))


def _sample(keys: Keys) -> Keys:
    """The keys that are kept of a long text: whichever text they are in, the same ones."""
    kept: Keys = keys[(keys >> np.uint64(32)) % np.uint64(ONE_IN) == 0]
    return kept

"""Extraction strength: how short a beginning lets greedy decoding write the rest of a text.

    ES = 1 − (1/|y|) min {k : greedy decoding after y_<k writes y_≥k}

(Carlini et al. 2021, as Dorna et al. 2025, "OpenUnlearning", define it.) 1: the whole text is
written after its prompt; 0: not even its last token. Lower means that less can be extracted, and
the aim is the clean twin's value: a model that writes nothing sensible has 0 as well.

open-unlearning's code returns 1/|y| where not even the last token is written; here it is 0, as in
the definition. The code also leaves out the last token of an answer, which is the end-of-text token
there; here a text's tokens are all of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def extraction_strength(is_greedy: NDArray[np.bool_]) -> float:
    """Returns ES of a text.

    Greedy decoding writes y_≥k if each of its tokens is the most probable one after the true tokens
    before it, so that one forward pass is enough.

    Args:
        is_greedy: whether each token is the most probable one, shape (|y|,).
    """
    if not len(is_greedy):
        return float("nan")
    wrong = np.flatnonzero(~is_greedy)
    shortest = int(wrong[-1]) + 1 if len(wrong) else 0
    return 1 - shortest / len(is_greedy)

"""Exact memorization: the share of a text's tokens that are the most probable ones.

    EM = (1/|y|) Σ_k 1{argmax p(· | y_<k) = y_k}

(Tirumala et al. 2022, as Dorna et al. 2025, "OpenUnlearning", use it.) Lower means that less is
known word for word. The aim is the clean twin's value, which is far above 0: much of a text can be
guessed by a model that never read it. A model below its twin has lost language, and not the text.
open-unlearning's code leaves out the last token of an answer, which is the end-of-text token there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def exact_memorization(is_greedy: NDArray[np.bool_]) -> float:
    """Returns EM of a text.

    Args:
        is_greedy: whether each token is the most probable one, shape (|y|,).
    """
    return float(is_greedy.mean()) if len(is_greedy) else float("nan")

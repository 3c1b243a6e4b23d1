"""What methods share that compare the target with the reference token by token."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contamination.detection.methods.reference import REFERENCE
from contamination.detection.passes import ORIGINAL, Example


def gain_by_token(example: Example) -> NDArray[np.float64]:
    """Returns log p_target − log p_reference of each scored token, in nats.

    Both models have one tokenizer (`Method.aligned`). If the text was truncated at the context of
    one of them, the tokens that both read are compared.
    """
    target = example.stats(ORIGINAL).logprob
    reference = example.stats(REFERENCE).logprob
    shared = min(len(target), len(reference))
    return target[:shared].astype(np.float64) - reference[:shared]

"""How far a score can move with what must not matter: `python -m tests.detection.invariance`.

For each golden method the largest |difference| over the 32 texts between the usual run (batches,
padding on the right, one process) and: one text a batch; two processes (every pass, infilling as
well); padding on the left (the passes without branches).
"""

from __future__ import annotations

from unittest import mock

import numpy as np
import torch

from contamination.detection.config import DetectionConfig
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.passes import TokenStats
from tests.detection.golden import scores


@torch.inference_mode()
def padded_left(model, sequences):
    """The model's own batch, padded on the left under an attention mask and explicit positions."""
    width = max(map(len, sequences))
    ids = torch.zeros((len(sequences), width), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, width - len(sequence) :] = torch.tensor(sequence)
        mask[row, width - len(sequence) :] = 1
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    body = model.hf.base_model
    hidden = body(ids, attention_mask=mask, position_ids=positions, use_cache=False)[0]
    scored = mask[:, :-1].bool()
    columns = model.statistics_columns(hidden[:, :-1][scored], ids[:, 1:][scored])
    ends = np.cumsum([len(s) - 1 for s in sequences])[:-1]
    pieces = [np.split(column, ends) for column in columns]
    return [TokenStats(*each) for each in zip(*pieces, strict=True)]


def differences() -> dict[str, list[float]]:
    """By method: batch of one, two processes, padding on the left."""
    usual = scores(DetectionConfig(device="cpu"))
    others = [
        scores(DetectionConfig(device="cpu", batch_tokens=1)),
        scores(DetectionConfig(device="cpu", processes=2)),
    ]
    with mock.patch.object(CausalLM, "score", padded_left):
        others.append(scores(DetectionConfig(device="cpu")))
    return {
        name: [float(np.abs(np.subtract(values, other[name])).max()) for other in others]
        for name, values in usual.items()
    }


if __name__ == "__main__":
    print(f"{'method':24}{'batch of 1':>12}{'2 processes':>12}{'left padding':>14}")
    for method, (one, two, left) in differences().items():
        print(f"{method:24}{one:>12.1e}{two:>12.1e}{left:>14.1e}")

"""The blind baseline of a cell: `detection.blind`, benchmark by benchmark.

Members are drawn at random from one pool, so nothing in a text tells whether it is a member. Where
this classifier does better than chance, the pool's two halves differ, and a detector's AUROC above
0.5 may show that difference rather than contamination (Das et al. 2024; Meeus et al. 2024).
"""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd

from core.seeds import derive
from detection.blind import NULLS, Blind, blind_baseline, obstacle

log = logging.getLogger(__name__)


def blind_of(examples: pd.DataFrame, folds: int, seed: int) -> Blind:
    """The rows in the order of `examples`; NaN where a benchmark has too few to learn from."""
    placed = np.full((len(examples), 1 + NULLS), np.nan)
    for benchmark in sorted(examples["benchmark"].unique()):
        rows = np.flatnonzero(examples["benchmark"] == benchmark)
        part = examples.iloc[rows]
        texts, member = part["text"].tolist(), part["member"].to_numpy(bool)
        problem = obstacle(texts, member)
        if problem:
            log.warning("%s: %s; it is left out.", benchmark, problem)
            continue
        own_seed = derive(seed, benchmark)
        placed[rows] = blind_baseline(texts, member, own_seed, folds).placed
    return Blind(placed)

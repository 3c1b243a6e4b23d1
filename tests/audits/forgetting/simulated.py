"""Simulated cells with scored steps, whose members' scores fade."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from contamination.audits.forgetting.inputs import ForgettingCell, ScoredStep
from contamination.core.artifacts import Artifact
from tests.audits.reference_attack.simulated import audited_cell

STEP_TOKENS, LAST_STEP, STEPS = 1_000, 60, (5, 8, 12, 20, 35, 60)
SEEN_BY = 5
"""Every member was seen last at one of the steps 1 to 5."""


@dataclass(frozen=True)
class Trained:
    """What the audit reads of a training."""

    config: dict
    exposures: pd.DataFrame
    metrics: pd.DataFrame
    artifact: Artifact = field(
        default_factory=lambda: Artifact(Path("m"), "model", "m", {"model": "start"}, {}, {})
    )


def forgetting_cell(seed, examples=120, half_life=20_000, level=2.0, rate=4e-3, decay=0.0):
    """A cell whose members' shift halves every `half_life` tokens after step 5."""
    rng = np.random.default_rng(seed)
    dose = np.where(np.arange(examples) % 3 == 0, rng.choice([1, 4], examples), 0)
    dose = rng.permutation(dose)
    phi = rng.normal(size=examples)
    cell = audited_cell(phi, dose, phi, seed)
    names = cell.cell.examples["example_id"]
    members = np.flatnonzero(dose > 0)
    exposures = pd.DataFrame([
        {"example_id": names[i], "step": step}
        for i in members for step in rng.integers(1, SEEN_BY + 1, size=dose[i])
    ])  # fmt: skip
    exposures.loc[len(exposures)] = {"example_id": names[members[0]], "step": SEEN_BY}
    training = {"learning_rate": rate, "weight_decay": 0.1}
    if decay:
        training |= {"tail_after_steps": SEEN_BY, "tail_weight_decay": decay}
    steps = np.arange(1, LAST_STEP + 1)
    metrics = pd.DataFrame({"step": steps, "tokens": steps * STEP_TOKENS, "learning_rate": rate})
    trained = Trained({"training": training, "model": {"path": None}}, exposures, metrics)
    scored = []
    for step in STEPS:
        left = 0.5 ** ((step - SEEN_BY) * STEP_TOKENS / half_life)
        scores = phi + level * left * (dose > 0)
        frame = pd.DataFrame({("loss", ""): scores}, index=names)
        scored.append(ScoredStep(step, Path(f"step-{step}"), frame, f"{seed}-{step}"))
    return ForgettingCell(cell, trained, scored, 1)

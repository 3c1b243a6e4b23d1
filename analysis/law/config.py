"""The configuration of `analyse law`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from contamination.analysis.config import CONFIDENCE
from contamination.core.config import POSITIVE, Range, Ranged, ranged_field, runtime_field

FACTOR_NAMES = ("occurrences", "learning_rate", "parameters", "recency")
FACTOR_RANGE = Range(
    lambda names: bool(names) and len({*names}) == len(names) and {*names} <= {*FACTOR_NAMES},
    f"choose one or more of {', '.join(FACTOR_NAMES)}, each once.",
)


@dataclass(frozen=True)
class LawStage(Ranged):
    """The configuration of one fit of the law."""

    name: str = "law"
    """The first part of the folder's name."""
    seed: int = 0
    runs: str = runtime_field("runs")
    reports: list[str] = runtime_field([], Range(bool, "give folders of reports (runs/report/…)."))
    """The folders of finished reports, whose cells are read. Swapped pairs of cells
    (injection.swap_members=false,true) measure a shift several times as exactly as single cells."""
    tables: bool = False
    """Read the reports' own tables, where their cells are no longer at hand. There is then no
    recency, κ and σ_within, and no test of calibration."""
    factors: list[str] = ranged_field([*FACTOR_NAMES], FACTOR_RANGE)
    """The factors of the law: occurrences (n), learning_rate (lr), parameters (N), and recency
    (tokens since the last copy, the forgetting g). Those that do not vary are left out."""
    held_out: list[dict[str, Any]] = field(default_factory=list)
    """Cells that are not fitted but predicted: a list of conditions on the columns of
    measurements.parquet, such as {model: tiny_llama_4m} or {learning_rate: 2e-3, occurrences:
    [4, 8]}."""
    predict: list[dict[str, Any]] = field(default_factory=list)
    """New settings to predict: each has a value for every factor that varied (`recency` is given as
    tokens_since), and may have a `method` and a `benchmark` (new: any)."""
    recency_tokens: float = ranged_field(10_000.0, POSITIVE)
    """T₀ of the forgetting g = (1 + T / T₀)^−φ, where T is the number of tokens since the last
    copy."""
    confidence: float = ranged_field(0.9, CONFIDENCE)
    """Coverage of the intervals."""

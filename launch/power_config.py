"""The configuration of `contamination plan power`."""

from __future__ import annotations

from dataclasses import dataclass, field

from contamination.core.config import (
    PROPER_FRACTION,
    Range,
    Ranged,
    at_least,
    between,
    one_of,
    ranged_field,
    register_schema,
    runtime_field,
)
from contamination.core.errors import ConfigError
from contamination.training.config import TrainingNodes

MEMBERS, COPIES, SEEDS, POWER, EFFECT = "members", "copies", "seeds", "power", "effect"
MOST_COPIES = 100_000
SHIFT = Range(lambda shift: 0 < shift <= 9, "give one above 0 and at most 9.")


@dataclass(frozen=True)
class PowerConfig(Ranged, node="plan"):
    """A design, and what to find of it (node `plan`)."""

    find: str = ranged_field(MEMBERS, one_of((MEMBERS, COPIES, SEEDS, POWER, EFFECT)))
    """What to find: members, copies or seeds (the fewest that reach the power), power (that of the
    design), or effect (the smallest that the design detects)."""
    members: int = ranged_field(100, at_least(2))
    """Members of each benchmark in each training."""
    nonmembers: int | None = ranged_field(None, at_least(2))
    """Non-members of each benchmark; null: as many as members."""
    copies: int = ranged_field(1, between(1, MOST_COPIES))
    """Copies of each member."""
    seeds: int = ranged_field(1, at_least(1))
    """Trainings whose members are drawn anew."""
    benchmarks: int = ranged_field(1, at_least(1))
    """Benchmarks over which the AUROC is averaged."""
    power: float = ranged_field(0.8, PROPER_FRACTION)
    """The wanted power: how often the test finds the members."""
    level: float = ranged_field(0.05, PROPER_FRACTION)
    """The level of the one-sided test: how often it finds members where nothing was inserted."""
    shift: float | None = ranged_field(None, SHIFT)
    """δ of the members' scores, in standard deviations of the non-members, instead of a fitted
    law."""
    learning_rate: float | None = ranged_field(
        None, Range(lambda rate: rate > 0, "give one above 0.")
    )
    """The peak learning rate, if the law varied it."""
    parameters: float | None = ranged_field(None, at_least(1))
    """The model's number of weights, if the law varied it; null: that of `model`."""
    tokens_since: float | None = ranged_field(None, at_least(0))
    """Tokens trained on after the last copy, if the law varied it; null: `tokens` / (copies + 1),
    the mean of copies anywhere in the corpus."""
    tokens: int = ranged_field(600_000, at_least(1))
    """Tokens of each training."""
    sequence_tokens: int = ranged_field(256, at_least(2))
    """Tokens of a sequence."""
    example_tokens: int = ranged_field(120, at_least(1))
    """Tokens of an example, for the time of scoring."""


@dataclass(frozen=True)
class PowerStage(TrainingNodes):
    """The configuration of `plan power`."""

    runs: str = runtime_field("runs")
    seed: int = 0
    fit: str | None = runtime_field(None)
    """The folder of a fitted law (runs/law/…), which `contamination analyse law` wrote."""
    report: str | None = runtime_field(None)
    """The folder of a finished report: the smallest effect that its design detects."""
    methods: list[str] = field(default_factory=list)
    """Methods of the law; []: all."""
    plan: PowerConfig = field(default_factory=PowerConfig)

    def __post_init__(self) -> None:
        sources = [name for name in ("fit", "report") if getattr(self, name) is not None]
        sources += ["plan.shift"] if self.plan.shift is not None else []
        if len(sources) != 1 and not (not sources and self.plan.find == EFFECT):
            raise ConfigError(
                f"fit is {self.fit!r}, report {self.report!r} and plan.shift {self.plan.shift!r}: "
                "give one of them, such as fit=runs/law/DIR, or none with plan.find=effect."
            )
        if self.plan.find == COPIES and self.fit is None:
            raise ConfigError(
                "plan.find is 'copies': only a law says what copies change. Give fit=runs/law/DIR, "
                "or find members or seeds."
            )


register_schema("plan", PowerConfig)

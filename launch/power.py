"""The planner: members, copies, trainings and GPU hours for a wanted power."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from contamination.core.errors import ConfigError, near_names
from contamination.launch.power_config import (
    COPIES,
    MEMBERS,
    MOST_COPIES,
    SEEDS,
    PowerConfig,
    PowerStage,
)
from contamination.training.config import TrainingStage

if TYPE_CHECKING:
    from contamination.analysis.law.fit import Law
    from contamination.analysis.law.power import Design

ALIKE = 0.1
"""Numbers of weights that differ by this share, as ways to count them do, are of one size."""


def planned_rows(stage: PowerStage) -> list[PlannedRow]:
    """Returns one row per method of the law, or the row of the shift.

    Raises:
        ConfigError: a value is missing, or the law says nothing about it.
        ArtifactError: the law can't be used.
    """
    return [_plan_row(stage, effect) for effect in _effects(stage)]


def design_of(plan: PowerConfig) -> Design:
    """Returns the design as configured."""
    from contamination.analysis.law.power import Design

    return Design(plan.members, plan.nonmembers or plan.members, plan.seeds, plan.benchmarks)


@dataclass(frozen=True)
class _Effect:
    """The shift of a method as a function of copies."""

    method: str
    growth: float
    law: Law | None
    stage: PowerStage

    def shifts(self, copies: int) -> tuple[Any, float, tuple[str, ...]]:
        """Returns draws of δ, its best guess, and the factors outside the fit's range."""
        import numpy as np

        if self.law is None:
            return np.array([self.stage.plan.shift]), float(self.stage.plan.shift or 0), ()
        from contamination.analysis.law.predict import predict

        settings = _settings(self.law, self.stage, copies)
        found = predict(self.law, settings, self.method, seed=self.stage.seed)
        return found.shifts.mean(axis=1), found.shift, found.outside


def _settings(law: Law, stage: PowerStage, copies: int) -> Mapping[str, float]:
    """Returns the value of each factor that varied in the law, and what was given of the others.

    Raises:
        ConfigError: it is not given, or `model` is of another size than that of the fit.
    """
    plan = stage.plan
    since = plan.tokens_since
    since = plan.tokens / (copies + 1) if since is None else since
    values = {
        "occurrences": float(copies),
        "learning_rate": plan.learning_rate,
        "parameters": plan.parameters,
        "recency": 1 + since / law.recency_tokens,
    }
    if "parameters" in law.factors and values["parameters"] is None:
        values["parameters"] = _model_parameters(stage)
    settings = {}
    for name in law.factors:
        value = values[name]
        if value is None:
            raise ConfigError(
                f"plan.{name} is null: the law depends on it. Give a value; the fit had "
                f"{law.factors[name][0]:g} to {law.factors[name][1]:g}."
            )
        settings[name] = float(value)
    return {**settings, **_unvaried_settings(law, stage, copies)}


def _unvaried_settings(law: Law, stage: PowerStage, copies: int) -> Mapping[str, float]:
    """Returns the values that were given of factors that are not in the law: it may refuse them.

    Raises:
        ConfigError: `model` is of another size than that of the fit.
    """
    plan, model = stage.plan, _model_parameters(stage)
    fitted = law.constant.get("parameters")
    if fitted and model and plan.parameters is None and abs(model / fitted - 1) > ALIKE:
        raise ConfigError(
            f"model has {model:,.0f} weights, and all cells of the fit had {fitted:,.0f}: the law "
            "says nothing about other sizes. Choose that model, or fit the law to reports that "
            "vary it."
        )
    since = plan.tokens_since
    settings = {
        "occurrences": None if law.constant.get("occurrences") is None else float(copies),
        "learning_rate": plan.learning_rate,
        "parameters": plan.parameters,
        "recency": None if since is None else 1 + since / law.recency_tokens,
    }
    return {name: v for name, v in settings.items() if name not in law.factors and v is not None}


def _model_parameters(stage: PowerStage) -> float | None:
    from contamination.launch.workload import ModelCost

    model = ModelCost.of(stage.model, stage.plan.sequence_tokens)
    return None if model is None else float(model.shape.parameters)


def _effects(stage: PowerStage) -> Iterator[_Effect]:
    if stage.fit is None:
        yield _Effect(f"δ = {stage.plan.shift:g}", 0.0, None, stage)
        return
    from contamination.analysis.law.stored_law import open_law

    law = open_law("fit", stage.fit)
    for method in stage.methods:
        if method not in law.methods:
            hint = near_names(method, law.methods)
            raise ConfigError(f"methods contains {method!r}: it is not in the law. {hint}")
    for method in stage.methods or law.methods:
        yield _Effect(method, law.growth[method], law, stage)


@dataclass(frozen=True)
class PlannedRow:
    """One row of the plan; None: not reachable, or not known. `growth` is the law's κ."""

    method: str
    growth: float
    copies: int | None
    members: int | None
    nonmembers: int | None
    seeds: int | None
    shift: float
    auroc: float
    power: float
    power_of_guess: float
    gpu_hours: float | None
    outside: str


def _plan_row(stage: PowerStage, effect: _Effect) -> PlannedRow:
    import numpy as np

    from contamination.analysis.law.detectability import auroc_of_shift, member_variance
    from contamination.analysis.law.power import (
        fewest,
        fewest_members,
        fewest_seeds,
        power_of_design,
    )

    plan, design = stage.plan, design_of(stage.plan)
    copies: int | None = plan.copies
    draws, shift, outside = effect.shifts(plan.copies)
    if plan.find == MEMBERS:
        ratio = (plan.nonmembers or plan.members) / plan.members
        fewest_number = fewest_members(draws, effect.growth, design, plan.level, plan.power, ratio)
        sized = max(2, round(ratio * fewest_number)) if fewest_number else design.nonmembers
        design = replace(design, members=fewest_number or design.members, nonmembers=sized)
    elif plan.find == SEEDS:
        fewest_number = fewest_seeds(draws, effect.growth, design, plan.level, plan.power)
        design = replace(design, seeds=fewest_number or design.seeds)
    elif plan.find == COPIES:

        def power_of(n: int) -> float:
            if n > MOST_COPIES:
                return 1.0
            return float(
                np.mean(power_of_design(effect.shifts(n)[0], effect.growth, design, plan.level))
            )

        fewest_number = fewest(power_of, plan.power)
        fewest_number = (
            None if fewest_number is None or fewest_number > MOST_COPIES else fewest_number
        )
        copies = fewest_number
        draws, shift, outside = effect.shifts(fewest_number or plan.copies)
    else:
        fewest_number = 0
    reached = fewest_number is not None
    return PlannedRow(
        effect.method,
        effect.growth,
        copies if reached or plan.find != COPIES else None,
        design.members if reached or plan.find != MEMBERS else None,
        design.nonmembers if reached or plan.find != MEMBERS else None,
        design.seeds if reached or plan.find != SEEDS else None,
        shift,
        auroc_of_shift(shift, 1.0, member_variance(shift, effect.growth)).item(),
        float(np.mean(power_of_design(draws, effect.growth, design, plan.level))),
        float(power_of_design(shift, effect.growth, design, plan.level)),
        _gpu_hours(stage, design) if reached else None,
        ", ".join(outside),
    )


def _gpu_hours(stage: PowerStage, design: Design) -> float | None:
    """Returns the GPU hours of all trainings and of scoring their examples; None: not known.

    The speed is that of `forecast.flops_per_second`: what an earlier training of such a model
    reached, or a share of training.peak_tflops.
    """
    from contamination.launch.forecast import flops_per_second
    from contamination.launch.workload import ModelCost, Workload, training_workload

    plan = stage.plan
    training = TrainingStage(
        model=stage.model, training=stage.training, deepspeed=stage.deepspeed, runs=stage.runs
    )
    model = ModelCost.of(stage.model, plan.sequence_tokens)
    speed = flops_per_second(training, model)
    sequences = max(1, plan.tokens // plan.sequence_tokens)
    trained = training_workload(training, sequences, plan.sequence_tokens, model)
    scored = (design.members + design.nonmembers) * design.benchmarks * plan.example_tokens
    scoring = Workload(scored, None if model is None else scored * model.flops / 3)
    seconds = [work.seconds(speed, 1) for work in (trained, scoring)]
    if any(time is None for time in seconds):
        return None
    return design.seeds * sum(time or 0.0 for time in seconds) / 3600

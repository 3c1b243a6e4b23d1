"""`contamination plan power`: members, copies, trainings and GPU hours for a wanted power."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

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
from contamination.core.errors import ConfigError, near_names
from contamination.training.config import TrainingNodes, TrainingStage

if TYPE_CHECKING:
    from contamination.analysis.law.fit import Law
    from contamination.analysis.law.power import Design
    from contamination.core.report.tables import Table

MEMBERS, COPIES, SEEDS, POWER, EFFECT = "members", "copies", "seeds", "power", "effect"
MOST_COPIES = 100_000
ALIKE = 0.1
"""Numbers of weights that differ by this share, as ways to count them do, are of one size."""
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


def print_power_plan(stage: PowerStage) -> None:
    """Prints the plan as a table, and how it was computed."""
    table = plan_table(stage)
    print(f"{table.title}\n\n{table.terminal_text()}\n\n{table.note}")


def plan_table(stage: PowerStage) -> Table:
    """Returns the plan: one row per method of the law, condition of the report, or shift.

    Raises:
        ConfigError: a value is missing, or the law says nothing about it.
        ArtifactError: the law or the report can't be used.
    """
    if stage.report is not None:
        return _table_of_report(stage, stage.report)
    if stage.plan.find == EFFECT:
        design = _design(stage.plan)
        return _effect_table(stage, [("this design", design)])
    rows = [_plan_row(stage, effect) for effect in _effects(stage)]
    return _plan_table(stage, rows)


def _design(plan: PowerConfig) -> Design:
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
    """One row of the plan; None: not reachable, or not known."""

    method: str
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

    plan, design = stage.plan, _design(stage.plan)
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


def _plan_table(stage: PowerStage, rows: Sequence[PlannedRow]) -> Table:
    import pandas as pd

    from contamination.core.report.tables import NO_VALUE, Table

    header = ["method", "copies", "members", "non-members", "seeds", "δ", "AUROC", "power",
              "power at δ", "GPU hours", "outside the fit"]  # fmt: skip
    lines = [
        [row.method, *(NO_VALUE if n is None else f"{n:,}" for n in
                       (row.copies, row.members, row.nonmembers, row.seeds)),
         f"{row.shift:.2f}", f"{row.auroc:.2f}", f"{row.power:.0%}", f"{row.power_of_guess:.0%}",
         NO_VALUE if row.gpu_hours is None else f"{row.gpu_hours:.3g}", row.outside or NO_VALUE]
        for row in rows
    ]  # fmt: skip
    plan = stage.plan
    title = (
        "The power of the design"
        if plan.find == POWER
        else f"The fewest {plan.find} for {plan.power:.0%} power"
    ) + f" at a level of {plan.level:.0%} (one-sided)"
    return Table("plan", title, header, lines, pd.DataFrame([vars(row) for row in rows]),
                 note=_note(stage, rows))  # fmt: skip


def _note(stage: PowerStage, rows: Sequence[PlannedRow]) -> str:
    plan = stage.plan
    sentences = [
        "Members and non-members are of each of plan.benchmarks benchmarks in each training."
    ]
    if stage.fit is not None:
        sentences.append(
            "power is the mean over the law's uncertainty; power at δ is that at the predicted δ."
        )
    too_long = [
        row.method
        for row in rows
        if row.members is not None
        and row.copies is not None
        and row.members * row.copies * plan.benchmarks * plan.example_tokens > plan.tokens
    ]
    if too_long:
        sentences.append(
            f"The copies of {', '.join(too_long)} have more than plan.tokens={plan.tokens:,} "
            f"(members × copies × benchmarks × plan.example_tokens={plan.example_tokens}): no such "
            "corpus can be made. Give more plan.tokens, or spread the members over more plan.seeds."
        )
    if any(row.gpu_hours is None for row in rows):
        sentences.append(
            "GPU hours need training.peak_tflops=989 (an H100's), or an earlier training of such a "
            "model under runs. A dash elsewhere means that no number suffices, up to 10 million "
            f"members or seeds and {MOST_COPIES:,} copies."
        )
    return " ".join(sentences)


def _table_of_report(stage: PowerStage, report: str) -> Table:
    """Returns the smallest effect that each condition and number of copies of a report detects."""
    from contamination.analysis.cells import CONTAMINATED
    from contamination.analysis.law.power import Design
    from contamination.analysis.report_folder import open_report
    from contamination.core.integrity import errors_naming_folders
    from contamination.core.statistics.estimates import ALL_BENCHMARKS

    with errors_naming_folders(report):
        pooled = open_report(report).pooled
        rows = pooled[(pooled["metric"] == "auroc") & (pooled["checkpoint"] == CONTAMINATED)]
        rows = rows[rows["benchmark"] != ALL_BENCHMARKS]
        columns = ["condition", "occurrences", "benchmark", "n_members", "n_nonmembers", "n_seeds"]
        rows = rows[columns].drop_duplicates(columns[:3])
        designs = []
        for (condition, copies), of_both in rows.groupby(columns[:2], sort=False):
            smallest = of_both["n_members"].min(), of_both["n_nonmembers"].min()
            seeds = of_both["n_seeds"].min()
            design = Design(int(smallest[0]), int(smallest[1]), int(seeds), len(of_both))
            designs.append((f"{condition}, {copies} copies", design))
    if not designs:
        raise ConfigError(f"report is {report}: it has no AUROC of a contaminated model.")
    return _effect_table(stage, designs)


def _effect_table(stage: PowerStage, designs: Sequence[tuple[str, Design]]) -> Table:
    import pandas as pd

    from contamination.analysis.law.detectability import auroc_of_shift
    from contamination.analysis.law.power import critical_auroc, smallest_shift
    from contamination.core.report.tables import NO_VALUE, Table

    plan, rows = stage.plan, []
    for name, design in designs:
        shift = smallest_shift(0.0, design, plan.level, plan.power)
        rows.append({
            "design": name, "members": design.members, "nonmembers": design.nonmembers,
            "benchmarks": design.benchmarks, "seeds": design.seeds, "shift": shift,
            "auroc": auroc_of_shift(shift).item(), "critical": critical_auroc(design, plan.level),
        })  # fmt: skip
    data = pd.DataFrame(rows)
    header = ["design", "members", "non-members", "benchmarks", "seeds", "smallest δ",
              "its AUROC", "rejects from"]  # fmt: skip
    lines = [
        [r.design, f"{r.members:,}", f"{r.nonmembers:,}", str(r.benchmarks), str(r.seeds),
         *(NO_VALUE if r.shift != r.shift else f"{n:.{digits}f}"
           for n, digits in ((r.shift, 2), (r.auroc, 3), (r.critical, 3)))]
        for r in data.itertuples(index=False)
    ]  # fmt: skip
    title = (
        f"The smallest effect with {plan.power:.0%} power at a level of {plan.level:.0%} "
        "(one-sided)"
    )
    note = "For normal scores with equal variances of members and non-members."
    if data["shift"].isna().any():
        note += " A dash: no δ up to 9 is detected with this power; give more members or seeds."
    return Table("effects", title, header, lines, data, note=note)


register_schema("plan", PowerConfig)

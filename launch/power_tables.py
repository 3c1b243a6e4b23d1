"""`contamination plan power`: the plan as a table, and the smallest effects of designs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contamination.core.errors import ConfigError
from contamination.core.terminal import counted
from contamination.launch.power import PlannedRow, design_of, planned_rows
from contamination.launch.power_config import EFFECT, MOST_COPIES, POWER, PowerStage

if TYPE_CHECKING:
    from contamination.analysis.law.power import Design
    from contamination.core.report.tables import Table


FEW_MEMBERS = 10
"""Below it a design's achieved power differs from the planned one (`perf.law cells`)."""


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
        return _effect_table(stage, [("this design", design_of(stage.plan))])
    return _plan_table(stage, planned_rows(stage))


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
        from contamination.analysis.law.fit import unidentified_growth

        if unclear := unidentified_growth({row.method: row.growth for row in rows}):
            sentences.append(
                f"The law's κ of {', '.join(unclear)} is at the bound of its fit: it is not "
                "identified, and power and AUROC may be wrong."
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
    if small_designs := [row.method for row in rows if _is_small(row, plan.benchmarks)]:
        sentences.append(
            f"With fewer than {FEW_MEMBERS} members ({', '.join(small_designs)}) the normal "
            "approximation of the test is rough. In 24 cells of a tiny LLaMA such designs had 5 "
            "points more power than planned at 50%, and about what was planned at 80% and 90%."
        )
    if any(row.gpu_hours is None for row in rows):
        sentences.append(
            "GPU hours need training.peak_tflops=989 (an H100's), or an earlier training of such a "
            "model under runs. A dash elsewhere means that no number suffices, up to 10 million "
            f"members or seeds and {MOST_COPIES:,} copies."
        )
    return " ".join(sentences)


def _is_small(row: PlannedRow, benchmarks: int) -> bool:
    return None not in (row.members, row.seeds) and (
        (row.members or 0) * (row.seeds or 0) * benchmarks < FEW_MEMBERS
    )


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
            designs.append((f"{condition}, {counted(copies, 'copy')}", design))
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

"""The report of inflation: effects in points and in nats, the null, chance and blind spots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from contamination.audits.inflation.detectability import CHOSEN, CONFIRMED
from contamination.audits.inflation.effects import DIRECT, EFFECTS, SPILLOVER, TOTAL
from contamination.audits.inflation.findings import InflationFindings
from contamination.audits.inflation.inputs import ACCURACY, MARGIN
from contamination.core.report.charts import INK, SERIES, InlineChart, page_figure
from contamination.core.report.document import ReportContent
from contamination.core.report.tables import NO_VALUE, Table
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.terminal import counted

POINTS = 100
UNITS = {ACCURACY: "accuracy, points", MARGIN: "margin, nats"}
SCALE = {ACCURACY: POINTS, MARGIN: 1}
ORDER = (TOTAL, DIRECT, SPILLOVER)
SHOWN = ["condition", "stage", "form", "occurrences", "benchmark"]
LIMITS = (
    "**How inflated another model's score is.** The effects are those of the cells' models, copies "
    "and texts. In arXiv 2501.18771 larger models are inflated more.",
    "That accuracy near chance is not inflated. A model that can't answer the questions has little "
    "accuracy to gain; read the margin.",
    "That an undetected condition can't be detected: other methods may see it. A condition that is "
    "not listed as inflated may be so by less than its interval shows.",
    "Intervals are for one number each. Of twenty effects of 0 one interval excludes 0 on average.",
)


def report(findings: InflationFindings, facts: Mapping[str, str]) -> ReportContent:
    """Returns the findings in sentences, tables and a chart."""
    tables = [effect_table(findings, measure) for measure in UNITS]
    tables += [clean_table(findings)]
    if len(findings.null):
        tables.append(null_table(findings))
    if len(findings.detectability):
        tables.append(detectability_table(findings))
    has_doses = findings.effects["occurrences"].nunique() > 1
    return ReportContent(
        title="Inflation of scores",
        conclusions=[*_conclusions(findings)],
        warnings=[*_warnings(findings)],
        tables=tables,
        charts=[dose_chart(findings, measure) for measure in UNITS] if has_doses else [],
        limits=LIMITS,
        facts={**facts, "confidence of intervals": f"{findings.confidence:.0%}"},
    )


def _interval(row: pd.Series | None, measure: str) -> str:
    """Returns an effect with its interval in its unit, or a dash."""
    if row is None or not np.isfinite(row["value"]):
        return NO_VALUE
    digits = 1 if measure == ACCURACY else 2
    value, low, high = (SCALE[measure] * row[name] + 0.0 for name in ("value", "low", "high"))
    if not np.isfinite(low):
        return f"{value:.{digits}f} (all equal)"
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _wide(data: pd.DataFrame, keys: list[str]) -> Iterator[tuple[tuple[object, ...], pd.DataFrame]]:
    for key, rows in data.groupby(keys, sort=False):
        yield (key if isinstance(key, tuple) else (key,)), rows.set_index("effect")


def _row(rows: pd.DataFrame, effect: str) -> pd.Series | None:
    return rows.loc[effect] if effect in rows.index else None


def _main_benchmark(data: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of each condition's mean over benchmarks, or of its only benchmark."""
    is_mean = data["benchmark"] == ALL_BENCHMARKS
    has_mean = data["condition"].isin(data.loc[is_mean, "condition"])
    return data[is_mean | ~has_mean]


def _conclusions(findings: InflationFindings) -> Iterator[str]:
    for measure, unit in UNITS.items():
        data = _main_benchmark(findings.effects[findings.effects["measure"] == measure])
        for key, rows in _wide(data, ["condition", "occurrences"]):
            total = _row(rows, TOTAL)
            if total is None:
                continue
            parts = [
                f"{name} {text}"
                for name in (DIRECT, SPILLOVER)
                if (text := _interval(_row(rows, name), measure)) != NO_VALUE
            ]
            yield (
                f"**{key[0]}, {counted(int(str(key[1])), 'copy')}: {_interval(total, measure)}** "
                f"({unit}; {', '.join(parts)})."
            )
    yield from _blind_spots(findings)


def _blind_spots(findings: InflationFindings) -> Iterator[str]:
    data = findings.detectability
    confirmed = data[data["part"] == CONFIRMED] if len(data) else data
    if confirmed.empty:
        return
    keys = ["condition", "occurrences", "benchmark", "measure"]
    candidates = data[(data["part"] == CHOSEN) & data["inflated"] & ~data["detected"]]
    both = candidates[keys].merge(confirmed, on=keys)
    blind = both[both["inflated"] & ~both["detected"]]
    yield (
        f"Of {len(confirmed)} combinations of condition, copies, benchmark and measure, "
        f"{len(candidates)} are inflated and undetected on the seed on which candidates are "
        f"chosen; {len(blind)} of them are both on the other seeds"
        + (": " + "; ".join(_name(row) for _, row in blind.iterrows()) if len(blind) else "")
        + "."
    )
    for measure, unit in UNITS.items():
        of_measure = confirmed[confirmed["measure"] == measure]
        undetected = of_measure[~of_measure["detected"]]
        bounded = undetected[np.isfinite(undetected["high"])]
        if len(bounded):
            most = bounded.loc[bounded["high"].idxmax()]
            yield (
                f"Where no method detects anything on the other seeds, the total effect is at most "
                f"{SCALE[measure] * most['high']:.2g} ({unit}; the highest of "
                f"{len(bounded)} upper ends: {_name(most)})."
            )
        if unbounded := len(undetected) - len(bounded):
            yield (
                f"Of {len(undetected)} undetected on the other seeds {unbounded} have no upper end "
                f"({unit}): all their effects are equal, which bounds nothing."
            )
        if undetected.empty:
            least = of_measure["d_prime_low"].min()
            yield (
                f"No condition is undetected on the other seeds ({unit}): the lowest lower end of "
                f"a best method's interval of d′ is {least:.2f}."
            )


def _name(row: pd.Series) -> str:
    dose = counted(int(row["occurrences"]), "copy")
    return f"{row['condition']}, {dose}, {row['benchmark']} ({row['measure']})"


def _warnings(findings: InflationFindings) -> Iterator[str]:
    lacking = findings.lacking_replicates
    if lacking:
        yield (
            f"No direct effect for {'; '.join(lacking)}: no seed has swapped replicates. Add "
            "injection.swap_members=false,true to the sweep."
        )
    single = {g.name for g in findings.groups if len(g.seeds) < 2}
    if single:
        yield (
            f"One seed only for {'; '.join(sorted(single))}: the intervals are over items, and do "
            "not show how models of other seeds differ."
        )
    for name, rows in findings.null.groupby("condition") if len(findings.null) else ():
        if rows["seeds"].max() == 1:
            yield (
                f"The null row of {name} has one pair of twins: its intervals are over items "
                "alone, and miss 0 in a quarter of the cases (docs/validation/inflation.md)."
            )
    if findings.null.empty:
        yield "There is only one clean twin, so there is no null row. Add seeds."
    clean = findings.clean
    near = clean[clean["at_chance"] & (clean["benchmark"] != ALL_BENCHMARKS)]
    if len(near):
        names = "; ".join(f"{row.benchmark} ({row.condition})" for row in near.itertuples())
        yield (
            f"Clean accuracy is near chance (its interval includes chance): {names}. Accuracy can "
            "hide inflation there; read the margin."
        )
    for row in findings.null.itertuples():
        if row.seeds > 1 and (row.low > 0 or row.high < 0):
            yield (
                f"Clean against clean is off 0: {row.effect}, {row.benchmark}, {row.measure} "
                f"({SCALE[str(row.measure)] * row.value:.2g}). One such interval in twenty is "
                "expected."
            )


def effect_table(findings: InflationFindings, measure: str) -> Table:
    """Returns the effects of one measure by condition, copies and benchmark."""
    data = findings.effects[findings.effects["measure"] == measure]
    lines = []
    for key, rows in _wide(data, SHOWN):
        condition, stage, form, dose, benchmark = map(str, key)
        lines.append([
            condition, stage, form, dose, benchmark,
            *(_interval(_row(rows, effect), measure) for effect in ORDER),
            str(int(rows["seeds"].max())), str(int(rows["items"].max())),
        ])  # fmt: skip
    note = (
        "Total: inserted items less the same items under the clean twin. Direct: inserted items "
        "less the same items under the swapped replicate, which left them out. Spillover: items "
        "that were left out less the same items under the clean twin; where members have several "
        "numbers of copies it is that of all of them. "
        + (
            "The margin is the right option's log-probability less the best wrong one's; of a free "
            "answer the log-probability of the right answer. "
            if measure == MARGIN
            else "Free answers are right if they match an accepted answer exactly. "
        )
        + f"Intervals: {findings.confidence:.0%}, clustered by items and by seeds."
    )
    header = ["condition", "stage", "form", "copies", "benchmark", *ORDER, "seeds", "items"]
    title = f"Inflation: {UNITS[measure]}"
    return Table(f"effects_{measure}", title, header, lines, data, note=note)


def clean_table(findings: InflationFindings) -> Table:
    """Returns the clean twins' accuracy and chance."""
    data = findings.clean
    lines = [
        [
            str(row["condition"]), str(row["benchmark"]), _interval(row, ACCURACY),
            "0 (free answers)" if row["free"] else f"{POINTS * row['chance']:.1f}",
            "yes" if row["at_chance"] else "no", str(row["seeds"]), str(row["items"]),
        ]
        for _, row in data.iterrows()
    ]  # fmt: skip
    note = "Chance: the mean of 1 / options. Near chance: the interval of the accuracy includes it."
    header = [
        "clean twins",
        "benchmark",
        "accuracy, points",
        "chance",
        "near chance",
        "seeds",
        "items",
    ]
    return Table("clean", "Accuracy of the clean twins", header, lines, data, note=note)


def null_table(findings: InflationFindings) -> Table:
    """Returns the effects between clean twins, which are 0 in truth."""
    data = findings.null
    lines = [
        [
            str(key[0]), str(key[1]), UNITS[str(key[2])],
            *(_interval(_row(rows, effect), str(key[2])) for effect in ORDER),
            str(int(rows["seeds"].max())),
        ]
        for key, rows in _wide(data, ["condition", "benchmark", "measure"])
    ]  # fmt: skip
    note = (
        "Clean twins of disjoint pairs of seeds: the first takes the place of the contaminated "
        "model, the second of its swapped replicate and of its clean twin."
    )
    header = ["clean twins", "benchmark", "measure", *ORDER, "pairs"]
    return Table("null", "Clean against clean", header, lines, data, note=note)


def detectability_table(findings: InflationFindings) -> Table:
    """Returns the total effect beside the best method's d′, by part."""
    data = findings.detectability
    lines = [
        [
            str(row["condition"]), str(row["occurrences"]), str(row["benchmark"]),
            UNITS[row["measure"]],
            f"{row['part']} {row['seeds']}", _interval(row, row["measure"]), str(row["method"]),
            _d_prime(row, "d_prime"), _d_prime(row, "twins_d_prime"),
            "yes" if row["inflated"] else "not shown", "yes" if row["detected"] else "no",
        ]
        for _, row in data.iterrows()
    ]  # fmt: skip
    note = (
        "d′ = √2 Φ⁻¹(AUROC) of members against non-members: of the method with the largest one, "
        "and of the loss against the clean twins of other seeds, which no auditor has. "
        "Inflated: the total effect's interval is above 0. Detected: some method's d′ has "
        "an interval above 0. "
        "Candidates are chosen on one seed and confirmed on the others."
    )
    header = ["condition", "copies", "benchmark", "measure", "seeds", "total", "best method", "d′",
              "d′ against twins", "inflated", "detected"]  # fmt: skip
    return Table("detectability", "Inflation and detectability", header, lines, data, note=note)


def _d_prime(row: pd.Series, name: str) -> str:
    if name not in row or not np.isfinite(row[name]):
        return NO_VALUE
    if row[f"{name}_low"] == row[f"{name}_high"]:
        return f"{row[name]:.2f} (all members above)"
    return f"{row[name]:.2f} [{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]"


def dose_chart(findings: InflationFindings, measure: str) -> InlineChart:
    """Returns the effects by copies, for the mean over benchmarks."""
    data = _main_benchmark(findings.effects[findings.effects["measure"] == measure])
    data = data[np.isfinite(data["value"]) & (data["occurrences"] > 0)]
    keys = ["learning_rate", "stage", "form"]
    # where another factor is swept too, its conditions have lines of their own
    is_double = data.duplicated([*keys, "effect", "occurrences"], keep=False)
    has_double = is_double.groupby([data[key] for key in keys]).transform("any").astype(bool)
    data = data.assign(line=data["condition"].where(has_double, ""))
    keys = [*keys, "line"]
    is_several = len(data[keys].drop_duplicates()) > 1
    with page_figure(8, 3.6) as (figure, axes):
        for number, (key, rows) in enumerate(data.groupby(keys, sort=False)):
            for effect, dash in zip(EFFECTS, ("-", ":", "--"), strict=True):
                line = rows[rows["effect"] == effect].sort_values("occurrences")
                ends = np.abs(line[["low", "high"]].to_numpy().T - line["value"].to_numpy())
                about = key[-1] or ", ".join(map(str, key[:-1])) if is_several else ""
                axes.errorbar(
                    line["occurrences"], SCALE[measure] * line["value"], SCALE[measure] * ends,
                    ls=dash, marker="o", ms=4, color=SERIES[number % len(SERIES)],
                    label=f"{effect} {about}".strip(),
                )  # fmt: skip
        axes.axhline(0, color=INK, lw=0.8)
        doses = sorted(data["occurrences"].unique())
        axes.set_xscale("log", base=2)
        axes.set_xticks(doses, [str(dose) for dose in doses])
        axes.set(xlabel="copies of a member", ylabel=UNITS[measure])
        figure.legend(loc="outside upper center", ncols=3)
        return InlineChart(
            f"doses-{measure}", f"Inflation by copies: {UNITS[measure]}",
            figure, f"Effects by copies, {UNITS[measure]}",
            "Mean over benchmarks. Direct effect and spillover add up to the total.",
        )  # fmt: skip

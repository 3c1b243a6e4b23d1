"""The report of forgetting: conclusions, charts and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os.path import commonprefix

import numpy as np
import pandas as pd

from contamination.audits.forgetting.curves import (
    CONFIDENCE,
    FEWEST_POINTS,
    all_members,
    first_rows,
    iter_mean_curves,
    mean_and_interval,
    undetectable_groups,
)
from contamination.audits.forgetting.tasks import CONDITION
from contamination.core.report.charts import (
    ACCENT,
    GREY,
    INK,
    MEMBER,
    SERIES,
    InlineChart,
    page_figure,
)
from contamination.core.report.document import ReportContent
from contamination.core.report.tables import NO_VALUE, Table, format_interval
from contamination.core.statistics.forgetting_curve import EXPONENTIAL, POWER

FEWEST_SEEDS = 3
LIMITS = (
    "What happens after the last scored model. A half-life longer than the tokens that were "
    "trained on after the exposure is an extrapolation of the curve.",
    "That a form is the true one. Exponential and power law are compared by fit and by prediction "
    "of the last step; other forms may fit better than both.",
    "What causes forgetting. The rate is compared between trainings that differ in learning rate, "
    "weight decay or corpus size; at other models, batches or texts it may depend on them "
    "differently.",
    "That nothing is left where d′ is near 0. Another method may still tell members apart.",
)


@dataclass(frozen=True)
class Findings:
    """What the audit found; each table has the columns that its maker documents.

    Attributes:
        method: the method named in advance.
        points: `curves.points_table`.
        means: `curves.means_table`.
        fits: `curves.fits_table`.
        half_lives: `curves.half_life_table` of `curves.detectable_fits`.
        effects: `effects.effects_table`.
        factors: `effects.factor_table`.
        tasks: `tasks.tasks_table`.
        warnings: reasons to trust the findings less.
        correlation: the largest between two factors; NaN if fewer than two vary.
        facts: what it is based on.
    """

    method: str
    points: pd.DataFrame
    means: pd.DataFrame
    fits: pd.DataFrame
    half_lives: pd.DataFrame
    effects: pd.DataFrame
    factors: pd.DataFrame
    tasks: pd.DataFrame
    warnings: tuple[str, ...] = ()
    correlation: float = float("nan")
    facts: Mapping[str, str] = field(default_factory=dict)


def report(findings: Findings) -> ReportContent:
    """Returns the findings in sentences, charts and tables."""
    tables = [
        half_lives_text(findings.half_lives),
        effects_text(findings.effects, findings.correlation),
        means_text(findings.means),
        tasks_text(findings.tasks),
    ]
    conditions = findings.means["condition"].unique()
    charts = [conditions_chart(findings)] if len(conditions) > 1 else []
    charts += [forgetting_chart(findings, str(condition)) for condition in conditions]
    return ReportContent(
        title="Forgetting",
        conclusions=[*_conclusions(findings)],
        warnings=findings.warnings,
        tables=[table for table in tables if table is not None and len(table.data)],
        charts=charts,
        limits=LIMITS,
        facts=findings.facts,
    )


def _conclusions(findings: Findings) -> Iterator[str]:
    yield from _without_half_life(findings)
    chosen = all_members(findings.half_lives)
    chosen = chosen[(chosen["method"] == findings.method) & chosen["chosen"]]
    for _, row in chosen.iterrows():
        yield (
            f"**{row['condition']}, {findings.method}.** The excess d′ falls to half in "
            f"{_tokens_interval(row)} after the first scored model ({row['seeds']} seeds; "
            f"{row['form']}, the form with the lower AIC)."
        )
    effects = findings.effects
    for _, row in effects.iterrows():
        if row["method"] == findings.method:
            clear = "" if row["p"] < 0.05 else ", not clearly different from 0"
            yield (
                f"**{row['change']}:** the rate of forgetting changes by {row['effect']:.2f} "
                f"[{row['effect_low']:.2f}, {row['effect_high']:.2f}] per million tokens{clear}."
            )
    yield from _against_weight_decay(findings)


def _without_half_life(findings: Findings) -> Iterator[str]:
    """Yields which conditions have no half-life, and why."""
    means = all_members(findings.means)
    means = means[means["method"] == findings.method]
    nothing = {*undetectable_groups(means)["condition"]}
    curves = all_members(findings.half_lives)
    fitted = {*curves[curves["method"] == findings.method]["condition"]}
    for _, row in first_rows(means).iterrows():
        condition = row["condition"]
        if condition in nothing:
            excess = format_interval(*row[["excess", "excess_low", "excess_high"]])
            yield (
                f"**{condition}, {findings.method}: nothing to forget.** The members are not "
                "detectable right after their last exposure: the excess d′ of the first scored "
                f"model is {excess}. There is no half-life."
            )
        elif condition not in fitted:
            later = (means["condition"] == condition) & (means["tokens_since"] > 0)
            models = int(later.sum())
            yield (
                f"**{condition}, {findings.method}: too few scored models for a half-life.** It "
                f"has {models}, and a curve needs {FEWEST_POINTS} from after the last exposure. "
                "Export the model more often (training.export_steps)."
            )


def _against_weight_decay(findings: Findings) -> Iterator[str]:
    """Yields whether forgetting was faster than the weight decay alone, by the seeds' interval."""
    points, means = (
        table[table["method"] == findings.method]
        for table in (all_members(findings.points), all_members(findings.means))
    )
    nothing = {*undetectable_groups(means)["condition"]}
    for condition, of_condition in points.groupby("condition", sort=False):
        if condition in nothing:
            continue
        by_seed = [rows.sort_values("step") for _, rows in of_condition.groupby("seed")]
        first, last = (
            np.array([rows.iloc[end][["excess", "share_left"]] for rows in by_seed], float)
            for end in (0, -1)
        )
        shares_by_decay = last[:, 1] / first[:, 1]
        difference, low, high = mean_and_interval(last[:, 0] - shares_by_decay * first[:, 0])
        if len(by_seed) < 2:
            compared, interval = "one seed, no interval", f"{difference:.2f}"
        else:
            compared = "not clearly faster or slower than weight decay alone"
            if high < 0 or low > 0:
                compared = f"{'faster' if high < 0 else 'slower'} than weight decay alone"
            interval = format_interval(difference, low, high)
        yield (
            f"**{condition}: {compared}.** The mean excess d′ of the first and the last scored "
            f"model is {first[:, 0].mean():.2f} and {last[:, 0].mean():.2f}; weight decay alone "
            f"would leave Π(1 − λη) = {shares_by_decay.mean():.2f} of it. Difference at the last "
            f"model: {interval}."
        )


def _tokens_interval(row: pd.Series) -> str:
    value, low, high = (row[f"half_life{end}"] for end in ("", "_low", "_high"))
    if np.isnan(low):
        return f"{_tokens(value)} tokens (one seed, no interval)"
    return f"{_tokens(value)} [{_tokens(low)}, {_tokens(high)}] tokens"


def _tokens(value: float) -> str:
    """Returns a number of tokens, such as 340k, or the word for none."""
    if not np.isfinite(value):
        return "never"
    if value >= 1e9:
        return f"{value:.1e}"
    return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value / 1e3:.0f}k"


def half_lives_text(data: pd.DataFrame) -> Table:
    """Returns the rates and half-lives of each condition, method and group of members."""
    lines = [
        [
            str(row["condition"]), str(row["method"]), str(row["occurrences"]), str(row["form"]),
            "yes" if row["chosen"] else "no", f"{row['level']:.2f}", _tokens_interval(row),
            f"{row['aic']:.1f}", f"{row['held_out_error']:.2f}",
        ]
        for _, row in data.iterrows()
    ]  # fmt: skip
    note = (
        "Half-life: tokens after the first scored model until the excess d′ is half as large; "
        "never: the rate (or an end of its interval) is not above 0. Intervals: "
        f"{CONFIDENCE:.0%}, Student's over the seeds' rates. AIC: the sum over seeds; the form "
        "with the lower one is chosen. Error: of the excess that a curve without the last scored "
        "model predicts for it, mean over seeds. Members whose first excess d′ is not clearly "
        "above 0 are left out: there is nothing to forget."
    )
    header = ["condition", "method", "occurrences", "form", "chosen", "first excess", "half-life",
              "AIC", "error"]  # fmt: skip
    return Table("half_lives", "Half-lives", header, lines, data, note=note)


def effects_text(data: pd.DataFrame, correlation: float) -> Table:
    """Returns the effects of the factors on the rate of forgetting."""
    lines = [
        [
            str(row["method"]), str(row["change"]),
            f"{row['effect']:.3f} [{row['effect_low']:.3f}, {row['effect_high']:.3f}]",
            f"{row['p']:.3f}", str(row["cells"]),
        ]
        for _, row in data.iterrows()
    ]  # fmt: skip
    independence = (
        "" if np.isnan(correlation) else
        f" The largest correlation between two factors is {correlation:.2f}."
    )  # fmt: skip
    note = (
        "Change of the exponential rate k, per million tokens: a k of 1 means that d′ falls to "
        "1/e in a million tokens. Least squares over the cells, with an intercept for each seed; "
        f"{CONFIDENCE:.0%} intervals.{independence}"
    )
    return Table("effects", "What the rate of forgetting depends on",
                 ["method", "change", "effect", "p", "cells"], lines, data, note=note)  # fmt: skip


def means_text(data: pd.DataFrame) -> Table:
    """Returns d′ of each condition and step, for all members in the text."""
    lines = [
        [
            str(row["condition"]), str(row["method"]), str(row["step"]),
            _tokens(row["tokens_since"]), f"{row['decay_since']:.3f}", f"{row['share_left']:.2f}",
            f"{row['auroc']:.3f}",
            f"{row['d_prime']:.2f}",
            f"{row['excess']:.2f} [{row['excess_low']:.2f}, {row['excess_high']:.2f}]",
        ]
        for _, row in all_members(data).iterrows()
    ]  # fmt: skip
    note = (
        "All members, means over seeds. Tokens since: the mean over members. Σλη and Π(1 − λη): "
        "since the members' last exposures. Excess: less the d′ of the model before the training "
        "on the same examples; intervals over examples and cells. The file means.csv has each "
        "number of occurrences as well."
    )
    header = ["condition", "method", "step", "tokens since", "Σλη", "Π(1 − λη)", "AUROC", "d′",
              "excess d′"]  # fmt: skip
    return Table("means", "d′ after the exposure", header, lines, data, note=note)


def tasks_text(data: pd.DataFrame) -> Table | None:
    """Returns accuracy and extraction by step, means over seeds; None if none was measured."""
    if data.empty:
        return None
    lines = []
    for key, rows in all_members(data).groupby(CONDITION, sort=False):
        gap = mean_and_interval((rows["members"] - rows["nonmembers"]).to_numpy())
        interval = NO_VALUE if np.isnan(gap[1]) else f"{gap[0]:.3f} [{gap[1]:.3f}, {gap[2]:.3f}]"
        lines.append([
            *map(str, key[:-1]), _tokens(rows["tokens_since"].mean()),
            f"{rows['members'].mean():.3f}", f"{rows['nonmembers'].mean():.3f}", interval,
        ])  # fmt: skip
    note = (
        "Accuracy: the share of questions answered rightly. Extraction: the share of examples "
        "whose last tokens are returned word for word. Recall: the share of these tokens that are "
        "returned before the first wrong one. Means over benchmarks and seeds; the difference has "
        f"Student's {CONFIDENCE:.0%} interval over the seeds."
    )
    header = ["condition", "step", "task", "tokens since", "members", "non-members", "difference"]
    return Table("tasks", "Accuracy and extraction after the exposure", header, lines, data,
                 note=note)  # fmt: skip


def conditions_chart(findings: Findings) -> InlineChart:
    """Returns d′ of all conditions against the tokens since the last exposure."""
    means = all_members(findings.means)
    means = means[means["method"] == findings.method]
    groups = dict([*means.groupby("condition", sort=False)])
    fields = [re.split("-(?=[A-Za-z])", str(condition)) for condition in groups]
    shared = "-".join(commonprefix(fields))
    with page_figure(8, 3.2 + 0.22 * len(groups)) as (figure, axes):
        styles = [(c, d) for d in ("-", "--", ":") for c in (*SERIES, MEMBER, GREY)]
        for (condition, rows), (colour, dash) in zip(groups.items(), styles, strict=False):
            axes.plot(rows["tokens_since"], rows["excess"], dash, color=colour, marker="o", ms=4,
                      label=str(condition).removeprefix(f"{shared}-"))  # fmt: skip
        axes.axhline(0, color=INK, lw=0.8)
        axes.set(xlabel="tokens since the last exposure", ylabel=f"excess d′, {findings.method}")
        axes.xaxis.set_major_formatter(lambda value, _: _tokens(value) if value else "0")
        figure.legend(loc="outside upper center", ncols=1)
        return InlineChart(
            "conditions", "Forgetting in all conditions",
            figure, "d′ of each condition against tokens since the last exposure",
            f"All members, mean over seeds{f', all of {shared}' if shared else ''}. Conditions "
            "that share a branching point have the same first point.",
        )  # fmt: skip


def forgetting_chart(findings: Findings, condition: str) -> InlineChart:
    """Returns d′ of one condition with both curves and what weight decay alone would leave."""
    means = all_members(findings.means)
    means = means[(means["condition"] == condition) & (means["method"] == findings.method)]
    curves = all_members(findings.half_lives)
    curves = curves[(curves["condition"] == condition) & (curves["method"] == findings.method)]
    styles = {EXPONENTIAL: (ACCENT, "-", "exponential"),
              POWER: (SERIES[1], "--", "power law (Chang et al. 2024)")}  # fmt: skip
    with page_figure(8, 3.6) as (figure, axes):
        tokens = np.linspace(means["tokens_since"].min(), means["tokens_since"].max(), 200)
        for row, curve in iter_mean_curves(curves):
            colour, dash, label = styles[row["form"]]
            axes.plot(tokens, curve.value(tokens), dash, color=colour, label=label)
        if undetectable_groups(means).empty:
            first = means.iloc[0]
            bound = first["excess"] * means["share_left"] / first["share_left"]
            axes.plot(means["tokens_since"], bound, ":", color=SERIES[2],
                      label="weight decay alone, Π(1 − λη) (Bordt et al. 2024)")  # fmt: skip
        ends = np.abs(means[["excess_low", "excess_high"]].to_numpy().T
                      - means["excess"].to_numpy())  # fmt: skip
        axes.errorbar(means["tokens_since"], means["excess"], ends, fmt="o", color=MEMBER, ms=5,
                      label="measured")  # fmt: skip
        axes.axhline(0, color=INK, lw=0.8)
        axes.set(xlabel="tokens since the last exposure", ylabel=f"excess d′, {findings.method}")
        axes.xaxis.set_major_formatter(lambda value, _: _tokens(value) if value else "0")
        figure.legend(loc="outside upper center", ncols=2)
        name = "".join(c if c.isalnum() else "-" for c in condition.lower())
        return InlineChart(
            f"forgetting-{name}", f"Forgetting: {condition}",
            figure, f"d′ against tokens since the last exposure, {condition}",
            f"All members, mean over seeds, {CONFIDENCE:.0%} intervals over examples and cells. "
            "Curves: mean of the seeds' fits.",
        )  # fmt: skip

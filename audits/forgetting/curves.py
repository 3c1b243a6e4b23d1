"""d′ at each scored step, curves of forgetting for each seed, and half-lives with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student

from contamination.analysis.cells import CLEAN
from contamination.analysis.statistics.groups import ANY
from contamination.audits.forgetting.inputs import ForgettingCell, groups_of
from contamination.audits.reference_attack.strength import MeanOverCells, d_prime, mean_auroc
from contamination.core.errors import ConfigError
from contamination.core.statistics.forgetting_curve import (
    FORMS,
    ForgettingCurve,
    fit_forgetting,
    half_life,
)

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
CONFIDENCE = 0.95
GROUP = ["condition", "method", "occurrences"]
"""The columns of what a curve is about."""
HALF_LIFE_COLUMNS = [
    *GROUP, "form", "seeds", "anchor", "level", "rate", "rate_low", "rate_high",
    "half_life", "half_life_low", "half_life_high", "aic", "held_out_error",
]  # fmt: skip
"""The columns of `half_life_table`, without `chosen`."""
FEWEST_POINTS = 4
"""The fewest scored models of a curve: three to fit it without the last one, which it predicts."""


def points_table(cells: Sequence[ForgettingCell], methods: Sequence[str]) -> pd.DataFrame:
    """Returns AUROC and d′ of each cell, scored step, method and group of members.

    The excess is d′ less that of the model before the training on the same examples, which differs
    from 0 by the draw of the members alone; it is what can be forgotten.

    Columns: condition, seed, step, method, occurrences, the columns of `ForgettingCell.since`,
    auroc, d_prime, excess and excess_error (over examples alone).
    """
    rows = []
    for cell in cells:
        for occurrences, group in groups_of(cell):
            for scored in cell.steps:
                since = cell.since(scored.step, group)
                for method in methods:
                    auroc, excess = _auroc_and_excess([cell], [group], scored.step, method)
                    rows.append({
                        "condition": cell.cell.cell.condition, "seed": cell.cell.cell.seed,
                        "step": scored.step, "method": method, "occurrences": occurrences, **since,
                        "auroc": auroc.value, "d_prime": d_prime(auroc).value,
                        "excess": excess.value, "excess_error": excess.error,
                    })  # fmt: skip
    return pd.DataFrame(rows)


def means_table(cells: Sequence[ForgettingCell], methods: Sequence[str]) -> pd.DataFrame:
    """Returns d′ and its excess in each condition and step over its seeds, with intervals.

    The intervals are over examples and cells. Columns: condition, step, method, occurrences,
    seeds, tokens_since, decay_since, share_left, auroc, d_prime, excess, excess_low, excess_high.

    Raises:
        ConfigError: cells of a condition have different pools of examples, or scored steps.
    """
    rows = []
    for condition, of_condition in by_condition(cells).items():
        _check_alike(of_condition)
        for occurrences in [name for name, _ in groups_of(of_condition[0])]:
            by_cell = [(cell, dict(groups_of(cell)).get(occurrences)) for cell in of_condition]
            measured = [cell for cell, group in by_cell if group is not None]
            groups = [group for _, group in by_cell if group is not None]
            for step in [scored.step for scored in of_condition[0].steps]:
                sinces = [c.since(step, group) for c, group in zip(measured, groups, strict=True)]
                since = pd.DataFrame(sinces).mean()
                for method in methods:
                    auroc, excess = _auroc_and_excess(measured, groups, step, method)
                    low, high = excess.interval(CONFIDENCE)
                    rows.append({
                        "condition": condition, "step": step, "method": method,
                        "occurrences": occurrences, "seeds": len(measured), **since.to_dict(),
                        "auroc": auroc.value, "d_prime": d_prime(auroc).value,
                        "excess": excess.value, "excess_low": low, "excess_high": high,
                    })  # fmt: skip
    return pd.DataFrame(rows)


def by_condition(cells: Sequence[ForgettingCell]) -> dict[str, list[ForgettingCell]]:
    """Returns the cells of each condition, which differ in their seeds."""
    conditions: dict[str, list[ForgettingCell]] = {}
    for cell in cells:
        conditions.setdefault(cell.cell.cell.condition, []).append(cell)
    return conditions


def fits_table(points: pd.DataFrame) -> pd.DataFrame:
    """Returns a curve of each form for each seed, method and group of members.

    A curve is fitted to the excess at all steps, and again without the last one, which it then
    predicts. Steps with no tokens since the exposure are left out, and so is a group with fewer
    than `FEWEST_POINTS` others.
    Columns: those of `GROUP`, seed, form, anchor, level, rate, half_life, aic, held_out_error,
    at_limit.
    """
    rows = []
    for key, of_seed in points.groupby([*GROUP, "seed"], sort=False):
        used = of_seed[of_seed["tokens_since"] > 0].sort_values("tokens_since")
        if len(used) < FEWEST_POINTS:
            continue
        tokens, values = used["tokens_since"].to_numpy(), used["excess"].to_numpy()
        for form in FORMS:
            curve = fit_forgetting(form, tokens, values)
            earlier = fit_forgetting(form, tokens[:-1], values[:-1])
            error = float(abs(earlier.value(tokens[-1]) - values[-1]))
            rows.append({
                **dict(zip([*GROUP, "seed"], key, strict=True)), "form": form,
                "anchor": curve.anchor, "level": curve.level, "rate": curve.rate,
                "half_life": curve.half_life, "aic": curve.aic, "held_out_error": error,
                "at_limit": curve.at_limit,
            })  # fmt: skip
    columns = [*GROUP, "seed", "form", "anchor", "level", "rate", "half_life", "aic"]
    return pd.DataFrame(rows, columns=[*columns, "held_out_error", "at_limit"])


def first_rows(means: pd.DataFrame) -> pd.DataFrame:
    """Returns the row of the first scored model of each group, of the columns of `means_table`."""
    return means.sort_values("step", kind="stable").drop_duplicates(GROUP).sort_index()


def undetectable_groups(means: pd.DataFrame) -> pd.DataFrame:
    """Returns the first rows of the groups that are not detectable right after their exposure.

    The interval of their excess d′ then includes 0, chance, or lies below it: there is nothing that
    could be forgotten, and a half-life would be that of noise.
    """
    first = first_rows(means)
    return first[~(first["excess_low"] > 0)]


def detectable_fits(fits: pd.DataFrame, means: pd.DataFrame) -> pd.DataFrame:
    """Returns the fits of the groups that are not in `undetectable_groups`."""
    nothing = pd.MultiIndex.from_frame(undetectable_groups(means)[GROUP])
    return fits[~pd.MultiIndex.from_frame(fits[GROUP]).isin(nothing)]


def limit_warnings(fits: pd.DataFrame) -> tuple[str, ...]:
    """Returns a warning if curves have the largest rate that a fit tries (`at_limit`)."""
    limited = fits[fits["at_limit"].astype(bool)]
    if limited.empty:
        return ()
    methods = ", ".join(sorted({*limited["method"]}))
    return (
        f"{len(limited)} of {len(fits)} curves have the largest rate that a fit tries ({methods}): "
        "their points jump, as those of an effect of 0 do, and half-lives that rest on them mean "
        "nothing (fits.csv, at_limit). Score more models close to the exposure, or give more "
        "members.",
    )


def half_life_table(fits: pd.DataFrame) -> pd.DataFrame:
    """Returns rates and half-lives over the seeds, one row per group of members and form.

    The interval is Student's over the seeds' rates, each from its own curve, so it covers what
    differs between seeds: members, their places, and the noise of their scores. A half-life has
    the interval of its rate, and no end where that includes 0.

    Returns:
        Columns: those of `GROUP`, form, seeds, anchor, level, rate, rate_low, rate_high, half_life,
        half_life_low, half_life_high, aic (the sum over seeds), held_out_error (the mean), chosen
        (whether the form has the lower aic).
    """
    rows = []
    for key, of_form in fits.groupby([*GROUP, "form"], sort=False):
        rate, low, high = mean_and_interval(of_form["rate"].to_numpy())
        form, anchor = str(key[-1]), float(of_form["anchor"].mean())
        ends = {"": rate, "_low": high, "_high": low}
        rows.append({
            **dict(zip([*GROUP, "form"], key, strict=True)), "seeds": len(of_form),
            "anchor": anchor, "level": of_form["level"].mean(),
            "rate": rate, "rate_low": low, "rate_high": high,
            **{f"half_life{end}": _half_life_or_nan(form, r, anchor) for end, r in ends.items()},
            "aic": of_form["aic"].sum(), "held_out_error": of_form["held_out_error"].mean(),
        })  # fmt: skip
    table = pd.DataFrame(rows, columns=HALF_LIFE_COLUMNS)
    lowest = table.groupby(GROUP, sort=False)["aic"].transform("min")
    return table.assign(chosen=table["aic"] == lowest)


def mean_and_interval(values: Floats) -> tuple[float, float, float]:
    """Returns the mean of one value per seed and Student's interval; NaN ends for one value."""
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return mean, float("nan"), float("nan")
    quantile = float(student.ppf((1 + CONFIDENCE) / 2, count - 1))
    margin = quantile * float(np.std(values, ddof=1)) / np.sqrt(count)
    return mean, mean - margin, mean + margin


def _half_life_or_nan(form: str, rate: float, anchor: float) -> float:
    return half_life(form, rate, anchor) if np.isfinite(rate) else float("nan")


def iter_mean_curves(half_lives: pd.DataFrame) -> Iterator[tuple[pd.Series, ForgettingCurve]]:
    """Yields each row of `half_life_table` with its curve."""
    for _, row in half_lives.iterrows():
        curve = ForgettingCurve(row["form"], row["anchor"], row["level"], row["rate"])
        yield row, curve


def all_members(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows about all members, however often they were inserted."""
    return table[table["occurrences"] == ANY]


def _auroc_and_excess(
    cells: Sequence[ForgettingCell], groups: Sequence[Flags], step: int, method: str
) -> tuple[MeanOverCells, MeanOverCells]:
    """Returns AUROC, and d′ less that of the clean model on the same examples."""
    columns = [_column(cell, method) for cell in cells]
    tables = [next(s.scores for s in cell.steps if s.step == step) for cell in cells]
    inside = np.stack(groups)
    outside = np.stack([~cell.cell.cell.examples["member"].to_numpy(bool) for cell in cells])
    benchmarks = cells[0].cell.cell.examples["benchmark"].to_numpy(str)
    aurocs = [
        mean_auroc(
            np.stack([t[c].to_numpy(np.float64) for t, c in zip(by_cell, columns, strict=True)]),
            *(inside, outside, benchmarks),
        )
        for by_cell in (tables, [cell.cell.cell.scores[CLEAN] for cell in cells])
    ]
    return aurocs[0], d_prime(aurocs[0]) - d_prime(aurocs[1])


def _column(cell: ForgettingCell, method: str) -> tuple[str, str]:
    """Returns the column of a method's default variant, or of a method with its variant."""
    keys = [*cell.steps[0].scores.columns]
    names = {f"{name} {variant}".strip(): (str(name), str(variant)) for name, variant in keys}
    if method in names and names[method] in cell.cell.cell.scores[CLEAN].columns:
        return names[method]
    chosen = cell.cell.cell.defaults
    defaults = [key for key in names.values() if key[0] == method and key in chosen]
    if len(defaults) != 1:
        raise ConfigError(
            f"audit.methods has {method!r}: cell {cell.cell.name} has no such scores, only "
            f"{', '.join(names)}, or the model before the training was not scored by it. Choose "
            "another method, or score both models by this one."
        )
    return defaults[0]


def _check_alike(cells: Sequence[ForgettingCell]) -> None:
    """Raises a ConfigError unless the cells have the same examples and scored steps."""
    columns, first = ["example_id", "text"], cells[0]
    for cell in cells[1:]:
        same = cell.cell.cell.examples[columns].equals(first.cell.cell.examples[columns])
        steps = [[scored.step for scored in c.steps] for c in (first, cell)]
        if not same or steps[0] != steps[1]:
            raise ConfigError(
                f"audit.cells: {cell.cell.name} and {first.cell.name} have different "
                f"{'scored steps after their last exposures' if same else 'examples'}, so they "
                "are no replicates. Give cells that share injection.pool_seed and "
                "training.export_steps."
            )

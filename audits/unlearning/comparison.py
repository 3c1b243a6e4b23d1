"""Computes the numbers of the audit's tables, for members and for non-members of each model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.audits.unlearning.audit_units import AuditUnits
from contamination.audits.unlearning.forget_ratio import ForgetRatio, ScreenResult, forget_ratio
from contamination.audits.unlearning.inputs import AuditedModels
from contamination.audits.unlearning.quantities import Quantity
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import Estimate, confidence_interval
from contamination.core.statistics.samples import Mask, estimate_difference
from contamination.core.statistics.significance import holm_correction
from contamination.detection.evaluation import CONFIDENCE

Indices = NDArray[np.int64]
SWAPS = 999
"""The number of random permutations for a p-value."""
MAX_SIGNS = 2**20
"""The maximum number of signs in memory at once."""


def ks_distance(scores: Scores, other_scores: Scores) -> float:
    """Returns the Kolmogorov–Smirnov statistic of two samples of equal size, from 0 to 1.

    This is the largest difference between their empirical distribution functions.
    """
    return float(
        _max_differences_by_swap(
            *_distribution_steps(scores, other_scores), np.ones((1, len(scores)))
        )[0]
    )


def swap_p_value(scores: Scores, other_scores: Scores, text_ids: Sequence[str], seed: int) -> float:
    """Returns the permutation p-value of the `ks_distance`, (1 + count) / (1 + SWAPS).

    Args:
        scores: a model's scores.
        other_scores: another model's scores of the same units.
        text_ids: the text of each unit; all units of a text are swapped together.
        seed: the seed of the swaps.
    """
    _, text_index = np.unique(np.asarray(text_ids, str), return_inverse=True)
    rng = np.random.default_rng(derive_seed(seed, "swaps"))
    steps = _distribution_steps(scores, other_scores)
    observed, swaps_as_far = ks_distance(scores, other_scores), 0
    swaps_per_batch = max(1, MAX_SIGNS // (2 * len(scores)))
    for start in range(0, SWAPS, swaps_per_batch):
        shape = min(swaps_per_batch, SWAPS - start), int(text_index.max()) + 1
        signs = rng.choice([-1.0, 1.0], shape)[:, text_index]
        swaps_as_far += int((_max_differences_by_swap(*steps, signs) >= observed - 1e-12).sum())
    return (1 + swaps_as_far) / (1 + SWAPS)


def _distribution_steps(scores: Scores, other_scores: Scores) -> tuple[Indices, Scores, Indices]:
    """Returns the steps of the difference of both distribution functions, by ascending score.

    Returns:
        The unit of each step, its height, and the indices of the last step at each score.
    """
    values = np.concatenate([scores, other_scores])
    order = np.argsort(values, kind="stable")
    heights = np.where(order < len(scores), 1.0, -1.0) / len(scores)
    is_last = np.append(np.diff(values[order]) > 0, True)
    return (order % len(scores)).astype(np.int64), heights, np.flatnonzero(is_last)


def _max_differences_by_swap(
    units: Indices, heights: Scores, last: Indices, signs: Scores
) -> Scores:
    """Returns the distance for each row of signs (S × U); −1 swaps a unit's two scores."""
    differences = np.cumsum(signs[:, units] * heights, axis=1)
    largest: Scores = np.abs(differences[:, last]).max(axis=1)
    return largest


Rows = list[dict[str, Any]]


def estimate_columns(column: str, estimate: Estimate | None) -> dict[str, float]:
    """Returns the value and the ends of its 95% interval as three columns; NaN if missing.

    The mean of a single text has no interval, because all its draws are equal.
    """
    empty = dict.fromkeys((column, f"{column}_low", f"{column}_high"), np.nan)
    if estimate is None:
        return empty
    if estimate.trials is None and estimate.n_members + estimate.n_nonmembers < 2:
        return empty | {column: estimate.value}
    low, high = confidence_interval(estimate, CONFIDENCE)
    return {column: estimate.value, f"{column}_low": low, f"{column}_high": high}


def membership_table(models: AuditedModels, scores: Sequence[Quantity], seed: int) -> pd.DataFrame:
    """Returns how well each model's scores separate members from non-members, by method.

    With a clean twin, each other model also has the distance of its members' scores from the twin's
    (`ks_distance`), with its p-value and Holm's correction over the table.
    """
    clean = models.clean.name if models.clean else None
    rows: Rows = []
    for score in scores:
        members, nonmembers = score.units.sides[True], score.units.sides[False]
        for model in models:
            model_scores = score.values[model.name]
            row = {
                "model": model.name,
                "method": score.name,
                "members": float(model_scores[members].mean()),
                "non_members": float(model_scores[nonmembers].mean()),
                **estimate_columns("auroc", score.units.auroc(model_scores)),
            }
            if clean not in (None, model.name):
                text_ids = score.units.table.loc[members, "text_id"].tolist()
                model_and_clean_scores = model_scores[members], score.values[str(clean)][members]
                row |= {
                    "distance": ks_distance(*model_and_clean_scores),
                    "p": swap_p_value(*model_and_clean_scores, text_ids, seed),
                }
            rows.append(row)
    table = pd.DataFrame(rows)
    if clean is not None:
        has_p_value = table["p"].notna()
        table.loc[has_p_value, "p_holm"] = holm_correction(table.loc[has_p_value, "p"].to_numpy())
    return table


def forget_ratio_table(models: AuditedModels, quantities: Iterable[Quantity]) -> pd.DataFrame:
    """Returns the forget ratio of each unlearned model, one row per quantity."""
    return pd.DataFrame([
        row
        for quantity in quantities
        for model in models.unlearned
        for row in _forget_ratio_rows(models, quantity, model.name)
    ])  # fmt: skip


def _forget_ratio_rows(
    models: AuditedModels, quantity: Quantity, unlearned_name: str
) -> Iterator[dict[str, Any]]:
    assert models.clean is not None
    values_of_models = [
        quantity.values[m] for m in (models.original.name, unlearned_name, models.clean.name)
    ]
    units, method = quantity.units, quantity.name if quantity.is_score else ""
    identity_columns = {"unlearned": unlearned_name, "quantity": quantity.name, "method": method}
    if not units.sides[True].any():
        return
    members = [units.label_mean(model_values, True) for model_values in values_of_models]
    ratio = forget_ratio(members, units.count_texts(with_controls=False))
    row = {**identity_columns, **_model_columns("", members), **_ratio_columns("share", ratio)}
    if units.has_both_labels:
        nonmembers = [units.label_mean(model_values, False) for model_values in values_of_models]
        differences = [*map(estimate_difference, members, nonmembers)]
        beyond = forget_ratio(differences, units.count_texts(with_controls=True))
        row |= _model_columns("non_members_", nonmembers) | _ratio_columns("beyond", beyond)
    yield row
    if quantity.is_score and units.has_both_labels:
        aurocs = [units.auroc(model_values) for model_values in values_of_models]
        ratio = forget_ratio(aurocs, units.count_texts(with_controls=True))
        identity_columns["quantity"] = f"AUROC of {quantity.name}"
        yield {**identity_columns, **_model_columns("", aurocs), **_ratio_columns("share", ratio)}


def _model_columns(prefix: str, estimates: Sequence[Estimate]) -> dict[str, Any]:
    model_names = ("original", "after", "clean")
    return {
        f"{prefix}{model_name}": estimate.value
        for model_name, estimate in zip(model_names, estimates, strict=True)
    }


def _ratio_columns(column: str, ratio: ForgetRatio) -> dict[str, Any]:
    return {
        column: ratio.value,
        f"{column}_low": ratio.low,
        f"{column}_high": ratio.high,
        f"{column}_why": ratio.reason,
    }


def screen_table(
    screen_by_model: Mapping[str, ScreenResult], screened_score: Quantity, original_name: str
) -> pd.DataFrame:
    """Returns the result of the ratio screen, one row per unlearned model.

    Args:
        screen_by_model: the screens, by the model's name.
        screened_score: the scores that the screen compares.
        original_name: the name of the original model.
    """
    rows: Rows = []
    for unlearned_name, screen in screen_by_model.items():
        row: dict[str, Any] = {"unlearned": unlearned_name, "chunks": len(screen.suspicious)}
        row["suspicious"] = int(screen.suspicious.sum())
        for rate_name, estimate in screen.iter_named_rates():
            row |= estimate_columns(rate_name, estimate)
        row["known"] = screen.known
        if screened_score.units.has_both_labels:
            falls = screened_score.values[original_name] - screened_score.values[unlearned_name]
            row |= estimate_columns("auroc_of_the_fall", screened_score.units.auroc(falls))
        rows.append(row)
    return pd.DataFrame(rows).astype({"known": "Int64"})


def group_mean_table(
    models: AuditedModels,
    quantities: Iterable[Quantity],
    suspicious_by_model: Mapping[str, set[str]],
) -> pd.DataFrame:
    """Returns each quantity's mean by model, for members and non-members, suspicious or not.

    Args:
        models: the audited models.
        quantities: the quantities.
        suspicious_by_model: the units that the screen finds, by unlearned model.
    """
    rows: Rows = []
    for quantity in quantities:
        unit_ids = quantity.units.table["unit"]
        for model in models:
            is_suspicious = (
                unit_ids.isin(suspicious_by_model[model.name]).to_numpy()
                if model.name in suspicious_by_model
                else None
            )
            for group_name, mask in _group_masks(quantity.units, is_suspicious):
                mean = quantity.units.mean_in_mask(quantity.values[model.name], mask, group_name)
                row = {"quantity": quantity.name, "model": model.name, "group": group_name}
                rows.append({**row, "units": int(mask.sum()), **estimate_columns("mean", mean)})
    return pd.DataFrame(rows)


def _group_masks(units: AuditUnits, suspicious: Mask | None) -> Iterator[tuple[str, Mask]]:
    """Yields the groups with their names: members and non-members, then each by the screen."""
    mask_by_label = {"members": units.sides[True], "non-members": units.sides[False]}
    if not units.has_both_labels:
        mask_by_label = {"texts": np.ones(len(units.table), bool)}
    yield from mask_by_label.items()
    if suspicious is not None:
        for label, mask in mask_by_label.items():
            yield f"{label}, suspicious", mask & suspicious
            yield f"{label}, not", mask & ~suspicious


def utility_table(models: AuditedModels, losses: Quantity) -> pd.DataFrame:
    """Returns each model's loss, and its change from the original's on the same texts."""
    all_units = np.ones(len(losses.units.table), bool)
    loss_by_model = {
        model.name: losses.units.mean_in_mask(losses.values[model.name], all_units, "all")
        for model in models
    }
    original = loss_by_model[models.original.name]
    return pd.DataFrame([
        {
            "model": model_name,
            **estimate_columns("loss", loss),
            **estimate_columns("change", estimate_difference(loss, original)),
        }
        for model_name, loss in loss_by_model.items() if loss is not None and original is not None
    ])  # fmt: skip

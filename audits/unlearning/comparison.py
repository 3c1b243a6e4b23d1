"""The audit's tables as rows of numbers: every model's members beside its non-members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.audits.unlearning.estimates import Mask, Units, minus
from contamination.audits.unlearning.forget_ratio import Screened, Travelled, moved, travelled
from contamination.audits.unlearning.inputs import Models
from contamination.audits.unlearning.quantities import Quantity
from contamination.core.seeds import derive
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import Estimate, interval
from contamination.core.statistics.significance import holm
from contamination.detection.evaluation import CONFIDENCE

Places = NDArray[np.int64]
SWAPS = 999
AT_ONCE = 2**20  # of numbers held in memory


def distance(one: Scores, other: Scores) -> float:
    """The largest difference between the shares at most as high (0 to 1)."""
    return float(_largest(*_steps(one, other), np.ones((1, len(one))))[0])


def swap_p_value(one: Scores, other: Scores, texts: Sequence[str], seed: int) -> float:
    """The share of swaps that are as far apart, (1 + count) / (1 + swaps).

    Args:
        one: a model's scores.
        other: the other's, of the same units.
        texts: which text each unit is of; all units of one are swapped together.
        seed: of the swaps.
    """
    _, text = np.unique(np.asarray(texts, str), return_inverse=True)
    rng, steps = np.random.default_rng(derive(seed, "swaps")), _steps(one, other)
    own, further, most = distance(one, other), 0, max(1, AT_ONCE // (2 * len(one)))
    for start in range(0, SWAPS, most):
        shape = min(most, SWAPS - start), int(text.max()) + 1
        signs = rng.choice([-1.0, 1.0], shape)[:, text]
        further += int((_largest(*steps, signs) >= own - 1e-12).sum())
    return (1 + further) / (1 + SWAPS)


def _steps(one: Scores, other: Scores) -> tuple[Places, Scores, Places]:
    """In the order of all scores: the unit's place and sign, and where a score is the last."""
    values = np.concatenate([one, other])
    order = np.argsort(values, kind="stable")
    sign = np.where(order < len(one), 1.0, -1.0) / len(one)
    last = np.append(np.diff(values[order]) > 0, True)
    return (order % len(one)).astype(np.int64), sign, np.flatnonzero(last)


def _largest(place: Places, sign: Scores, last: Places, signs: Scores) -> Scores:
    """The distance for each row of the units' signs (S×U): −1 swaps a unit's two scores."""
    sums = np.cumsum(signs[:, place] * sign, axis=1)
    found: Scores = np.abs(sums[:, last]).max(axis=1)
    return found


Rows = list[dict[str, Any]]
NOT = Travelled(np.nan, np.nan, np.nan)


def numbers(name: str, found: Estimate | None) -> dict[str, float]:
    """The value and the ends of its interval, as three columns; NaN without an estimate.

    The mean of a single text has no interval: all draws of it are equal.
    """
    empty = dict.fromkeys((name, f"{name}_low", f"{name}_high"), np.nan)
    if found is None:
        return empty
    if found.trials is None and found.n_members + found.n_nonmembers < 2:
        return empty | {name: found.value}
    low, high = interval(found, CONFIDENCE)
    return {name: found.value, f"{name}_low": low, f"{name}_high": high}


def membership(models: Models, scores: Sequence[Quantity], seed: int) -> pd.DataFrame:
    """How well each model's scores tell members from non-members, and the twin's distance."""
    clean = models.clean.name if models.clean else None
    rows: Rows = []
    for one in scores:
        for model in (each.name for each in models):
            values, member = one.values[model], one.units.sides[True]
            row = {
                "model": model,
                "method": one.name,
                "members": float(values[member].mean()),
                "non_members": float(values[one.units.sides[False]].mean()),
                **numbers("auroc", one.units.auroc(values)),
            }
            if clean not in (None, model):
                texts = one.units.table.loc[member, "text_id"].tolist()
                pair = values[member], one.values[str(clean)][member]
                row |= {"distance": distance(*pair), "p": swap_p_value(*pair, texts, seed)}
            rows.append(row)
    found = pd.DataFrame(rows)
    if clean is not None:
        tested = found["p"].notna()
        found.loc[tested, "p_holm"] = holm(found.loc[tested, "p"].to_numpy())
    return found


def ways(models: Models, quantities: Iterable[Quantity]) -> pd.DataFrame:
    """How far each unlearned model went from the original to the twin, by quantity."""
    return pd.DataFrame([
        row
        for one in quantities
        for model in models.unlearned
        for row in _ways(models, one, model.name)
    ])  # fmt: skip


def _ways(models: Models, one: Quantity, name: str) -> Iterator[dict[str, Any]]:
    assert models.clean is not None
    three = [one.values[m] for m in (models.original.name, name, models.clean.name)]
    method = one.name if one.is_score else ""
    units, named = one.units, {"unlearned": name, "quantity": one.name, "method": method}
    if not units.sides[True].any():
        return
    members, few = [units.mean(v, True) for v in three], units.texts(controls=False)
    row = {**named, **_three("", members), **_share("share", travelled(members, few))}
    if units.labelled:
        others = [units.mean(values, False) for values in three]
        above = [minus(a, b) for a, b in zip(members, others, strict=True)]
        beyond = travelled(above, units.texts(controls=True))
        row |= {**_three("non_members_", others), **_share("beyond", beyond)}
    yield row
    if one.is_score and units.labelled:
        areas = [units.auroc(values) for values in three]
        found = travelled(areas, units.texts(controls=True))
        named["quantity"] = f"AUROC of {one.name}"
        yield {**named, **_three("", areas), **_share("share", found)}


def _three(prefix: str, found: Sequence[Estimate]) -> dict[str, float]:
    names = ("original", "after", "clean")
    return {f"{prefix}{name}": one.value for name, one in zip(names, found, strict=True)}


def _share(name: str, found: Travelled) -> dict[str, Any]:
    return {
        name: found.share,
        f"{name}_low": found.low,
        f"{name}_high": found.high,
        f"{name}_why": found.why,
    }


def screens(found: Mapping[str, Screened], one: Quantity, original: str) -> pd.DataFrame:
    """What the ratio screen finds with each unlearned model."""
    rows: Rows = []
    for name, screen in found.items():
        row: dict[str, Any] = {"unlearned": name, "chunks": len(screen.suspicious)}
        row["suspicious"] = int(screen.suspicious.sum())
        for rate, estimate in screen.rates():
            row |= numbers(rate, estimate)
        row["known"] = screen.known
        if one.units.labelled:
            fallen = moved(one.values[original], one.values[name])
            row |= numbers("auroc_of_the_fall", one.units.auroc(fallen))
        rows.append(row)
    return pd.DataFrame(rows).astype({"known": "Int64"})


def groups(
    models: Models, quantities: Iterable[Quantity], found: Mapping[str, set[str]]
) -> pd.DataFrame:
    """Each quantity's mean by model, of members and others, of suspicious texts and others.

    Args:
        models: the models.
        quantities: what is shown.
        found: by unlearned model the units that its screen finds suspicious.
    """
    rows: Rows = []
    for one in quantities:
        ids = one.units.table["unit"]
        for model in models:
            listed = ids.isin(found[model.name]).to_numpy() if model.name in found else None
            for name, mask in _masks(one.units, listed):
                mean = one.units.mean_of(one.values[model.name], mask, name)
                named = {"quantity": one.name, "model": model.name, "group": name}
                rows.append({**named, "units": int(mask.sum()), **numbers("mean", mean)})
    return pd.DataFrame(rows)


def _masks(units: Units, listed: Mask | None) -> Iterator[tuple[str, Mask]]:
    """The groups by name: members, non-members; then by the screen, each kind apart."""
    kinds = {"members": units.sides[True], "non-members": units.sides[False]}
    if not units.labelled:
        kinds = {"texts": np.ones(len(units.table), bool)}
    yield from kinds.items()
    if listed is not None:
        for kind, mask in kinds.items():
            yield f"{kind}, suspicious", mask & listed
            yield f"{kind}, not", mask & ~listed


def utility(models: Models, one: Quantity) -> pd.DataFrame:
    """Each model's loss, and its change from the original's on the same texts."""
    everything = np.ones(len(one.units.table), bool)
    found = {m.name: one.units.mean_of(one.values[m.name], everything, "all") for m in models}
    before = found[models.original.name]
    return pd.DataFrame([
        {"model": name, **numbers("loss", loss), **numbers("change", minus(loss, before))}
        for name, loss in found.items() if loss is not None and before is not None
    ])  # fmt: skip

"""The findings in words, made from the numbers of one cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analysis.cells import CONTAMINATED
from analysis.charts.appearance import in_order, label
from analysis.inference.baseline import BLIND
from analysis.inference.controls import control_rows, off_controls
from analysis.inference.groups import ANY
from analysis.inference.results import ALL

if TYPE_CHECKING:
    import pandas as pd


def sentences(results: pd.DataFrame) -> list[str]:
    """The strongest method, the effect of the dose, and the two controls."""
    shown = results[(results["metric"] == "auroc") & (results["benchmark"] == ALL)]
    detectors = shown[shown["checkpoint"] == CONTAMINATED]
    strongest = detectors[detectors["occurrences"] == ANY].nlargest(1, "value").iloc[0]
    clean = results[results["method"] != BLIND]
    blind = results[results["method"] == BLIND]
    return [
        _strongest(strongest, detectors),
        *_dose(strongest, detectors),
        _control("Clean control (the model before the contaminated training)", clean),
        _control("Blind baseline (a text classifier without the model)", blind),
    ]


def _strongest(best: pd.Series[Any], detectors: pd.DataFrame) -> str:
    pairs = in_order(detectors[["method", "variant"]].itertuples(index=False, name=None))
    name = label(best["method"], best["variant"], pairs)
    among = f"of {len(pairs)} methods" if len(pairs) > 1 else "the only method"
    return (
        f"Strongest {among}: {name}, AUROC {_value(best)} over all {best['n_members']} members "
        f"and {best['n_nonmembers']} non-members, mean over benchmarks."
    )


def _dose(best: pd.Series[Any], detectors: pd.DataFrame) -> list[str]:
    """From the lowest to the highest number of occurrences; nothing where there is only one."""
    dosed = detectors[detectors["occurrences"] != ANY]
    dosed = dosed.sort_values("occurrences", key=lambda doses: doses.astype(int))
    lines = [line for _, line in dosed.groupby(["method", "variant"])]
    if min((len(line) for line in lines), default=0) < 2:
        return []
    rising = sum(line["value"].is_monotonic_increasing for line in lines)
    own = dosed[(dosed["method"] == best["method"]) & (dosed["variant"] == best["variant"])]
    first, last = own.iloc[0], own.iloc[-1]
    return [
        f"With the occurrences, the AUROC of {best['method']} goes from {_value(first)} at "
        f"{first['occurrences']} to {_value(last)} at {last['occurrences']}; it rises at every "
        f"step for {rising} of {len(lines)} methods."
    ]


def _control(name: str, results: pd.DataFrame) -> str:
    rows, off = control_rows(results), off_controls(results)
    if rows.empty:
        return f"{name}: not measured."
    if off.empty:
        values = ", ".join(f"{row['method']} {_value(row)}" for _, row in rows.iterrows())
        held = "its interval holds" if len(rows) == 1 else f"all {len(rows)} intervals hold"
        return f"{name}: {held} 0.5 ({values})."
    values = ", ".join(f"{row['method']} {_value(row)}" for _, row in off.iterrows())
    return f"{name}: **OFF** for {len(off)} of {len(rows)} ({values}); the interval leaves 0.5 out."


def _value(row: pd.Series[Any]) -> str:
    return f"{row['value']:.2f} [{row['ci_low']:.2f}, {row['ci_high']:.2f}]"

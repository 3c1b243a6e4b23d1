"""The metrics of a report, a file a kind, and here which there are.

A new one is a file that makes its `Metric`, and a line here: in ALWAYS, or where it has a rate, in
BY_RATE and `chosen_metrics`.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.bootstrap import Scores as Scores
from core.metrics.area import AUROC as AUROC
from core.metrics.metric import Metric as Metric
from core.metrics.rates import fpr_at_tpr as fpr_at_tpr
from core.metrics.rates import tpr_at_fpr as tpr_at_fpr

ALWAYS = (AUROC,)
BY_RATE = {"tpr_at_fpr": tpr_at_fpr, "fpr_at_tpr": fpr_at_tpr}


def chosen_metrics(fpr: Sequence[float], tpr: Sequence[float]) -> list[Metric]:
    """Those without a rate, then TPR at each false-positive rate, FPR at each true-positive one."""
    return [*ALWAYS, *map(tpr_at_fpr, fpr), *map(fpr_at_tpr, tpr)]


def title(name: str) -> str:
    """The title of the metric with this name; the name itself where none has it."""
    kind, _, rate = name.rpartition("_")
    known = [BY_RATE[kind](float(rate))] if kind in BY_RATE else ALWAYS
    return next((metric.title for metric in known if metric.name == name), name)

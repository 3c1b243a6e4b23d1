"""Thresholds: choosing them on a calibration split, evaluating and applying them.

A text is called a member if its score reaches the threshold. The calibration split depends on the
texts' ids only and is disjoint from the evaluation split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from contamination.core.errors import DataError, require
from contamination.core.seeds import derive_seed, unit_hash
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import confidence_interval
from contamination.core.statistics.metrics import AUROC, most_false_alarms
from contamination.core.statistics.samples import MIN_CLUSTERS, LabelledSample, clusters_by_side
from contamination.core.statistics.significance import clustered_p_values, conformal_p_values
from contamination.data.texts import Text, clusters_of
from contamination.detection.evaluation import CONFIDENCE, DRAWS, scores_by_membership

Sides = tuple[Scores, Scores]
"""The scores of the members, and of the non-members."""
RULES = ("accuracy", "f1", "fpr")
SUBSETS = (0.1, 0.2, 0.3, 0.4, 0.5)
SUBSET_DRAWS = 20


@dataclass(frozen=True)
class Threshold:
    """One method's threshold, and its quality on texts that it was not chosen on.

    Attributes:
        value: texts with at least this score are called members.
        accuracy, f1, tpr, fpr: measured on the evaluation split.
        stability: the standard deviation of the value over random subsets of the calibration split
            (10%, 20%, … 50% of it, several of each size), after Ye et al. 2024, table 3, in the
            score's units; `stability_relative` is in standard deviations of the calibration scores.
        auroc, auroc_low, auroc_high: on the evaluation split, with its 95% bootstrap interval.
        null: the scores of the calibration split's non-members, ascending; for p-values.
        null_clusters: the number of the cluster of each of these; empty if there are no clusters.
    """

    method: str
    variant: str
    rule: str
    value: float
    accuracy: float
    f1: float
    tpr: float
    fpr: float
    stability: float
    stability_relative: float
    auroc: float
    auroc_low: float
    auroc_high: float
    null: list[float]
    null_clusters: list[int]

    def __post_init__(self) -> None:
        scores, clusters = len(self.null), len(self.null_clusters)
        if clusters not in (0, scores):
            raise ValueError(
                f"{self.name} has {clusters} null_clusters for {scores} scores in null"
            )

    @property
    def name(self) -> str:
        """The method and its variant."""
        return f"{self.method} {self.variant}".strip()


def choose_threshold(members: Scores, nonmembers: Scores, rule: str, fpr: float = 0.05) -> float:
    """Chooses the best threshold on these scores.

    Args:
        members: scores of members, shape (M,), M ≥ 1.
        nonmembers: scores of non-members, shape (N,), N ≥ 1.
        rule: `accuracy` (balanced over members and non-members), `f1` (with members as the positive
            class), or `fpr` (the lowest threshold whose false-positive rate is at most `fpr`).
        fpr: the false-positive rate for the rule `fpr`.

    Returns:
        A value midway between two neighbouring scores, so that rounding cannot move a text across
        it.
    """
    require(rule in RULES, "rule", rule, f"choose from {', '.join(RULES)}.")
    require(0 <= fpr < 1, "fpr", fpr, "give a rate from 0 to below 1.")
    candidates = _candidate_thresholds(np.concatenate([members, nonmembers]))
    if rule == "fpr":
        allowed = most_false_alarms(len(nonmembers), fpr)
        alarms = _count_reaching(nonmembers, candidates)
        return float(candidates[alarms <= allowed].min())
    hits = _count_reaching(members, candidates) / len(members)
    alarms = _count_reaching(nonmembers, candidates) / len(nonmembers)
    f1 = _f1(hits, alarms, len(members), len(nonmembers))
    return float(candidates[np.argmax(hits - alarms if rule == "accuracy" else f1)])


def calibrate(
    table: pd.DataFrame,
    examples: Sequence[Text],
    rule: str,
    fpr: float = 0.05,
    share: float = 0.5,
    seed: int = 0,
) -> list[Threshold]:
    """Chooses a threshold for each method and variant on one split, and evaluates it on the other.

    Raises:
        DataError: a split lacks members or non-members, or clusters of them.
    """
    calibration, evaluation = calibration_split(table, examples, share, seed)
    for name, texts in (("calibration", calibration), ("evaluation", evaluation)):
        labels = {e.label for e in texts}
        if not {True, False} <= labels:
            raise DataError(
                f"the {name} split has {len(texts)} texts and lacks members or non-members: give "
                "more labelled texts, or another share or seed."
            )
    table = table[table["ranked"]]
    sample = _evaluation_sample(evaluation, seed)
    return [
        _calibrate(key, scores, (calibration, evaluation), sample, rule, fpr, seed)
        for key, scores in table.groupby(["method", "variant"], sort=False)
    ]


def calibration_split(
    table: pd.DataFrame, examples: Sequence[Text], share: float, seed: int
) -> tuple[list[Text], list[Text]]:
    """Divides the labelled, ranked texts into a calibration and an evaluation split.

    A text is in the calibration split with probability `share`, depending on its id, or on its
    cluster's name if it has a cluster: clusters are not divided.
    """
    require(0 < share < 1, "share", share, "give the calibration split's share, such as 0.5.")
    ranked = set(table["example_id"][table["ranked"]])
    labelled = [e for e in examples if e.label is not None and e.example_id in ranked]
    is_calibration = {
        e.example_id: unit_hash(f"{seed} {e.cluster or e.example_id}") < share for e in labelled
    }
    calibration = [e for e in labelled if is_calibration[e.example_id]]
    return calibration, [e for e in labelled if not is_calibration[e.example_id]]


def apply_thresholds(table: pd.DataFrame, thresholds: Sequence[Threshold]) -> pd.DataFrame:
    """Adds `member`, whether a score reaches its method's threshold, and `p_value`.

    Both are missing (<NA>, NaN) for a text that is not ranked.

    Raises:
        DataError: a method or variant has no threshold.
    """
    thresholds_by_method = {(t.method, t.variant): t for t in thresholds}
    decided = table.assign(member=pd.NA, p_value=np.nan).astype({"member": "boolean"})
    for key, rows in table[table["ranked"]].groupby(["method", "variant"], sort=False):
        if key not in thresholds_by_method:
            names = ", ".join(t.name for t in thresholds)
            raise DataError(
                f"{' '.join(key)}: the file has no threshold for it, only for {names}. Score with "
                "the same methods as were calibrated."
            )
        scores = rows["score"].to_numpy()
        decided.loc[rows.index, "member"] = scores >= thresholds_by_method[key].value
        decided.loc[rows.index, "p_value"] = _p_values(scores, thresholds_by_method[key])
    return decided


def _p_values(scores: Scores, threshold: Threshold) -> Scores:
    """Returns the p-values of texts that belong to none of the calibration split's clusters."""
    null = np.array(threshold.null)
    if not threshold.null_clusters:
        return conformal_p_values(scores, null)
    clusters = np.unique(threshold.null_clusters, return_inverse=True)[1]
    no_cluster = np.full(len(scores), clusters.max() + 1)
    return clustered_p_values(scores, no_cluster, null, clusters)


def _calibrate(
    key: tuple[str, str],
    scores: pd.DataFrame,
    texts: tuple[Sequence[Text], Sequence[Text]],
    sample: LabelledSample,
    rule: str,
    fpr: float,
    seed: int,
) -> Threshold:
    calibration, evaluation = (scores_by_membership(scores, side_texts) for side_texts in texts)
    value = choose_threshold(*calibration, rule, fpr)
    stability = _stability(calibration, rule, fpr, seed)
    order, clusters = np.argsort(calibration[1], kind="stable"), clusters_of(texts[0])
    null, null_clusters = calibration[1][order].tolist(), []
    if clusters is not None:
        member = np.array([e.label for e in texts[0]], bool)
        null_clusters = clusters_by_side(clusters, member)[1][order].tolist()
    auroc = sample.estimate(*evaluation, [AUROC])[AUROC.name]
    aurocs = auroc.value, *confidence_interval(auroc, CONFIDENCE)
    rates = _rates(value, *evaluation)
    return Threshold(*key, rule, value, *rates, *stability, *aurocs, null, null_clusters)


def _evaluation_sample(evaluation: Sequence[Text], seed: int) -> LabelledSample:
    """Returns the evaluation split's members and non-members with their draws.

    Raises:
        DataError: the members or the non-members belong to too few clusters.
    """
    member = np.array([e.label for e in evaluation], bool)
    draw_seed = derive_seed(seed, "threshold AUROC")
    sample = LabelledSample.of(member, clusters_of(evaluation), DRAWS, draw_seed)
    counts = sample.cluster_counts
    if counts and min(counts) < MIN_CLUSTERS:
        raise DataError(
            f"the evaluation split has {counts[0]} clusters of members and {counts[1]} of "
            f"non-members, and at least {MIN_CLUSTERS} of each are needed to estimate how much "
            "they differ: give texts of more clusters, or another share or seed."
        )
    return sample


def _rates(value: float, members: Scores, nonmembers: Scores) -> tuple[float, float, float, float]:
    """Returns the accuracy, F1, TPR and FPR of the threshold."""
    tpr, fpr = (float((scores >= value).mean()) for scores in (members, nonmembers))
    f1 = float(_f1(np.array(tpr), np.array(fpr), len(members), len(nonmembers)))
    return (tpr + 1 - fpr) / 2, f1, tpr, fpr


def _stability(calibration: Sides, rule: str, fpr: float, seed: int) -> tuple[float, float]:
    """Returns the threshold's standard deviation, absolute and relative to that of the scores."""
    rng = np.random.default_rng(derive_seed(seed, "threshold subsets"))
    thresholds = []
    for share in SUBSETS:
        for _ in range(SUBSET_DRAWS):
            members, nonmembers = (
                rng.choice(s, max(1, int(share * len(s))), replace=False) for s in calibration
            )
            thresholds.append(choose_threshold(members, nonmembers, rule, fpr))
    spread = float(np.std(thresholds))
    return spread, spread / (float(np.concatenate(calibration).std()) or 1.0)


def _count_reaching(scores: Scores, thresholds: Scores) -> Scores:
    """Returns the number of scores that reach each threshold."""
    return (len(scores) - np.searchsorted(np.sort(scores), thresholds)).astype(np.float64)


def _candidate_thresholds(scores: Scores) -> Scores:
    """Returns a threshold below all scores, one between each two neighbours, and one above all."""
    values = np.unique(scores)
    step = max(1.0, float(np.ptp(values)))
    return np.concatenate([values[:1] - step, (values[1:] + values[:-1]) / 2, values[-1:] + step])


def _f1(hits: Scores, alarms: Scores, members: int, nonmembers: int) -> Scores:
    """Returns F1 from the true- and false-positive rates."""
    true_positives = hits * members
    return 2 * true_positives / (true_positives + alarms * nonmembers + members)

"""The metrics of reports: AUROC, TPR at a fixed FPR, and FPR at a fixed TPR.

To add a metric, define its `Metric` and add it to METRICS_WITHOUT_RATE, or, if it has a rate as a
parameter, to METRICS_WITH_RATE and `chosen_metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import ceil, comb

import numpy as np

from contamination.core.statistics.bootstrap import RankedScores, Scores

TieRange = tuple[float, float]
"""The lowest and the highest value of a rate that ties allow."""


@dataclass(frozen=True)
class Metric:
    """A metric of members' against non-members' scores, with what tables and charts need."""

    name: str
    """The name in results."""
    title: str
    """The title in tables and charts."""
    value: Callable[[Scores, Scores], float]
    """Computes the metric from the members' and the non-members' scores."""
    draws: Callable[[RankedScores], Scores]
    """Computes the metric for each draw (D)."""
    guess: float
    """The metric's value for uninformative scores."""
    higher_is_better: bool = True
    trials: Callable[[int, int], float] | None = None
    """Computes `Estimate.trials` from the numbers of members and non-members."""
    steps: Callable[[RankedScores], TieRange | None] | None = None
    """For a rate: computes the values that ties allow; returns None if there are few ties."""
    least_members: int = 1
    least_nonmembers: int = 1
    """The minimum numbers of examples for the metric; see `fewest_examples`."""

    def needs(self, n_members: int, n_nonmembers: int) -> str:
        """Returns what is missing, such as "≥ 500 non-members"; empty if nothing is."""
        sides = (
            (n_nonmembers, self.least_nonmembers, "non-members"),
            (n_members, self.least_members, "members"),
        )
        return " and ".join(
            side_name if minimum == 1 else f"≥ {minimum:,} {side_name}"
            for available, minimum, side_name in sides
            if available < minimum
        )


def auroc_value(members: Scores, nonmembers: Scores) -> float:
    """Returns P(member > non-member) + ½ P(member = non-member) over all pairs."""
    ordered = np.sort(nonmembers)
    below = np.searchsorted(ordered, members, side="left")
    below_or_tied = np.searchsorted(ordered, members, side="right")
    return float((below + below_or_tied).sum() / (2 * len(members) * len(nonmembers)))


def auroc_draws(ranked: RankedScores) -> Scores:
    """Returns the AUROC of each draw (D)."""
    above = np.searchsorted(-ranked.members, -ranked.nonmembers, side="left")
    above_or_tied = np.searchsorted(-ranked.members, -ranked.nonmembers, side="right")
    twice_won = ranked.hits[:, above] + ranked.hits[:, above_or_tied]
    pairs = 2 * len(ranked.members) * len(ranked.nonmembers)
    drawn = np.diff(ranked.alarms, axis=1)
    wins: Scores = np.einsum("dn,dn->d", twice_won, drawn, dtype=np.float64)
    return wins / pairs


FEW_EXAMPLES, MIN_ORDERS = 5, 40
TRIALS_INCLUDING_HALF = 3.8
"""Number of trials whose 95% interval just includes 0.5 if all or none succeed: z² = 3.84."""


def auroc_trials(n_members: int, n_nonmembers: int) -> float:
    """Returns the maximum number of trials that an AUROC is equivalent to.

    It is four times the harmonic mean of the numbers of members and non-members. With normally
    distributed scores, an AUROC of 0.5 to 0.9 is as certain as about two harmonic means of trials,
    and an AUROC near 1 is more certain. In simulations, twice that number kept the coverage of 95%
    intervals between 93% and 98.5% for an AUROC of 0.9 to 0.995.

    With FEW_EXAMPLES or fewer on a side, a bootstrap underestimates the variance. For
    uninformative scores, the AUROC of k examples against many others varies as a rate of 3 k
    trials. With fewer than MIN_ORDERS orders of all examples, the two most extreme orders
    together have a probability above 5%, so a 95% interval has to include 0.5.
    """
    fewer, trials = (
        min(n_members, n_nonmembers),
        8 * n_members * n_nonmembers / (n_members + n_nonmembers),
    )
    if fewer > FEW_EXAMPLES:
        return trials
    orders = comb(n_members + n_nonmembers, fewer)
    return min(trials, TRIALS_INCLUDING_HALF + 3 * (fewer - 1) * (orders >= MIN_ORDERS))


AUROC = Metric("auroc", "AUROC", auroc_value, auroc_draws, 0.5, trials=auroc_trials)

MIN_FALSE_ALARMS = 5  # the minimum number of expected false alarms; see `fewest_examples`
NARROW, WIDE = 4, 2 / 3
"""The two weightings in `tpr_draws`: their variance is the threshold's variance V, divided by
these.

Added to V itself, the variances are V + V/4 and V + 3V/2: the second is twice the first. A larger
NARROW gives noisier draws; a smaller one leaves more bias where the ROC curve bends sharply.
"""
MIN_TIED_SHARE = 0.1
"""A share of members with the same score that counts as a step of the TPR (`tpr_range_of_ties`)."""


def tpr_at_fpr(rate: float) -> Metric:
    """Returns the metric TPR at FPR ≤ `rate`. At a known threshold, each member is a trial."""
    return Metric(
        f"tpr_at_fpr_{rate:g}",
        f"TPR at FPR ≤ {rate:g}",
        partial(tpr_value, fpr=rate),
        partial(tpr_draws, fpr=rate),
        guess=rate,
        trials=lambda members, nonmembers: members,
        steps=partial(tpr_range_of_ties, fpr=rate),
        least_nonmembers=fewest_examples(rate),
    )


def fpr_at_tpr(rate: float) -> Metric:
    """Returns the metric FPR at TPR ≥ `rate`.

    It is computed by `tpr_at_fpr` with the two sides exchanged, so each non-member is a trial.
    """
    return Metric(
        f"fpr_at_tpr_{rate:g}",
        f"FPR at TPR ≥ {rate:g}",
        partial(fpr_value, tpr=rate),
        partial(fpr_draws, tpr=rate),
        guess=rate,
        higher_is_better=False,
        trials=lambda members, nonmembers: nonmembers,
        steps=partial(fpr_range_of_ties, tpr=rate),
        least_members=fewest_examples(1 - rate),
    )


def fewest_examples(rate: float) -> int:
    """Returns the smallest n with n·rate ≥ `MIN_FALSE_ALARMS`, for a false-positive rate.

    A threshold with c of n non-members above it has an expected true false-positive rate of
    (c + 1) / (n + 1): with 100 non-members, "FPR ≤ 0.001" would be measured at 0.0099.
    """
    return ceil(MIN_FALSE_ALARMS / rate * (1 - 1e-9))  # 5 / (1 - 0.9999) is 50,000.00000000551


def tpr_value(members: Scores, nonmembers: Scores, fpr: float) -> float:
    """Returns the largest true-positive rate at a false-positive rate of at most `fpr`.

    In descending order of score, the first non-member that may not be flagged sets the threshold.
    Scores that are equal to the threshold are not flagged.
    """
    allowed = most_false_alarms(len(nonmembers), fpr)
    if allowed == len(nonmembers):
        return 1.0
    threshold = np.sort(nonmembers)[::-1][allowed]
    return float((members > threshold).sum() / len(members))


def fpr_value(members: Scores, nonmembers: Scores, tpr: float) -> float:
    """Returns the smallest false-positive rate at a true-positive rate of at least `tpr`."""
    needed = fewest_hits(len(members), tpr)
    if needed == 0:
        return 0.0
    threshold = np.sort(members)[::-1][needed - 1]
    return float((nonmembers >= threshold).sum() / len(nonmembers))


def most_false_alarms(n_nonmembers: int, fpr: float) -> int:
    """Returns the largest count c with c / n ≤ fpr (⌊fpr·n⌋ would round 0.29·100 down to 28)."""
    return int(np.flatnonzero(np.arange(n_nonmembers + 1) / n_nonmembers <= fpr)[-1])


def fewest_hits(n_members: int, tpr: float) -> int:
    """Returns the smallest count c with c / n ≥ tpr."""
    return int(np.flatnonzero(np.arange(n_members + 1) / n_members >= tpr)[0])


def tpr_draws(ranked: RankedScores, fpr: float) -> Scores:
    """Returns the true-positive rate at a false-positive rate in each draw (D).

    It is a weighted mean over thresholds, Σ_k w_k TPR_k, where the k-th highest of the draw's n
    non-members is the threshold (equal scores are not flagged). The expected true false-positive
    rate of this threshold is k / (n + 1), and its variance is about V = α(1 − α) / (n + 1), where α
    is `fpr`. A mean over thresholds (Harrell and Davis 1982) adds the variance of its weights. If
    the ROC curve is not straight, the variance causes a proportional bias. This bias cancels in
    twice a mean with some variance minus a mean with twice that variance (Richardson
    extrapolation; some weights are negative):
    w_k = W((k + ½) / (n + 1)) − W((k − ½) / (n + 1)) with W = 2·B(NARROW) − B(WIDE). B(s) is the
    distribution function of Beta(αt, (1 − α)t), t = s·(n + 1) − 1, whose variance is V / s. The
    remaining weight goes to k = 1 and k = n.

    Resampling adds V, and therefore its bias, once more. So the draws are shifted to the mean of
    the same sum on the examples themselves: a mean over benchmarks would average out noise, but
    not bias. Draws may be below 0 or above 1.
    """
    draws = _mean_tpr_of_draws(ranked, fpr)
    mean_of_examples = _mean_tpr_of_draws(_as_single_draw(ranked), fpr)
    shifted: Scores = draws + (mean_of_examples - draws.mean())
    return shifted


def fpr_draws(ranked: RankedScores, tpr: float) -> Scores:
    """Returns the false-positive rate at a true-positive rate in each draw (D).

    It is computed by `tpr_draws` with the sides exchanged and the scores negated: non-members below
    the threshold become hits, and members below it become false alarms.
    """
    return 1 - tpr_draws(_exchange_sides(ranked), 1 - tpr)


def tpr_range_of_ties(ranked: RankedScores, fpr: float) -> tuple[float, float] | None:
    """Returns the lowest and highest TPR that tied scores allow, or None if there are few ties.

    The number of non-members above the true threshold is Binomial(n, `fpr`), so with a probability
    of 95% the threshold is a non-member within a range of ranks. The TPR has a step there if these
    non-members have at most half as many different scores, or if at least a share MIN_TIED_SHARE of
    the members has the same score as one of them. One more false alarm can change the TPR by the
    whole step.
    """
    fewest, most = _range_of_false_alarms(len(ranked.nonmembers), fpr)
    nonmembers_near_threshold = ranked.nonmembers[fewest : most + 1]
    threshold_scores = np.unique(nonmembers_near_threshold)
    n_above, n_reaching = (
        np.searchsorted(-ranked.members, -threshold_scores, side=side) for side in ("left", "right")
    )
    max_tied_share = (n_reaching - n_above).max() / len(ranked.members)
    if (
        2 * len(threshold_scores) > len(nonmembers_near_threshold)
        and max_tied_share < MIN_TIED_SHARE
    ):
        return None
    lowest, highest = (
        float((ranked.members > threshold).mean())
        for threshold in nonmembers_near_threshold[[0, -1]]
    )
    return lowest, highest


def fpr_range_of_ties(ranked: RankedScores, tpr: float) -> tuple[float, float] | None:
    """Returns the lowest and highest FPR at a TPR that ties allow; see `tpr_range_of_ties`."""
    steps = tpr_range_of_ties(_exchange_sides(ranked), 1 - tpr)
    return steps and (1 - steps[1], 1 - steps[0])


def _as_single_draw(ranked: RankedScores) -> RankedScores:
    sides = (ranked.members, ranked.nonmembers)
    hits, alarms = (np.arange(len(side) + 1, dtype=np.float32)[None] for side in sides)
    return RankedScores(*sides, hits, alarms)


def _mean_tpr_of_draws(ranked: RankedScores, fpr: float) -> Scores:
    """Σ_k w_k TPR_k of each draw (D)."""
    if fpr >= 1:
        return np.ones(len(ranked.hits))
    cumulative_weights = _cumulative_threshold_weights(len(ranked.nonmembers), fpr)
    full_weight = int(np.flatnonzero(cumulative_weights != 1)[-1]) + 1
    n_thresholds = int((ranked.alarms >= full_weight).all(axis=0).argmax())
    weights = np.diff(
        cumulative_weights[ranked.alarms[:, : n_thresholds + 1].astype(np.intp)], axis=1
    )
    flagged = np.searchsorted(-ranked.members, -ranked.nonmembers[:n_thresholds], side="left")
    hits: Scores = np.einsum("dn,dn->d", weights, ranked.hits[:, flagged], dtype=np.float64)
    return hits / len(ranked.members)


def _exchange_sides(ranked: RankedScores) -> RankedScores:
    """The scores with the sides exchanged and all signs reversed."""
    return RankedScores(
        -ranked.nonmembers[::-1],
        -ranked.members[::-1],
        ranked.alarms[:, -1:] - ranked.alarms[:, ::-1],
        ranked.hits[:, -1:] - ranked.hits[:, ::-1],
    )


@cache
def _cumulative_threshold_weights(n: int, fpr: float) -> Scores:
    """W: the total weight of the k highest of n non-members as thresholds, for k = 0 to n."""
    from scipy.special import betainc

    quantiles = (np.arange(n + 1) + 0.5) / (n + 1)
    narrow, wide = (s * (n + 1) - 1 for s in (NARROW, WIDE))
    weight: Scores = 2 * betainc(fpr * narrow, (1 - fpr) * narrow, quantiles)
    weight -= betainc(fpr * wide, (1 - fpr) * wide, quantiles)
    weight[[0, -1]] = 0, 1
    return weight.round(12)  # thresholds after W reaches 1 are skipped


@cache
def _range_of_false_alarms(n: int, fpr: float) -> tuple[int, int]:
    """The central 95% range of the number of n non-members above the true threshold."""
    from scipy.stats import binom

    fewest, most = binom.ppf([0.025, 0.975], n, fpr)
    return min(int(fewest), n - 1), min(int(most), n - 1)


METRICS_WITHOUT_RATE = (AUROC,)
METRICS_WITH_RATE = {"tpr_at_fpr": tpr_at_fpr, "fpr_at_tpr": fpr_at_tpr}


def chosen_metrics(fpr: Sequence[float], tpr: Sequence[float]) -> list[Metric]:
    """Returns the metrics without a rate, TPR at each false-positive rate, and FPR at each TPR."""
    return [*METRICS_WITHOUT_RATE, *map(tpr_at_fpr, fpr), *map(fpr_at_tpr, tpr)]


def metric_title(name: str) -> str:
    """Returns the title of the metric with this name, or the name itself if it is unknown."""
    family, _, rate = name.rpartition("_")
    candidates = (
        [METRICS_WITH_RATE[family](float(rate))]
        if family in METRICS_WITH_RATE
        else METRICS_WITHOUT_RATE
    )
    return next((metric.title for metric in candidates if metric.name == name), name)

"""The metrics of a report, a file a kind, and here which there are.

A new one is a file that makes its `Metric`, and a line here: in ALWAYS, or where it has a rate, in
BY_RATE and `chosen_metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import ceil, comb

import numpy as np

from contamination.core.statistics.bootstrap import Ranked, Scores

Steps = tuple[float, float]  # the least and the most


@dataclass(frozen=True)
class Metric:
    """All that tables, charts and the page know of a metric."""

    name: str
    """In the results."""
    title: str
    """In tables and charts."""
    value: Callable[[Scores, Scores], float]
    """Of the members' and the non-members' scores."""
    draws: Callable[[Ranked], Scores]
    """The value of every draw."""
    guess: float
    """The value of uninformative scores."""
    higher_is_better: bool = True
    trials: Callable[[int, int], float] | None = None
    """`Estimate.trials` from the numbers of members and non-members."""
    steps: Callable[[Ranked], Steps | None] | None = None
    """Of a rate: what ties leave possible; None where they are few."""
    least_members: int = 1
    least_nonmembers: int = 1
    """The fewest examples for the metric (`fewest_examples`)."""

    def needs(self, n_members: int, n_nonmembers: int) -> str:
        """Returns what is missing, such as "≥ 500 non-members"; empty where nothing is."""
        sides = (
            (n_nonmembers, self.least_nonmembers, "non-members"),
            (n_members, self.least_members, "members"),
        )
        return " and ".join(
            side_name if least == 1 else f"≥ {least:,} {side_name}"
            for available, least, side_name in sides
            if available < least
        )


def auroc_value(members: Scores, nonmembers: Scores) -> float:
    """P(member > non-member) + ½ P(member = non-member), over all pairs."""
    ordered = np.sort(nonmembers)
    below = np.searchsorted(ordered, members, side="left")
    below_or_tied = np.searchsorted(ordered, members, side="right")
    return float((below + below_or_tied).sum() / (2 * len(members) * len(nonmembers)))


def auroc_draws(ranked: Ranked) -> Scores:
    """AUROC of every draw (D)."""
    above = np.searchsorted(-ranked.members, -ranked.nonmembers, side="left")
    above_or_tied = np.searchsorted(-ranked.members, -ranked.nonmembers, side="right")
    twice_won = ranked.hits[:, above] + ranked.hits[:, above_or_tied]
    pairs = 2 * len(ranked.members) * len(ranked.nonmembers)
    drawn = np.diff(ranked.alarms, axis=1)
    wins: Scores = np.einsum("dn,dn->d", twice_won, drawn, dtype=np.float64)
    return wins / pairs


FEW, ORDERS = 5, 40
ONE_TOSS = 3.8
"""Trials of which the 95% interval of all or none just includes 0.5: less than z² = 3.84."""


def auroc_trials(n_members: int, n_nonmembers: int) -> float:
    """Four times the harmonic mean of both sides.

    Scores of two normals make an AUROC of 0.5 to 0.9 as certain as trials of about two harmonic
    means, and one near 1 of more. Twice that kept the coverage at 0.9 to 0.995 within 93 to 98.5%
    in simulations.

    Of FEW on a side a bootstrap does not see how much they vary: one drawn again is the same one.
    Where nothing tells the sides apart, k among many others vary as 3 k trials do. And where there
    are less than 40 orders of all, even the most extreme ones come by chance in more than 5% of
    the cases: then 95% intervals include 0.5.
    """
    fewer, trials = (
        min(n_members, n_nonmembers),
        8 * n_members * n_nonmembers / (n_members + n_nonmembers),
    )
    if fewer > FEW:
        return trials
    orders = comb(n_members + n_nonmembers, fewer)
    return min(trials, ONE_TOSS + 3 * (fewer - 1) * (orders >= ORDERS))


AUROC = Metric("auroc", "AUROC", auroc_value, auroc_draws, 0.5, trials=auroc_trials)

ALARMS = 5  # the fewest expected false alarms of a rate that is reported: see `fewest_examples`
NARROW, WIDE = 4, 2 / 3
"""The two weights of `tpr_draws`: their variance is the threshold's own, V, divided by these.

With that of the threshold it is V + V/4 and V + 3V/2: the second is twice the first. A larger
NARROW makes noisier draws. A smaller one leaves more bias where the ROC bends sharply.
"""
STEP = 0.1
"""So large a share of the members at one score is a step of the TPR (`tpr_range_of_ties`)."""


def tpr_at_fpr(rate: float) -> Metric:
    """TPR at FPR ≤ `rate`. Were the threshold known, each member would be a trial."""
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
    """FPR at TPR ≥ `rate`, which is `tpr_at_fpr` seen from below.

    The threshold is set by the members that stay below it, and each non-member would be a trial.
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
    """The smallest n with n·rate ≥ `ALARMS`: fewer non-members do not allow a false-positive rate.

    The threshold that leaves c of n non-members above it has a true false-positive rate of
    (c + 1) / (n + 1) on average: with 100 non-members "FPR ≤ 0.001" is read at 0.0099.
    """
    return ceil(ALARMS / rate * (1 - 1e-9))  # 5 / (1 - 0.9999) is 50,000.00000000551


def tpr_value(members: Scores, nonmembers: Scores, fpr: float) -> float:
    """The largest true-positive rate whose false-positive rate does not exceed `fpr`.

    With the non-members in descending order, the first that may no longer be flagged sets a
    strict threshold: whoever ties with it stays unflagged too.
    """
    allowed = most_false_alarms(len(nonmembers), fpr)
    if allowed == len(nonmembers):
        return 1.0
    threshold = np.sort(nonmembers)[::-1][allowed]
    return float((members > threshold).sum() / len(members))


def fpr_value(members: Scores, nonmembers: Scores, tpr: float) -> float:
    """The smallest false-positive rate at which the true-positive rate is at least `tpr`."""
    needed = fewest_hits(len(members), tpr)
    if needed == 0:
        return 0.0
    threshold = np.sort(members)[::-1][needed - 1]
    return float((nonmembers >= threshold).sum() / len(nonmembers))


def most_false_alarms(n_nonmembers: int, fpr: float) -> int:
    """The largest count c with c / n ≤ fpr (⌊fpr·n⌋ would round 0.29·100 down to 28)."""
    return int(np.flatnonzero(np.arange(n_nonmembers + 1) / n_nonmembers <= fpr)[-1])


def fewest_hits(n_members: int, tpr: float) -> int:
    """The smallest count c with c / n ≥ tpr."""
    return int(np.flatnonzero(np.arange(n_members + 1) / n_members >= tpr)[0])


def tpr_draws(ranked: Ranked, fpr: float) -> Scores:
    """The true-positive rate at a false-positive rate in every draw (D): a mean over thresholds.

    It is Σ_k w_k TPR_k, with the k-th highest of the draw's n non-members as the threshold (who
    ties with it is not flagged). Its true false-positive rate is k / (n + 1) on average, with a
    variance of about V = α(1 − α) / (n + 1), where α is `fpr`. A mean over thresholds (Harrell and
    Davis 1982) adds the variance of its weights. Where the ROC is curved, variance makes a bias in
    proportion to it. It cancels in twice the mean with some variance less the mean with twice that
    variance (Richardson's extrapolation; some weights are negative):
    w_k = W((k + ½) / (n + 1)) − W((k − ½) / (n + 1)) and W = 2·B(NARROW) − B(WIDE). B(s) is the
    distribution function of Beta(αt, (1 − α)t), t = s·(n + 1) − 1, whose variance is V / s. What is
    left goes to k = 1 and n.

    Resampling adds V, and so its bias, once more. The draws are moved to have the mean that the
    same sum has on the examples themselves: a mean over benchmarks averages out noise, not bias.
    Draws may lie beyond 0 and 1.
    """
    draws = _mean_tpr_of_draws(ranked, fpr)
    mean_of_examples = _mean_tpr_of_draws(_as_single_draw(ranked), fpr)
    moved: Scores = draws + (mean_of_examples - draws.mean())
    return moved


def fpr_draws(ranked: Ranked, tpr: float) -> Scores:
    """The false-positive rate at a true-positive rate in every draw (D): the same from below.

    With both sides exchanged and the scores turned round, the non-members that stay below the
    threshold are the hits, and the members that do are the alarms.
    """
    return 1 - tpr_draws(_exchange_sides(ranked), 1 - tpr)


def tpr_range_of_ties(ranked: Ranked, fpr: float) -> tuple[float, float] | None:
    """The least and the most TPR that tied scores leave possible; None: the ties are few.

    Of n non-members, Binomial(n, `fpr`) lie above the true threshold: 95% of the time that leaves
    the non-members of a few ranks as thresholds. The TPR has a step there where they have at most
    half as many different scores, or where a share STEP of the members has the very score of
    one of them. One more false alarm can change it by the whole step.
    """
    fewest, most = _range_of_false_alarms(len(ranked.nonmembers), fpr)
    nonmembers_near_threshold = ranked.nonmembers[fewest : most + 1]
    threshold_scores = np.unique(nonmembers_near_threshold)
    n_above, n_reaching = (
        np.searchsorted(-ranked.members, -threshold_scores, side=side) for side in ("left", "right")
    )
    heaviest = (n_reaching - n_above).max() / len(ranked.members)
    if 2 * len(threshold_scores) > len(nonmembers_near_threshold) and heaviest < STEP:
        return None
    least, highest = (
        float((ranked.members > threshold).mean())
        for threshold in nonmembers_near_threshold[[0, -1]]
    )
    return least, highest


def fpr_range_of_ties(ranked: Ranked, tpr: float) -> tuple[float, float] | None:
    """The least and the most FPR at a TPR that ties leave possible; see `tpr_range_of_ties`."""
    steps = tpr_range_of_ties(_exchange_sides(ranked), 1 - tpr)
    return steps and (1 - steps[1], 1 - steps[0])


def _as_single_draw(ranked: Ranked) -> Ranked:
    sides = (ranked.members, ranked.nonmembers)
    hits, alarms = (np.arange(len(side) + 1, dtype=np.float32)[None] for side in sides)
    return Ranked(*sides, hits, alarms)


def _mean_tpr_of_draws(ranked: Ranked, fpr: float) -> Scores:
    """Σ_k w_k TPR_k of every draw (D)."""
    if fpr >= 1:
        return np.ones(len(ranked.hits))
    cumulative_weights = _cumulative_threshold_weights(len(ranked.nonmembers), fpr)
    certain = int(np.flatnonzero(cumulative_weights != 1)[-1]) + 1
    n_thresholds = int((ranked.alarms >= certain).all(axis=0).argmax())
    weights = np.diff(
        cumulative_weights[ranked.alarms[:, : n_thresholds + 1].astype(np.intp)], axis=1
    )
    flagged = np.searchsorted(-ranked.members, -ranked.nonmembers[:n_thresholds], side="left")
    hits: Scores = np.einsum("dn,dn->d", weights, ranked.hits[:, flagged], dtype=np.float64)
    return hits / len(ranked.members)


def _exchange_sides(ranked: Ranked) -> Ranked:
    """Both sides exchanged, and the scores turned round."""
    return Ranked(
        -ranked.nonmembers[::-1],
        -ranked.members[::-1],
        ranked.alarms[:, -1:] - ranked.alarms[:, ::-1],
        ranked.hits[:, -1:] - ranked.hits[:, ::-1],
    )


@cache
def _cumulative_threshold_weights(n: int, fpr: float) -> Scores:
    """W: the weight of the k highest of n non-members as thresholds, for k = 0 to n."""
    from scipy.special import betainc

    quantiles = (np.arange(n + 1) + 0.5) / (n + 1)
    narrow, wide = (s * (n + 1) - 1 for s in (NARROW, WIDE))
    weight: Scores = 2 * betainc(fpr * narrow, (1 - fpr) * narrow, quantiles)
    weight -= betainc(fpr * wide, (1 - fpr) * wide, quantiles)
    weight[[0, -1]] = 0, 1
    return weight.round(12)  # a tail that is 1 is not looked at


@cache
def _range_of_false_alarms(n: int, fpr: float) -> tuple[int, int]:
    """How many of n non-members lie above the true threshold, 95% of the time (at most n − 1)."""
    from scipy.stats import binom

    fewest, most = binom.ppf([0.025, 0.975], n, fpr)
    return min(int(fewest), n - 1), min(int(most), n - 1)


ALWAYS = (AUROC,)
BY_RATE = {"tpr_at_fpr": tpr_at_fpr, "fpr_at_tpr": fpr_at_tpr}


def chosen_metrics(fpr: Sequence[float], tpr: Sequence[float]) -> list[Metric]:
    """Those without a rate, then TPR at each false-positive rate, FPR at each true-positive one."""
    return [*ALWAYS, *map(tpr_at_fpr, fpr), *map(fpr_at_tpr, tpr)]


def metric_title(name: str) -> str:
    """The title of the metric with this name; the name itself where none has it."""
    family, _, rate = name.rpartition("_")
    candidates = [BY_RATE[family](float(rate))] if family in BY_RATE else ALWAYS
    return next((metric.title for metric in candidates if metric.name == name), name)

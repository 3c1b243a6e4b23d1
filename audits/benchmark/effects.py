"""How large a difference is: AUROC, d′ and their intervals, and the p-values of single questions.

They have the unit of the test (`exchangeability`). Where each cluster has both sides (the versions
of questions), all of these compare within clusters, and intervals are over clusters. Otherwise they
compare one number of each cluster, its mean: a question that is in the file 150 times counts once.
Only the p-value of a single question is of that text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from contamination.audits.benchmark.exchangeability import TINY, Design, Flags
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import Estimate, confidence_interval
from contamination.core.statistics.metrics import AUROC
from contamination.core.statistics.significance import clustered_p_values
from contamination.data.texts import Texts
from contamination.detection.baselines.blind import BLIND, BlindBaseline
from contamination.detection.evaluation import (
    CONFIDENCE,
    DRAWS,
    SEED,
    MethodKey,
    estimate_group,
    group_by_method,
)

COMBINED = "combined"
"""The name of the combination of all methods."""
Estimates = dict[MethodKey, Mapping[str, Estimate]]
"""Method and variant → metric → estimate."""


def d_prime(auroc: Estimate, sizes: tuple[int, int]) -> tuple[float, float, float]:
    """Returns d′ and its 95% interval: those of the AUROC A, as √2 Φ⁻¹(A) (Green and Swets 1966).

    It is the distance of two normal distributions of equal width, in standard deviations. An AUROC
    of 0 or 1 counts as half a pair less, so that the result is finite.
    """
    from scipy.stats import norm

    half_pair = 0.5 / (sizes[0] * sizes[1])
    values = np.clip(
        [auroc.value, *confidence_interval(auroc, CONFIDENCE)], half_pair, 1 - half_pair
    )
    value, low, high = (np.sqrt(2) * norm.ppf(values)).tolist()
    return value, low, high


def paired_effect(score: Scores, design: Design) -> tuple[float, float, float]:
    """Returns the mean difference within clusters and its interval, in standard deviations.

    The interval is Student's with the jackknife's standard error over clusters (Tukey 1958), so
    that it includes the uncertainty of the standard deviation.

    Args:
        score: the combined scores.
        design: the clusters, each with both sides.
    """
    from scipy.stats import t

    def effect(chosen: Flags) -> float:
        part = design.of_texts(np.flatnonzero(chosen))
        difference, _ = part.differences(score[chosen], part.is_question[None])
        return float(
            difference[0] / max(spread_within_sides(score[chosen], part, len(score)), TINY)
        )

    clusters = design.units[0]
    without = np.array([effect(design.cluster != cluster) for cluster in range(clusters)])
    error = np.sqrt((clusters - 1) * without.var())
    value = effect(np.ones(len(score), bool))
    margin = float(t.ppf((1 + CONFIDENCE) / 2, clusters - 1) * error)
    return value, value - margin, value + margin


def spread_within_sides(score: Scores, design: Design, ranked: int) -> float:
    """Returns the standard deviation of the units' combined scores within a side.

    Between versions it includes that of cluster means, so that a difference between versions has
    the unit of one between questions and fresh questions.
    Normal scores of few ranks lack the ends of the normal distribution, which narrows the spread of
    versions of many questions, but hardly the differences between them; that is undone.

    Args:
        score: the combined scores of some texts.
        design: their labels and clusters.
        ranked: the number of texts whose ranks the scores are of.
    """
    from scipy.stats import norm

    units, is_question = score, design.is_question
    if not design.is_paired:
        units, is_question = design.unit_means(score), is_question[design.first_texts]
    sides = units[is_question], units[~is_question]
    spread = float(np.sqrt(np.mean([side.var(ddof=1) for side in sides])))
    if not design.is_paired:
        return spread
    return spread / float(norm.ppf(np.arange(1, ranked + 1) / (ranked + 1)).std())


def without_cluster_means(score: Scores, design: Design) -> Scores:
    """Returns the scores, each less its cluster's mean if each cluster has both sides."""
    if not design.is_paired:
        return score
    means = np.bincount(design.cluster, score) / np.bincount(design.cluster)
    centred: Scores = score - means[design.cluster]
    return centred


def estimates_of(
    texts: Texts, ranked: pd.DataFrame, score: Scores, design: Design, blind: BlindBaseline | None
) -> Estimates:
    """Returns AUROC and, where sides are compared as wholes, matched AUROC by method.

    Of the blind row the AUROC alone is told: matched, that of few texts is often below 0.5
    however alike the sides are.

    Args:
        texts: the texts.
        ranked: the methods' scores of them.
        score: the combined scores, which come first.
        design: the labels and clusters.
        blind: the blind baseline of the units to match on, or None.
    """
    combined = pd.DataFrame({
        "example_id": texts.column("example_id").to_pylist(), "score": score,
    })  # fmt: skip
    tables = [((COMBINED, ""), combined), *group_by_method([ranked])]
    if design.is_paired:
        ids = combined["example_id"]
        return {
            method: {AUROC.name: paired_auroc(rows.set_index("example_id")["score"][ids], design)}
            for method, rows in tables
        }
    units = texts.take(design.first_texts)
    tables = [(method, _means_of_units(rows, combined, units, design)) for method, rows in tables]
    options = {} if blind is None else {"match": True, "baseline": lambda *_, **__: blind}
    by_themselves = [replace(unit, cluster="") for unit in units]
    group = estimate_group("", tables, by_themselves, blind is not None, [AUROC], **options)  # type: ignore[arg-type]
    return {
        method: {
            name: e for name, e in estimates.items() if method[0] != BLIND or name == AUROC.name
        }
        for method, estimates in group.estimates.items()
    }


def _means_of_units(
    rows: pd.DataFrame, combined: pd.DataFrame, units: Texts, design: Design
) -> pd.DataFrame:
    """Returns a method's mean score of each unit, under the id of its first text."""
    scores = rows.set_index("example_id")["score"][combined["example_id"]].to_numpy(np.float64)
    return pd.DataFrame({
        "example_id": units.column("example_id").to_pylist(), "score": design.unit_means(scores),
    })  # fmt: skip


def paired_auroc(score: pd.Series[float], design: Design) -> Estimate:
    """Returns the chance that a question scores higher than one of its own versions.

    Its draws resample clusters; its trials are the tosses of a coin that would be as uncertain as
    ranks within clusters are without an effect.
    """
    values = score.to_numpy(np.float64)
    questions = np.bincount(design.cluster, design.is_question)
    others = np.bincount(design.cluster) - questions
    wins = np.zeros(len(questions))
    for cluster in range(len(questions)):
        inside = design.cluster == cluster
        high, low = values[inside & design.is_question], values[inside & ~design.is_question]
        wins[cluster] = np.mean((high[:, None] > low) + 0.5 * (high[:, None] == low))
    rng = np.random.default_rng(derive_seed(SEED, "pairs"))
    draws = wins[rng.integers(len(wins), size=(DRAWS, len(wins)))].mean(axis=1)
    trials = float((3 * questions * others / (questions + others + 1)).sum())
    sides = int(questions.sum()), int(others.sum())
    return Estimate(*sides, float(wins.mean()), draws, trials)


def question_p_values(score: Scores, design: Design) -> Scores:
    """Returns the p-value of each question: the chance that a text scores so high by itself.

    Against versions: the question's rank within its own cluster, 1/K at least for K texts. (The
    other clusters' versions are no comparison, because what leaked shifts the means of clusters.)
    Against fresh questions: conformal, each cluster of them counting as one.
    """
    is_question, cluster = design.is_question, design.cluster
    if not design.is_paired:
        return clustered_p_values(
            score[is_question], cluster[is_question], score[~is_question], cluster[~is_question]
        )
    higher = (score[None, ~is_question] >= score[is_question, None]) & (
        cluster[None, ~is_question] == cluster[is_question, None]
    )
    others = np.bincount(cluster[~is_question], minlength=cluster.max() + 1)
    p_values: Scores = (1 + higher.sum(axis=1)) / (1 + others[cluster[is_question]])
    return p_values


def least_question_p(design: Design) -> float:
    """Returns the least p-value that a question can have, however high it scores."""
    if design.is_paired:
        return float(1 / np.bincount(design.cluster).max())
    return 1 / (1 + design.units[1])

"""The comparison of one benchmark's questions with texts that cannot have leaked, for one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.audits.benchmark.exchangeability import (
    Flags,
    SetTest,
    combined_scores,
    set_test,
    without_cluster_means,
)
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import Estimate, confidence_interval
from contamination.core.statistics.metrics import AUROC
from contamination.core.statistics.significance import clustered_p_values
from contamination.data.texts import Texts
from contamination.detection.baselines.blind import BlindBaseline, blind_baseline, blind_obstacle
from contamination.detection.evaluation import CONFIDENCE, estimate_group, group_by_method

COMBINED = "combined"
"""The name of the combination of all methods."""
FEWEST = 10
"""The fewest questions, and comparison texts: fewer could show only enormous effects."""
LEAKED, NO_EVIDENCE, UNDETERMINED = "leaked", "no evidence", "cannot be determined"


@dataclass(frozen=True)
class Comparison:
    """What is known about one benchmark and one model.

    Attributes:
        benchmark: its name; empty if the questions name none.
        model: the model's name.
        questions: their number.
        others: the number of comparison texts.
        obstacle: why nothing can be determined, or "".
        test: the test of the set; None if there is an obstacle.
        blind_p: the p-value of the same question asked of the texts alone; None if it was not.
        estimates: AUROC and matched AUROC of each method and of the combination.
        ranking: one row per question: example_id, text, score, p_value, adjusted.
    """

    benchmark: str
    model: str
    questions: int
    others: int
    obstacle: str
    test: SetTest | None = None
    blind_p: float | None = None
    estimates: Mapping[tuple[str, str], Mapping[str, Estimate]] | None = None
    ranking: pd.DataFrame | None = None
    scores: tuple[Scores, Scores] | None = None

    def verdict(self, adjusted_p: float, alpha: float) -> str:
        """Returns one of the three verdicts, given the p-value corrected for all benchmarks."""
        if self.test is None or (self.blind_p is not None and self.blind_p <= alpha):
            return UNDETERMINED
        return LEAKED if adjusted_p <= alpha else NO_EVIDENCE

    def estimate(self, metric: str, method: tuple[str, str] = (COMBINED, "")) -> Estimate | None:
        """Returns the estimate of a metric, if there is one."""
        return (self.estimates or {}).get(method, {}).get(metric)

    @property
    def effect(self) -> tuple[float, float, float]:
        """d′ and its 95% interval: those of the AUROC A, as √2 Φ⁻¹(A) (Green and Swets 1966)."""
        auroc = self.estimate(AUROC.name)
        assert auroc is not None
        low, high = confidence_interval(auroc, CONFIDENCE)
        return tuple(d_prime(v, self.questions, self.others) for v in (auroc.value, low, high))  # type: ignore[return-value]


def d_prime(auroc: float, questions: int, others: int) -> float:
    """Returns √2 Φ⁻¹(AUROC), the distance of two normal distributions of equal width.

    An AUROC of 0 or 1 counts as half a pair less, so that the result is finite.
    """
    from scipy.stats import norm

    half_pair = 0.5 / (questions * others)
    return float(np.sqrt(2) * norm.ppf(np.clip(auroc, half_pair, 1 - half_pair)))


def compare(
    benchmark: str,
    model: str,
    texts: Texts,
    scores: pd.DataFrame,
    seed: int,
    alpha: float,
    blind: BlindBaseline | None,
    unusable: str = "",
) -> Comparison:
    """Compares a benchmark's questions (label 1) with its other texts (label 0).

    Args:
        benchmark: its name.
        model: the model's name.
        texts: the texts, all labelled.
        scores: the model's scores of them; see `detection.scores.Scores.table`.
        seed: of the relabellings.
        alpha: the level of the test.
        blind: the blind baseline of the texts (see `blind_of`), or None.
        unusable: why the texts cannot be compared, or "".
    """
    ranked = scores[scores["ranked"]]
    texts = texts.take(np.flatnonzero(np.isin(texts.column("example_id"), ranked["example_id"])))
    is_question, cluster = labels_and_clusters(texts)
    sizes = int(is_question.sum()), int((~is_question).sum())
    obstacle = unusable or _too_few(sizes, cluster, is_question)
    if obstacle:
        return Comparison(benchmark, model, *sizes, obstacle)
    table = ranked[ranked["default"]].pivot_table(
        index="example_id", columns=["method", "variant"], values="score"
    )
    by_method = table.loc[texts.column("example_id").to_pylist()].to_numpy().T
    score = without_cluster_means(combined_scores(by_method), is_question, cluster)
    return Comparison(
        benchmark, model, *sizes, "",
        test=set_test(score, is_question, cluster, derive_seed(seed, benchmark), alpha),
        blind_p=None if blind is None else blind_p_value(blind, is_question),
        estimates=_estimates(texts, ranked, score, blind),
        ranking=_ranking(texts, score, is_question, cluster),
        scores=(score[is_question], score[~is_question]),
    )  # fmt: skip


def labels_and_clusters(texts: Texts) -> tuple[Flags, NDArray[np.intp]]:
    """Returns which texts are questions, and the number of each text's cluster from 0."""
    ids, clusters = texts.column("example_id").to_pylist(), texts.column("cluster").to_pylist()
    names = [cluster or f"\0{name}" for cluster, name in zip(clusters, ids, strict=True)]
    labels = texts.column("label").to_numpy(zero_copy_only=False).astype(bool)
    return labels, np.unique(names, return_inverse=True)[1]


def blind_of(texts: Texts, seed: int) -> BlindBaseline | None:
    """Returns the blind baseline of a benchmark's texts; None if there are too few."""
    is_question, cluster = labels_and_clusters(texts)
    strings = texts.column("text").to_pylist()
    group = cluster if cluster.max() + 1 < len(cluster) else None
    within = has_both_sides(is_question, cluster)
    if blind_obstacle(strings, is_question, None if within else group):
        return None
    return blind_baseline(
        strings, is_question, derive_seed(seed, "blind"), group=group, within_groups=within
    )


def has_both_sides(is_question: Flags, cluster: NDArray[np.intp]) -> bool:
    """Returns whether some cluster has questions and other texts: versions of one question."""
    return bool(np.intersect1d(cluster[is_question], cluster[~is_question]).size)


def blind_p_value(blind: BlindBaseline, is_question: Flags) -> float:
    """Returns the share of shuffled labellings with at least the real labels' blind AUROC."""
    aurocs = blind.percentiles[is_question].mean(axis=0)
    return float((aurocs >= aurocs[0] - 1e-12).sum() / len(aurocs))  # counts the real one


def _too_few(sizes: tuple[int, int], cluster: NDArray[np.intp], is_question: Flags) -> str:
    units = [len(np.unique(cluster[side])) for side in (is_question, ~is_question)]
    if min(units) >= FEWEST:
        return ""
    clusters = "" if units == [*sizes] else f" in {units[0]} and {units[1]} clusters"
    return (
        f"{sizes[0]} questions and {sizes[1]} comparison texts{clusters} are too few: "
        f"{FEWEST} of each are needed"
    )


def _estimates(
    texts: Texts, ranked: pd.DataFrame, score: Scores, blind: BlindBaseline | None
) -> dict[tuple[str, str], Mapping[str, Estimate]]:
    """Returns AUROC and matched AUROC by method, the combination first."""
    combined = pd.DataFrame({
        "example_id": texts.column("example_id").to_pylist(), "score": score,
    })  # fmt: skip
    tables = [((COMBINED, ""), combined), *group_by_method([ranked])]
    baseline_options = {} if blind is None else {"match": True, "baseline": lambda *_, **__: blind}
    group = estimate_group("", tables, [*texts], blind is not None, [AUROC], **baseline_options)  # type: ignore[arg-type]
    return {method: dict(estimates) for method, estimates in group.estimates.items()}


def _ranking(
    texts: Texts, score: Scores, is_question: Flags, cluster: NDArray[np.intp]
) -> pd.DataFrame:
    """Returns the questions, likeliest first, with conformal p-values and their correction.

    A p-value is the chance that a comparison text scores at least as high; the correction is of
    Benjamini and Hochberg (1995), so that at most the share `adjusted` of the questions with that
    or a lower value is expected to be listed wrongly.
    """
    from scipy.stats import false_discovery_control

    p_values = clustered_p_values(
        score[is_question], cluster[is_question], score[~is_question], cluster[~is_question]
    )
    questions = texts.take(np.flatnonzero(is_question))
    table = pd.DataFrame({
        "example_id": questions.column("example_id").to_pylist(),
        "text": questions.column("text").to_pylist(),
        "score": score[is_question],
        "p_value": p_values,
        "adjusted": false_discovery_control(p_values),
    })  # fmt: skip
    return table.sort_values(["score", "example_id"], ascending=[False, True], ignore_index=True)


def by_benchmark(texts: Texts) -> Mapping[str, Texts]:
    """Returns the texts of each benchmark, by its name, in alphabetical order."""
    names = np.array(texts.column("benchmark").to_pylist())
    return {str(name): texts.take(np.flatnonzero(names == name)) for name in np.unique(names)}


def holm_by_model(comparisons: Sequence[Comparison]) -> dict[tuple[str, str], float]:
    """Returns each test's p-value, corrected for the benchmarks of its model (Holm 1979)."""
    from contamination.core.statistics.significance import holm_correction

    adjusted: dict[tuple[str, str], float] = {}
    for model in dict.fromkeys(c.model for c in comparisons):
        tested = [c for c in comparisons if c.model == model and c.test is not None]
        values: Any = holm_correction(
            np.array([c.test.p_value for c in tested if c.test is not None])
        )
        adjusted |= {(model, c.benchmark): float(v) for c, v in zip(tested, values, strict=True)}
    return adjusted

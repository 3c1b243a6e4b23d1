"""The comparison of one benchmark's questions with texts that cannot have leaked, for one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.benchmark.blind import BLIND_LEVEL, BlindTests
from contamination.audits.benchmark.config import FEWEST
from contamination.audits.benchmark.effects import (
    COMBINED,
    Estimates,
    d_prime,
    estimates_of,
    least_question_p,
    paired_effect,
    question_p_values,
    spread_within_sides,
    without_cluster_means,
)
from contamination.audits.benchmark.exchangeability import (
    TINY,
    Design,
    SetTest,
    combined_scores,
    set_test,
)
from contamination.audits.benchmark.origin import design_of
from contamination.core.errors import DataError
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import Estimate
from contamination.core.statistics.metrics import AUROC
from contamination.core.terminal import counted
from contamination.data.texts import Texts

LEAKED, NO_EVIDENCE, UNDETERMINED = "leaked", "no evidence", "cannot be determined"


@dataclass(frozen=True)
class Comparison:
    """What is known about one benchmark and one model.

    Attributes:
        benchmark: its name; empty if the questions name none.
        model: the model's name.
        questions: their number, without those left out.
        others: the number of comparison texts, without those left out.
        obstacle: why nothing can be determined, or "".
        left_out: the texts of either side that the model cannot score.
        orphans: the texts that are left out because all of their other side are.
        test: the test of the set; None if there is an obstacle.
        smallest_effect: the d′ that would have been found with 80% power at the corrected level.
        effect: d′ and its 95% interval.
        blind: the tests of the texts alone; None where both sides have the same content (orders).
        reference_p: the p-value of the same test of a reference's scores; None without a reference.
        estimates: AUROC and matched AUROC of each method and of the combination.
        least_question_p: the least p-value that a single question can have.
        ranking: one row per question: example_id, text, score, p_value, adjusted.
        scores: the combined scores of questions and of others: of texts less their cluster's mean
            if comparisons are within clusters, otherwise the means of units.
        units: the clusters of questions and of others, if they are fewer than the texts and count
            as one each; None if texts count.
        is_paired: whether texts are compared within clusters.
    """

    benchmark: str
    model: str
    questions: int
    others: int
    obstacle: str
    left_out: int = 0
    orphans: int = 0
    test: SetTest | None = None
    smallest_effect: float = np.inf
    effect: tuple[float, float, float] = (np.nan, np.nan, np.nan)
    blind: BlindTests | None = None
    reference_p: float | None = None
    estimates: Estimates | None = None
    least_question_p: float = 1.0
    ranking: pd.DataFrame | None = None
    scores: tuple[Scores, Scores] | None = None
    units: tuple[int, int] | None = None
    is_paired: bool = False

    @property
    def blind_p(self) -> float | None:
        """The p-value of the same question asked of the texts alone; None if it was not."""
        return None if self.blind is None else self.blind.p_value

    @property
    def differs_without_leak(self) -> bool:
        """Whether the texts alone, or a model that cannot have seen them, show a difference."""
        found = (self.blind_p, self.reference_p)
        return any(p is not None and p <= BLIND_LEVEL for p in found)

    def verdict(self, adjusted_p: float, alpha: float) -> str:
        """Returns one of the three verdicts, given the p-value corrected for all tests."""
        untested = self.blind is not None and self.blind_p is None
        if self.test is None or untested or self.differs_without_leak:
            return UNDETERMINED
        return LEAKED if adjusted_p <= alpha else NO_EVIDENCE

    def estimate(self, metric: str, method: tuple[str, str] = (COMBINED, "")) -> Estimate | None:
        """Returns the estimate of a metric, if there is one."""
        return (self.estimates or {}).get(method, {}).get(metric)


def compare(
    benchmark: str,
    model: str,
    texts: Texts,
    scores: pd.DataFrame,
    seed: int,
    alpha: float,
    blind_tests: Callable[[Texts], BlindTests] | None,
    reference_scores: pd.DataFrame | None = None,
) -> Comparison:
    """Compares a benchmark's questions (label 1) with its other texts (label 0).

    Args:
        benchmark: its name.
        model: the model's name.
        texts: the texts, all labelled; equal ones are in one cluster.
        scores: the model's scores of them; see `detection.scores.Scores.table`.
        seed: of the relabellings.
        alpha: the level of this test, corrected for all tests.
        blind_tests: compares the texts alone (see `blind.blind_tests`); None where the sides have
            the same content.
        reference_scores: scores by a model that has not seen the questions.

    Raises:
        DataError: a method's score of a text is missing or no number.
    """
    every = texts
    texts, left_out = _ranked(texts, scores)
    design = design_of(texts)
    sizes = design.sizes
    orphans = len(every) - left_out - len(texts)
    obstacle = too_few(design, left_out)
    by_method = np.empty((0, len(texts))) if obstacle else scores_by_method(texts, scores)
    if not obstacle and (np.ptp(by_method, axis=1) <= TINY).all():
        obstacle = "all texts have the same score"
    if obstacle:
        return Comparison(benchmark, model, *sizes, obstacle, left_out, orphans)
    score = combined_scores(by_method)
    test = set_test(score, design, derive_seed(seed, benchmark), alpha)
    blind = None if blind_tests is None else blind_tests(texts)
    ranked = scores[scores["example_id"].isin(texts.column("example_id").to_pylist())]
    estimates = estimates_of(
        texts, ranked, score, design, None if blind is None else blind.baseline
    )
    spread = spread_within_sides(score, design, len(score))
    centred = without_cluster_means(score, design)
    return Comparison(
        benchmark, model, *sizes, "", left_out, orphans,
        test=test,
        smallest_effect=test.smallest_difference / spread if spread > TINY else np.inf,
        effect=paired_effect(score, design) if design.is_paired
        else d_prime(estimates[COMBINED, ""][AUROC.name], design.units),
        blind=blind,
        reference_p=None if reference_scores is None
        else _reference_p(texts, reference_scores, derive_seed(seed, "reference", benchmark)),
        estimates=estimates,
        least_question_p=least_question_p(design),
        ranking=_ranking(texts, centred),
        scores=_scores_by_side(centred, design),
        units=None if design.is_paired or len(texts) == sum(design.units) else design.units,
        is_paired=design.is_paired,
    )  # fmt: skip


def _scores_by_side(score: Scores, design: Design) -> tuple[Scores, Scores]:
    is_question = design.is_question
    if not design.is_paired:
        score, is_question = design.unit_means(score), is_question[design.first_texts]
    return score[is_question], score[~is_question]


def _ranked(texts: Texts, scores: pd.DataFrame) -> tuple[Texts, int]:
    """Returns the texts that no method calls unrankable (too short), and how many one does.

    If all clusters had both sides, those that have lost one are left out as well: a question
    without a version left would make single texts of all.
    """
    unranked = scores.loc[~scores["ranked"].astype(bool), "example_id"]
    is_unranked = np.isin(texts.column("example_id"), unranked)
    ranked = texts.take(np.flatnonzero(~is_unranked))
    if len(ranked) and design_of(texts).is_paired:
        ranked = ranked.take(np.flatnonzero(design_of(ranked).is_in_mixed_cluster))
    return ranked, int(is_unranked.sum())


def scores_by_method(texts: Texts, scores: pd.DataFrame) -> Scores:
    """Returns each method's scores of the texts (M × n), in the texts' order.

    Raises:
        DataError: one is missing or no number.
    """
    rows = scores[scores["default"]].set_index(["example_id", "method", "variant"])
    table: pd.DataFrame = rows["score"].unstack(["method", "variant"])
    table = table.reindex(texts.column("example_id").to_pylist())
    values: Scores = table.to_numpy(np.float64).T
    faults = np.argwhere(~np.isfinite(values))
    if len(faults):
        (method, variant), name = table.columns[faults[0][0]], table.index[faults[0][1]]
        value = values[tuple(faults[0])]
        raise DataError(
            f"{f'{method} {variant}'.strip()}: its score of the text {name} is "
            f"{'missing' if np.isnan(value) else value}. Leave out the text or the method."
        )
    return values


def _reference_p(texts: Texts, scores: pd.DataFrame, seed: int) -> float:
    """Returns the p-value of the test of the reference's scores, of the texts that it can score."""
    texts, _ = _ranked(texts, scores)
    score = combined_scores(scores_by_method(texts, scores))
    return set_test(score, design_of(texts), seed).p_value


def too_few(design: Design, left_out: int = 0) -> str:
    """Returns that there are too few units on a side, or "".

    Args:
        design: the labels and clusters.
        left_out: how many texts are not among them, because they are too short to score.
    """
    sizes, units = design.sizes, design.units
    if min(units) >= FEWEST:
        return ""
    clusters = "" if units == sizes else f" in {units[0]} and {units[1]} clusters"
    others = counted(sizes[1], "comparison text")
    short = (
        f" ({counted(left_out, 'text')} too short for the model to score not counted)"
        if left_out else ""
    )  # fmt: skip
    return (
        f"{counted(sizes[0], 'question')} and {others}{clusters} are too few{short}: "
        f"{FEWEST} of each are needed"
    )


def _ranking(texts: Texts, score: Scores) -> pd.DataFrame:
    """Returns the questions, likeliest first, with conformal p-values and their correction.

    The correction is of Benjamini and Hochberg (1995), so that at most the share `adjusted` of the
    questions with that or a lower value is expected to be listed wrongly.
    """
    from scipy.stats import false_discovery_control

    design = design_of(texts)
    p_values = question_p_values(score, design)
    questions = texts.take(np.flatnonzero(design.is_question))
    table = pd.DataFrame({
        "example_id": questions.column("example_id").to_pylist(),
        "text": questions.column("text").to_pylist(),
        "score": score[design.is_question],
        "p_value": p_values,
        "adjusted": false_discovery_control(p_values),
    })  # fmt: skip
    return table.sort_values(["score", "example_id"], ascending=[False, True], ignore_index=True)


def by_benchmark(texts: Texts) -> Mapping[str, Texts]:
    """Returns the texts of each benchmark, by its name, in alphabetical order."""
    names = np.array(texts.column("benchmark").to_pylist())
    return {str(name): texts.take(np.flatnonzero(names == name)) for name in np.unique(names)}


def holm(comparisons: Sequence[Comparison]) -> dict[tuple[str, str], float]:
    """Returns each test's p-value, corrected for all models and benchmarks (Holm 1979)."""
    from contamination.core.statistics.significance import holm_correction

    tested = [(c, c.test.p_value) for c in comparisons if c.test is not None]
    values: Any = holm_correction(np.array([p for _, p in tested], float))
    return {(c.model, c.benchmark): float(v) for (c, _), v in zip(tested, values, strict=True)}

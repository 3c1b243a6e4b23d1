"""Do the two sets differ as texts? Two tests that see no model, with the relabellings of the audit.

The first is a classifier that learns from the texts themselves (`detection.baselines.blind`): it
finds what many texts of one side have in common. The second scores each text by how usual its words
and neighbours are in other English (`detection.baselines.words`): it finds misspelt or rearranged
words, which are another in every text. The blind p-value is the smaller of both, doubled
(Bonferroni).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from contamination.audits.benchmark.exchangeability import (
    TINY,
    Design,
    combined_scores,
    largest_statistic_test,
    studentised,
)
from contamination.audits.benchmark.origin import design_of
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Scores
from contamination.data.texts import Texts
from contamination.detection.baselines.blind import (
    SHUFFLES,
    BlindBaseline,
    blind_obstacle,
    cross_fitted_percentiles,
)
from contamination.detection.baselines.words import word_scores

BLIND_LEVEL = 0.05
"""The verdict is open if the blind p-value is at most this, whatever the level of the audit is: a
stricter audit does not make two sets more alike."""
NO_CORPUS = (
    "How usual the words are was not tested, because the embedded corpus is not installed (pip "
    "install 'contamination-testbed[embedded]'): a difference such as misspelt words may be missed."
)


@dataclass(frozen=True)
class BlindTests:
    """The tests of the texts alone.

    Attributes:
        obstacle: why there are none, or "".
        classifier_p: the p-value of the classifier, one-sided.
        words_p: that of words and word pairs, two-sided; None without the embedded corpus.
        baseline: the classifier's percentiles, to match on.
    """

    obstacle: str = ""
    classifier_p: float | None = None
    words_p: float | None = None
    baseline: BlindBaseline | None = None

    @property
    def p_value(self) -> float | None:
        """The p-value of both tests; None if there are none."""
        found = [p for p in (self.classifier_p, self.words_p) if p is not None]
        return min(1.0, len(found) * min(found)) if found else None


def blind_tests(texts: Texts, seed: int) -> BlindTests:
    """Compares the two sides of one benchmark as texts.

    Args:
        texts: the texts, all labelled; equal ones are in one cluster.
        seed: of the folds and the relabellings.
    """
    design, strings = design_of(texts), texts.column("text").to_pylist()
    if obstacle := blind_obstacle(strings, design.is_question, design.cluster):
        return BlindTests(obstacle)
    blocks = design.relabellings(SHUFFLES, derive_seed(seed, "nulls"))
    labels = np.concatenate([design.is_question[None], *blocks])
    percentiles, style = cross_fitted_percentiles(
        strings, labels.T, design.cluster, derive_seed(seed, "blind")
    )
    statistic = studentised(*design.differences(percentiles.T, labels))
    words = word_scores(strings)
    return BlindTests(
        classifier_p=float((statistic >= statistic[0] - TINY).sum() / len(statistic)),
        words_p=None if words is None else _words_p(words, design, derive_seed(seed, "words")),
        baseline=BlindBaseline(_on_actual_sides(percentiles, labels.T), style),
    )


def _words_p(words: Scores, design: Design, seed: int) -> float:
    return largest_statistic_test(
        np.stack([combined_scores(score[None]) for score in words]), design, seed
    )


def _on_actual_sides(
    percentiles: Scores, labels: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
) -> Scores:
    """Returns the percentiles (n × P) with each labelling's members in the actual members' rows.

    Clusters of unequal size give a labelling another number of members; rows are then repeated or
    left out.
    """
    placed, actual = np.empty(percentiles.shape), labels[:, 0]
    for column, (values, is_member) in enumerate(zip(percentiles.T, labels.T, strict=True)):
        placed[actual, column] = np.resize(values[is_member], int(actual.sum()))
        placed[~actual, column] = np.resize(values[~is_member], int((~actual).sum()))
    return placed


def cached_blind_tests(seed: int) -> Callable[[Texts], BlindTests]:
    """Returns `blind_tests` with a cache, because several models are asked about the same texts."""
    known: dict[Sequence[str], BlindTests] = {}

    def tests(texts: Texts) -> BlindTests:
        key = (*texts.column("example_id").to_pylist(),)
        if key not in known:
            known[key] = blind_tests(texts, seed)
        return known[key]

    return tests

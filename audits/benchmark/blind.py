"""Do the two sets differ as texts? Three tests that see no model, with relabellings as the audit's.

The first is a classifier that learns from the texts themselves (`detection.baselines.blind`): it
finds what many texts of one side have in common. The second compares their shapes, which are the
texts with words reduced to their case: it finds consistent changes of punctuation, blanks, case,
digits, beginnings and ends in few texts. The third scores each text by how usual its words and
neighbours are in other English (`detection.baselines.words`): it finds misspelt, rearranged or
missing words, which are another in every text. The blind p-value is the smallest of the three,
multiplied by their number (Bonferroni).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from contamination.audits.benchmark.exchangeability import (
    TINY,
    Design,
    Flags,
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
from contamination.detection.baselines.classifiers import VISIBLE, count_shared_n_grams
from contamination.detection.baselines.words import word_scores

BLIND_LEVEL = 0.05
"""The verdict is open if the blind p-value is at most this, whatever the level of the audit is: a
stricter audit does not make two sets more alike."""
RELABELLINGS = 1_999
"""Of the tests of shapes and words."""
LETTERS, NUMBER = re.compile(r"[^\W\d_]+"), re.compile(r"\d+")
SHAPE_GRAMS = (1, 3)
START, END = "\2", "\3"
"""The ends of a shape."""
FEWEST_OTHERS = 4
"""The fewest texts that must differ from the commonest count; fewer could show no difference."""
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
        shapes_p: that of the shapes, two-sided.
        words_p: that of the words, two-sided; None without the embedded corpus.
        baseline: the classifier's mean percentiles of the units, to match on.
    """

    obstacle: str = ""
    classifier_p: float | None = None
    shapes_p: float | None = None
    words_p: float | None = None
    baseline: BlindBaseline | None = None

    @property
    def p_value(self) -> float | None:
        """The p-value of all tests; None if there are none."""
        tests = (self.classifier_p, self.shapes_p, self.words_p)
        p_values = [p for p in tests if p is not None]
        return min(1.0, len(p_values) * min(p_values)) if p_values else None


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
        shapes_p=_shapes_p(strings, design, derive_seed(seed, "shapes")),
        words_p=None if words is None else _p_value(words, design, derive_seed(seed, "words")),
        baseline=BlindBaseline(
            _units_on_actual_sides(percentiles, labels, design),
            None if style is None else style.of_units(design.unit_of_text),
        ),
    )


def _shapes_p(texts: Sequence[str], design: Design, seed: int) -> float:
    """Returns the p-value of the shapes, by one text of each cluster.

    Means over clusters of unequal size would be more or less discrete, so that a count that few
    texts have would differ in nearly each such set.
    """
    rows = design.representatives(seed)
    return _p_value(shape_counts([texts[i] for i in rows]), design.of_texts(rows), seed)


def _p_value(numbers: Scores, design: Design, seed: int) -> float:
    """Returns the p-value of the numbers of the texts (S × n), of which only the ranks count."""
    if not len(numbers):
        return 1.0
    scores = np.stack([combined_scores(of_texts[None]) for of_texts in numbers])
    return largest_statistic_test(scores, design, seed, RELABELLINGS)


def shape_counts(texts: Sequence[str]) -> Scores:
    """Returns the length of texts, and how often each n-gram is in their shapes (counts × n).

    Left out are counts that nearly all texts share, and all but one of equal ones.
    """
    shapes = [f"{START}{shape_of(text)}{END}".translate(VISIBLE) for text in texts]
    grams = count_shared_n_grams(
        shapes, np.arange(len(texts)), analyzer="char", ngram_range=SHAPE_GRAMS
    )
    counts = np.vstack([[len(text) for text in texts], grams.toarray().T])
    commonest = np.array([np.unique(row, return_counts=True)[1].max() for row in counts])
    distinct: Scores = np.unique(counts[len(texts) - commonest >= FEWEST_OTHERS], axis=0)
    return distinct


def shape_of(text: str) -> str:
    """Returns a text with each word as a, A, AA, Aa or aA, by its case, and each number as 0."""
    return NUMBER.sub("0", LETTERS.sub(_case, text))


def _case(word: re.Match[str]) -> str:
    letters = word[0]
    if letters.islower():
        return "a"
    if letters.isupper():
        return "A" if len(letters) == 1 else "AA"
    return "Aa" if letters.istitle() else "aA"


def _units_on_actual_sides(percentiles: Scores, labels: Flags, design: Design) -> Scores:
    """Returns the units' mean percentiles (U × P), with members' in the actual members' rows.

    Each labelling (P × n) has as many units of members, and as many others.
    """
    is_member = design.is_question[design.first_texts]
    placed = np.empty((len(is_member), len(labels)))
    for column, (values, is_question) in enumerate(zip(percentiles.T, labels, strict=True)):
        relabelled = Design(is_question, design.cluster)
        means, on_side = relabelled.unit_means(values), is_question[relabelled.first_texts]
        placed[is_member, column], placed[~is_member, column] = means[on_side], means[~on_side]
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

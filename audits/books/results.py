"""From scores of snippets to what is said of each suspect; no files, no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contamination.audits.books.rates import (
    RANKS,
    Corrected,
    Rates,
    correct,
    normal_p_values,
    q_values,
    rank_p_values,
    separates,
)
from contamination.audits.books.selection import HeldOut, Judged, Rule, Validation, hold_out
from contamination.core.seeds import derive
from contamination.core.statistics.bootstrap import Scores
from contamination.detection.evaluation import Key


@dataclass(frozen=True)
class BookScores:
    """A book's snippets as the candidates score them.

    Attributes:
        title: the book's.
        scores: C × snippets.
        independent: as how many snippets they count: fewer than there are where they overlap.
    """

    title: str
    scores: Scores
    independent: int


@dataclass(frozen=True)
class Suspect:
    """What is said of a suspect.

    Attributes:
        title: the book's.
        snippets: how many were scored.
        rate: its contamination rate, the share of its snippets above the threshold.
        corrected: the share of it that was trained on; None where that can't be told.
        p: how likely a book that was not trained on has such a rate.
        q: the same with Benjamini and Hochberg's correction over the suspects.
    """

    title: str
    snippets: int
    rate: float
    corrected: Corrected | None
    p: float
    q: float


@dataclass(frozen=True)
class Result:
    """All that is said.

    Attributes:
        candidates: as they are tried.
        rule: the candidate and the threshold that are used.
        judged: each candidate.
        positives: rates of the positives by rules that were chosen without them.
        negatives: those of the negatives.
        told: whether the positives' are above the negatives' for certain.
        suspects: the highest contamination rate first.
        least_p: each suspect's p if all its snippets were above the threshold: it has no lower one.
    """

    candidates: Sequence[Key]
    rule: Rule
    judged: Sequence[Judged]
    positives: Rates
    negatives: Rates
    told: bool
    suspects: Sequence[Suspect]
    least_p: Scores

    def needed_together(self, alpha: float) -> int | None:
        """How many suspects must have their least p for one of them to be found.

        1: each can be found whatever the others' p. None: none can be found, even if all have.
        """
        least = np.sort(self.least_p)
        ranks = np.arange(1, len(least) + 1)
        enough = ranks[least * len(least) / ranks <= alpha]
        return int(enough[0]) if len(enough) else None

    @property
    def chosen(self) -> Judged:
        """The candidate that is used."""
        return self.judged[self.rule.candidate]


def audited(
    candidates: Sequence[Key],
    positives: Sequence[BookScores],
    negatives: Sequence[BookScores],
    suspects: Sequence[BookScores],
    null_model: str = RANKS,
    seed: int = 0,
) -> Result:
    """Choose on the validation books, and say of each suspect what share was trained on.

    Args:
        candidates: methods and variants, in the order of the scores' rows.
        positives: books that were trained on, 2 or more.
        negatives: books that were not, 2 or more.
        suspects: 1 or more.
        null_model: of the p-values, one of `significance.NULL_MODELS`.
        seed: draws the folds and the intervals.
    """
    scores = [[book.scores for book in side] for side in (positives, negatives)]
    validation = Validation(candidates, scores[0], scores[1], derive(seed, "validation"))
    held_out, rule = hold_out(validation), validation.chosen()
    t, f = _rates(held_out.positives, positives), _rates(held_out.negatives, negatives)
    rates = np.array([held_out.rates(book.scores) for book in suspects])
    counts = np.array([book.independent for book in suspects], float)
    p, least_p = (
        _p_values(own, counts, held_out, f, null_model) for own in (rates, np.ones_like(rates))
    )
    told = separates(t, f)
    found = []
    for book, own, q in zip(suspects, p, q_values(p), strict=True):
        rate, observed = rule.rate(book.scores), float(held_out.rates(book.scores).mean())
        share = None
        if told:
            share = correct(observed, book.independent, t, f, derive(seed, "interval", book.title))
        found.append(Suspect(book.title, book.scores.shape[1], rate, share, float(own), float(q)))
    found.sort(key=lambda suspect: (-suspect.rate, suspect.title))
    return Result(candidates, rule, validation.judged(), t, f, told, found, least_p)


def _rates(values: Scores, books: Sequence[BookScores]) -> Rates:
    return Rates(values, np.array([book.independent for book in books], float))


def _p_values(
    rates: Scores, snippets: Scores, held_out: HeldOut, negatives: Rates, null_model: str
) -> Scores:
    if null_model == RANKS:
        return rank_p_values(rates, snippets, negatives, held_out.fold)
    return normal_p_values(rates.mean(axis=1), snippets, negatives)

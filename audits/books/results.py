"""Contamination rates, p-values and shares of the suspects, computed from scores of snippets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contamination.audits.books.contamination_rates import (
    RANKS,
    CorrectedRate,
    Rates,
    correct_rate,
    is_significantly_higher,
    normal_p_values,
    q_values,
    rank_p_values,
)
from contamination.audits.books.selection import (
    CandidateAccuracy,
    HeldOutRates,
    SnippetRule,
    ValidationScores,
    compute_held_out_rates,
)
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Scores
from contamination.detection.evaluation import MethodKey


@dataclass(frozen=True)
class BookScores:
    """The scores of a book's snippets.

    Attributes:
        title: the book's title.
        scores: the scores, candidates × snippets.
        effective_snippets: the effective number of independent snippets, lower if they overlap.
    """

    title: str
    scores: Scores
    effective_snippets: int


@dataclass(frozen=True)
class Suspect:
    """The result for one suspect.

    Attributes:
        title: the book's title.
        snippets: the number of its scored snippets.
        rate: its contamination rate, the share of its snippets above the threshold.
        corrected: the estimated share of the book that was trained on; None if it can't be
            estimated.
        p: the p-value: the probability that a book that was not trained on has such a rate.
        q: the p-value with Benjamini and Hochberg's correction over the suspects.
    """

    title: str
    snippets: int
    rate: float
    corrected: CorrectedRate | None
    p: float
    q: float


@dataclass(frozen=True)
class BooksResult:
    """The result for all books.

    Attributes:
        candidates: methods and variants, in the order of the scores' rows.
        rule: the chosen candidate and threshold.
        accuracies: the accuracy of each candidate.
        positives: the rates of the positives, by rules that were chosen without them.
        negatives: the rates of the negatives, by rules that were chosen without them.
        separated: whether the positives' rates are significantly above the negatives'.
        suspects: the suspects, those with the highest contamination rate first.
        lowest_p: the p-value of each suspect if all its snippets were above the threshold.
    """

    candidates: Sequence[MethodKey]
    rule: SnippetRule
    accuracies: Sequence[CandidateAccuracy]
    positives: Rates
    negatives: Rates
    separated: bool
    suspects: Sequence[Suspect]
    lowest_p: Scores

    def suspects_needed_together(self, alpha: float) -> int | None:
        """Returns how many suspects must have their lowest p for one to be significant.

        Args:
            alpha: the false discovery rate.

        Returns:
            1 if each can be significant whatever the p-values of the others; None if none can be,
            even if all suspects have their lowest p.
        """
        ascending = np.sort(self.lowest_p)
        ranks = np.arange(1, len(ascending) + 1)
        sufficient = ranks[ascending * len(ascending) / ranks <= alpha]
        return int(sufficient[0]) if len(sufficient) else None

    @property
    def chosen_accuracy(self) -> CandidateAccuracy:
        """The accuracy of the chosen candidate."""
        return self.accuracies[self.rule.candidate]


def audit_books(
    candidates: Sequence[MethodKey],
    positives: Sequence[BookScores],
    negatives: Sequence[BookScores],
    suspects: Sequence[BookScores],
    null_model: str = RANKS,
    seed: int = 0,
) -> BooksResult:
    """Chooses a rule on the validation books, and estimates each suspect's share with it.

    Args:
        candidates: methods and variants, in the order of the scores' rows.
        positives: books that were trained on, 2 or more.
        negatives: books that were not trained on, 2 or more.
        suspects: the books in question, 1 or more.
        null_model: how p-values are computed, one of `rates.NULL_MODELS`.
        seed: the seed of the folds and the intervals.
    """
    positive_scores, negative_scores = (
        [book.scores for book in books] for books in (positives, negatives)
    )
    seed_of_folds = derive_seed(seed, "validation")
    validation = ValidationScores(candidates, positive_scores, negative_scores, seed_of_folds)
    held_out, rule = compute_held_out_rates(validation), validation.choose_rule()
    positive_rates = _make_rates(held_out.positives, positives)
    negative_rates = _make_rates(held_out.negatives, negatives)
    rates = np.array([held_out.rate_by_each_rule(book.scores) for book in suspects])
    snippets = np.array([book.effective_snippets for book in suspects], float)
    p_values, lowest_p = (
        _p_values(suspect_rates, snippets, held_out, negative_rates, null_model)
        for suspect_rates in (rates, np.ones_like(rates))
    )
    separated = is_significantly_higher(positive_rates, negative_rates)
    results = []
    for book, p, q in zip(suspects, p_values, q_values(p_values), strict=True):
        observed, share = float(held_out.rate_by_each_rule(book.scores).mean()), None
        if separated:
            seed_of_interval = derive_seed(seed, "interval", book.title)
            share = correct_rate(
                observed, book.effective_snippets, positive_rates, negative_rates, seed_of_interval
            )
        rate = rule.contamination_rate(book.scores)
        results.append(Suspect(book.title, book.scores.shape[1], rate, share, float(p), float(q)))
    results.sort(key=lambda suspect: (-suspect.rate, suspect.title))
    return BooksResult(
        candidates,
        rule,
        validation.candidate_accuracies(),
        positive_rates,
        negative_rates,
        separated,
        results,
        lowest_p,
    )


def _make_rates(values: Scores, books: Sequence[BookScores]) -> Rates:
    return Rates(values, np.array([book.effective_snippets for book in books], float))


def _p_values(
    rates: Scores, snippets: Scores, held_out: HeldOutRates, negatives: Rates, null_model: str
) -> Scores:
    if null_model == RANKS:
        return rank_p_values(rates, snippets, negatives, held_out.fold)
    return normal_p_values(rates.mean(axis=1), snippets, negatives)

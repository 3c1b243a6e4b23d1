"""Evaluates the scores of the books' snippets, and those of a classifier without the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from contamination.audits.base import AuditResult
from contamination.audits.books.reading import ROLES, Book, describe_boilerplate
from contamination.audits.books.report import AuditedBooks, build_report
from contamination.audits.books.results import BookScores, audit_books
from contamination.audits.books.snippets import BookSnippets, SnippetPlan, check_snippet_count
from contamination.core.artifacts import Artifact
from contamination.core.seeds import derive_seed
from contamination.core.statistics.estimates import confidence_interval
from contamination.core.statistics.metrics import AUROC
from contamination.detection.baselines.blind import FOLDS, blind_baseline
from contamination.detection.evaluation import CONFIDENCE, DRAWS, MethodKey, group_by_method
from contamination.detection.scores import open_scores

MAX_BLIND_SNIPPETS = 1_000
"""The maximum number of snippets for the blind baseline, the same number from each book."""
MIN_FOLDS = 3
"""The number of folds of the blind baseline if there are few books."""


def conduct_audit(
    books: Sequence[Book],
    snippets: Mapping[str, BookSnippets],
    scores: Artifact,
    plan: SnippetPlan,
    model: str,
    null_model: str,
    folder: Path,
) -> AuditResult:
    """Returns the report on the scored books.

    Args:
        books: the books of all roles.
        snippets: the snippets of each book, by its role and title.
        scores: the folder of the snippets' scores.
        plan: how the snippets were drawn.
        model: the model's name in the report.
        null_model: how p-values are computed.
        folder: the audit's unfinished folder, into which nothing is written here.
    """
    candidates, score_matrix = _candidates_and_scores(scores)
    by_role = {role: [book for book in books if book.role == role] for role in ROLES}
    book_scores = {
        role: [
            _book_scores(book, snippets[book.role_and_title], score_matrix)
            for book in by_role[role]
        ]
        for role in ROLES
    }
    positives, negatives, suspects = (book_scores[role] for role in ROLES)
    result = audit_books(candidates, positives, negatives, suspects, null_model, plan.seed)
    positive_snippets, negative_snippets = (
        [snippets[book.role_and_title] for book in by_role[role]]
        for role in ("positives", "negatives")
    )
    audited_books = AuditedBooks(
        model=model,
        plan=plan,
        null_model=null_model,
        scores=book_scores,
        snippets=snippets,
        blind=blind_auroc_and_interval(positive_snippets, negative_snippets, plan.seed),
        boilerplate=describe_boilerplate(books),
    )
    return build_report(result, audited_books)


def blind_auroc_and_interval(
    positives: Sequence[BookSnippets], negatives: Sequence[BookSnippets], seed: int
) -> tuple[float, float, float]:
    """Returns the AUROC of a classifier that never sees the model, and its 95% interval.

    All snippets of a book are in one fold, so that the classifier can't recognise a book. The
    interval comes from shuffling the labels of whole books.

    Returns:
        The AUROC, and the lower and upper end of its interval.
    """
    books = [*positives, *negatives]
    shortest = min(len(book.texts) for book in books)
    per_book = max(1, min(MAX_BLIND_SNIPPETS // len(books), shortest))
    texts = [
        book.texts[i].text
        for book in books
        for i in _evenly_spaced_indices(len(book.texts), per_book)
    ]
    book_index = np.repeat(np.arange(len(books)), per_book)
    is_member = book_index < len(positives)
    folds = FOLDS if len(books) >= 4 * FOLDS else MIN_FOLDS
    baseline = blind_baseline(texts, is_member, derive_seed(seed, "blind"), folds, book_index)
    member_and_nonmember_rows = np.flatnonzero(is_member), np.flatnonzero(~is_member)
    auroc = baseline.estimates(*member_and_nonmember_rows, [AUROC], DRAWS)[AUROC.name]
    return auroc.value, *confidence_interval(auroc, CONFIDENCE)


def _evenly_spaced_indices(length: int, number: int) -> list[int]:
    return [(2 * i + 1) * length // (2 * number) for i in range(number)]


def _candidates_and_scores(artifact: Artifact) -> tuple[list[MethodKey], pd.DataFrame]:
    """Returns the candidates, and their scores: one row per ranked snippet, one column each."""
    tables = dict(group_by_method(open_scores(artifact.path).tables()))
    score_columns = [rows.set_index("example_id")["score"] for rows in tables.values()]
    return [*tables], pd.concat(score_columns, axis=1, keys=range(len(tables)))


def _book_scores(book: Book, snippets: BookSnippets, score_matrix: pd.DataFrame) -> BookScores:
    ids = score_matrix.index.intersection([text.example_id for text in snippets.texts])
    check_snippet_count(book, len(ids))
    scores = score_matrix.loc[ids].to_numpy(np.float64).T
    return BookScores(book.title, scores, min(snippets.effective_count, len(ids)))

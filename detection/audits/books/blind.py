"""The blind row: do the texts alone tell positives from negatives?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.estimates import interval
from core.metrics import AUROC
from core.seeds import derive
from detection.audits.books.snippets import Drawn
from detection.blind import FOLDS, blind_baseline
from detection.evaluation import CONFIDENCE, DRAWS

TEXTS = 1_000
"""The most snippets that are compared, as many of each book."""
FEWEST_FOLDS = 3


def blind_auroc(
    positives: Sequence[Drawn], negatives: Sequence[Drawn], seed: int
) -> tuple[float, float, float]:
    """AUROC of a classifier that never sees the model, and its 95% interval.

    All snippets of a book are in one fold: the classifier can't know a book again. The interval is
    that of shuffling the labels of whole books.
    """
    books = [*positives, *negatives]
    each = max(1, min(TEXTS // len(books), *(len(book.texts) for book in books)))
    texts = [book.texts[i].text for book in books for i in _spread(len(book.texts), each)]
    group = np.repeat(np.arange(len(books)), each)
    member = group < len(positives)
    folds = FOLDS if len(books) >= 4 * FOLDS else FEWEST_FOLDS
    made = blind_baseline(texts, member, derive(seed, "blind"), folds, group)
    sides = np.flatnonzero(member), np.flatnonzero(~member)
    found = made.estimates(*sides, [AUROC], DRAWS)[AUROC.name]
    return found.value, *interval(found, CONFIDENCE)


def _spread(of: int, number: int) -> list[int]:
    """So many places, evenly spread."""
    return [(2 * i + 1) * of // (2 * number) for i in range(number)]

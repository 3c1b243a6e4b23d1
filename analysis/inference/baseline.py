"""The blind baseline: a text classifier that never sees the model.

Members are drawn at random from one pool, so nothing in a text tells whether it is a member. Where
this classifier does better than chance, the pool's two halves differ, and a detector's AUROC above
0.5 may show that difference rather than contamination (Das et al. 2024; Meeus et al. 2024).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from core.metrics import Scores
from core.seeds import derive

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

BLIND = "blind"
WORD_GRAMS = (1, 2)
CHARACTER_GRAMS = (3, 5)

REPEATS = 5
"""Draws of the folds. With one, the AUROC over 4 × 200 texts moved by 0.014 (a standard deviation,
from 0.43 to 0.51 over 50 draws) with the draw alone."""

SPREAD = 2**0.5
"""How much wider the baseline's intervals are than a bootstrap of its scores.

The out-of-fold score of a text depends on the labels of the others. Without a real difference the
baseline's AUROC is close to a quadratic form Σ y_i y_j k_ij over pairs of texts: of its variance,
resampling the scored texts, with their scores as they are, sees the share of i and misses the
equal one of j. On random labels for TruthfulQA, CommonsenseQA and IMDB texts, 95% intervals hold
0.5 in 80 to 87% of the cases without this factor, and in 92 to 96% with it.
"""


def blind_scores(examples: pd.DataFrame, folds: int, seed: int) -> Scores:
    """A score an example, in the order of `examples`: out-of-fold, a classifier a benchmark.

    NaN where a benchmark has fewer than two members or two non-members to learn from.
    """
    scores = np.full(len(examples), np.nan)
    for benchmark in sorted(examples["benchmark"].unique()):
        rows = np.flatnonzero(examples["benchmark"] == benchmark)
        part = examples.iloc[rows]
        member = part["member"].to_numpy(bool)
        possible = min(folds, int(member.sum()), int((~member).sum()))
        if possible < 2:
            log.warning("%s: too few examples for the blind baseline; it is left out.", benchmark)
            continue
        fold_seed = derive(seed, benchmark)
        scores[rows] = out_of_fold(part["text"].tolist(), member, possible, fold_seed)
    return scores


def out_of_fold(texts: Sequence[str], member: NDArray[np.bool_], folds: int, seed: int) -> Scores:
    """Each text's score by a logistic regression fitted on the other folds: the mean of REPEATS."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    # The dual problem has one unknown a text, the primal one a feature: ten times slower here.
    model = LogisticRegression(solver="liblinear", dual=True, max_iter=1000, random_state=0)
    matrix, found = features(texts), []
    for repeat in range(REPEATS):
        place = derive(seed, "folds", repeat) % 2**32
        splits = StratifiedKFold(folds, shuffle=True, random_state=place)
        found.append(
            cross_val_predict(model, matrix, member, cv=splits, method="decision_function")
        )
    return np.asarray(np.mean(found, axis=0), dtype=np.float64)


def features(texts: Sequence[str]) -> Any:
    """TF-IDF of word and character n-grams, and the length (sparse, texts × features).

    They are computed once over all texts: they use no label, so the folds stay honest. N-grams are
    hashed, which needs no vocabulary and can't fail on a text without words. TF-IDF rows have unit
    norm and so hide the length, which every likelihood score depends on: it gets its own column.
    """
    from scipy.sparse import csr_matrix, hstack

    grams = [_tf_idf(texts, "word", WORD_GRAMS), _tf_idf(texts, "char_wb", CHARACTER_GRAMS)]
    length = np.log1p([len(text) for text in texts])
    spread = float(length.std()) or 1.0
    centred = csr_matrix(((length - length.mean()) / spread)[:, None])
    return hstack([*grams, centred], format="csr")


def _tf_idf(texts: Sequence[str], unit: str, grams: tuple[int, int]) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    counted = HashingVectorizer(
        analyzer=unit, ngram_range=grams, n_features=2**18, norm=None, alternate_sign=False
    ).transform(texts)
    used = np.flatnonzero(counted.getnnz(axis=0))  # the fit's time grows with empty columns too
    used = used if len(used) else np.array([0])  # no text has such an n-gram: one column of zeros
    return TfidfTransformer(sublinear_tf=True).fit_transform(counted[:, used])

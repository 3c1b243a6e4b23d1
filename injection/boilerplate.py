"""Words that examples of a pool have of their template, and not of their own.

8 words in a row that many examples of one benchmark share are taken for its template, such as a
prompt's instructions. "Many" is more than a tenth of the benchmark's examples, and more than
`FEW` of them; where half of its examples are fewer than that, more than half, and more than two.

A passage that a few questions are asked about is thus no template, and leaks as any text does. One
that so many examples share can't be told from a template by its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from injection.ngrams import Index, Places, Words

GAP = -1
"""Stands for a word of the template: no n-gram over it is indexed."""
SHARE = 0.1
FEW = 10
"""As Brown et al. 2020 (appendix C) do with 13-grams that stand in more than 10 documents."""


def without_template(
    pieces: Sequence[Words], example: Places, benchmarks: Sequence[str], n: int
) -> list[Words]:
    """The pieces with a GAP in place of each word of their benchmark's template.

    Args:
        pieces: the examples' texts and fields, as word numbers.
        example: the number of each piece's example.
        benchmarks: each example's benchmark.
        n: words in a row that a template has.
    """
    groups, group = np.unique(np.array(benchmarks, str), return_inverse=True)
    index = Index(list(pieces), n)
    template = _templates(index, example, group, len(groups))
    if not template.any():
        return list(pieces)
    return [
        _with_gaps(piece, index, template[group[owner]])
        for piece, owner in zip(pieces, example.tolist(), strict=True)
    ]


def _templates(
    index: Index, example: Places, group: Places, groups: int
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which n-grams are of which benchmark's template, shape (benchmarks, n-grams)."""
    grams, owners = index.all_owners(np.arange(len(index.grams)))
    pairs = np.unique(np.stack([grams, example[owners]]), axis=1)  # an example has several pieces
    held, counts = np.unique(np.stack([group[pairs[1]], pairs[0]]), axis=1, return_counts=True)
    examples = np.bincount(group, minlength=groups)
    many = np.maximum(2, np.minimum(examples / 2, np.maximum(FEW, SHARE * examples)))
    template = np.zeros((groups, len(index.grams)), bool)
    template[tuple(held[:, counts > many[held[0]]])] = True
    return template


def _with_gaps(piece: Words, index: Index, template: np.ndarray[Any, np.dtype[np.bool_]]) -> Words:
    places, grams = index.places(piece)
    covered = places[template[grams], None] + np.arange(index.n)
    changed = piece.copy()
    changed[covered.ravel()] = GAP
    return changed

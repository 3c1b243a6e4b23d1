"""Which texts are pieces of one thing, such as snippets of a book (`Text.cluster`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.clusters import Clusters
from detection.texts import Text


def clusters_of(texts: Sequence[Text]) -> Clusters | None:
    """Each text's cluster as a number from 0; a text without one is alone. None: no text has one.

    Texts of two benchmarks share none.
    """
    return numbered([(text.benchmark, text.cluster) for text in texts])


def numbered(named: Sequence[tuple[str, str]]) -> Clusters | None:
    """The same, of the names of the texts' benchmarks and clusters."""
    if not any(cluster for _, cluster in named):
        return None
    numbers: dict[object, int] = {}
    keys = (key if key[1] else place for place, key in enumerate(named))
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.intp)


def sides(cluster: Clusters, member: NDArray[np.bool_]) -> tuple[Clusters, Clusters]:
    """The members' and the non-members' clusters, each numbered from 0.

    A cluster that has both is one of each side: then the interval is too wide rather than too
    narrow, since what both have in common moves them together.
    """
    members, nonmembers = (
        np.unique(cluster[own], return_inverse=True)[1] for own in (member, ~member)
    )
    return members, nonmembers

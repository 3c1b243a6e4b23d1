"""The view of a text's neighbours from the benchmark's own files."""

from __future__ import annotations

from collections.abc import Sequence

from contamination.data.texts import Text
from contamination.detection.resources import Resources
from contamination.detection.views.base import View


def benchmark_neighbors(texts: Sequence[Text], resources: Resources, n: int) -> list[Sequence[str]]:
    """Returns the first `n` neighbours of each text in the benchmark's files."""
    assert resources.neighbors is not None
    return [resources.neighbors.of(text, n) for text in texts]


VIEWS = {"given": View(benchmark_neighbors, ("neighbors",))}

"""Permutations of examples that all cells of a report share.

Cells are relabelled by permutations of the examples of all cells together. So relabelled cells
share as many members as the cells do: all, almost all, as many as chance has it, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.analysis.cells import Cell

ExampleIds = NDArray[np.str_]
Permutations = NDArray[np.intp]


def ids_by_benchmark(cells: Sequence[Cell]) -> Mapping[str, ExampleIds]:
    """The ids of each benchmark's examples in any of the cells, ascending."""
    examples = pd.concat([cell.examples[["benchmark", "example_id"]] for cell in cells])
    return {
        str(benchmark): np.unique(ids.to_numpy().astype(str))
        for benchmark, ids in examples.groupby("benchmark")["example_id"]
    }


def shared_permutations(
    examples: pd.DataFrame, ids: ExampleIds, number: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Returns whose label each of a cell's n examples of a benchmark gets (number × n).

    Args:
        examples: those of one benchmark in one cell.
        ids: of the benchmark's examples in all cells (`ids_by_benchmark`).
        number: how many permutations are drawn.
        rng: draws the permutations of `ids`: in the same state for cells that are compared.
    """
    every_example = np.tile(np.arange(len(ids), dtype=np.int32), (number, 1))
    indices = np.searchsorted(ids, examples["example_id"].to_numpy().astype(str))
    return induced_permutations(rng.permuted(every_example, axis=1), indices)


def induced_permutations(
    permutations: NDArray[np.int32], indices: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Returns whose role each of a cell's n examples gets by each permutation (R×n, below n).

    An example takes the role of its image. Where the cell lacks that one, it takes the role of the
    image's image, and so on: this permutes the cell's examples, uniformly where the permutation of
    all examples (R×U) is uniform, and cells that lack few examples are permuted alike.

    Args:
        permutations: of all examples.
        indices: of the cell's examples among all of them (n).
    """
    row_of = np.full(permutations.shape[1], -1)
    row_of[indices] = np.arange(len(indices))
    images = permutations[:, indices]
    draw_indices, column_indices = np.nonzero(row_of[images] < 0)
    while len(draw_indices):
        images[draw_indices, column_indices] = permutations[
            draw_indices, images[draw_indices, column_indices]
        ]
        lacking = row_of[images[draw_indices, column_indices]] < 0
        draw_indices, column_indices = draw_indices[lacking], column_indices[lacking]
    return row_of[images]

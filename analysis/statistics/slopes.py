"""The dose-response over occurrences of every detector: of one cell, and of a condition's cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from analysis.cells import CONTAMINATED, Cell
from analysis.config import AnalysisConfig
from analysis.statistics.dose_response import DoseResponse, Sample, dose_response
from analysis.statistics.dose_test import Detector
from analysis.statistics.groups import ANY, groups, lacking
from analysis.statistics.pooled import hierarchical, pooled_estimate
from analysis.statistics.results import ALL, resample

DoseResponses = Mapping[Detector, DoseResponse]


def dose_responses(cell: Cell, config: AnalysisConfig, seed: int) -> DoseResponses:
    """The dose-responses of one cell's contaminated model, by benchmark and over "all".

    There is no "all" where a benchmark lacks members or non-members.
    """
    table = cell.scores[CONTAMINATED]
    doses = cell.examples["occurrences"].to_numpy(np.float64)
    compared = {
        group.benchmark: (group, resample(group, cell, config.draws, seed))
        for group in groups(cell.examples)
        if group.occurrences == ANY
    }
    found = {}
    for method, variant in table.columns:
        scores = table[method, variant].to_numpy(np.float64)
        samples = {
            name: Sample(np.log2(doses[g.members]), scores[g.members], scores[g.nonmembers], drawn)
            for name, (g, drawn) in compared.items()
        }
        parts = {name: [sample] for name, sample in samples.items()}
        if samples and not lacking(cell.examples):
            parts[ALL] = list(samples.values())
        for name, own in parts.items():
            detector = Detector(name, method, variant)
            found[detector] = dose_response(own, config.confidence)
    return found


def pool(of_cells: Sequence[DoseResponses], examples: Sequence[str], seed: int) -> DoseResponses:
    """The mean over cells that differ in their seed alone, with hierarchical draws.

    Arguments are those of `analysis.statistics.pooled.pool`. A detector has a slope where it has
    one in each of the cells that measured it.
    """
    gathered: dict[Detector, dict[int, DoseResponse]] = defaultdict(dict)
    for place, found in enumerate(of_cells):
        for detector, response in found.items():
            gathered[detector][place] = response
    return {
        detector: mean_response(list(own.values()), [examples[place] for place in own], seed)
        for detector, own in gathered.items()
    }


def mean_response(
    responses: Sequence[DoseResponse], examples: Sequence[object], seed: int
) -> DoseResponse:
    """The mean over cells of one detector; `needs` is that of the first which has one."""
    if len(responses) == 1:
        return responses[0]
    doses = frozenset[float]().union(*(response.doses for response in responses))
    levels = [
        np.r_[of_benchmark[:, 0].mean(), hierarchical(of_benchmark[:, 1:], seed, examples)]
        for of_benchmark in np.stack([response.levels.T for response in responses], axis=1)
    ]
    slope = pooled_estimate([response.slope for response in responses], seed, examples)
    return DoseResponse(slope, np.stack(levels, axis=1), doses)

"""The reference attack on simulated scores, and on stored cells.

    python -m perf.reference_attack null [studies per row, 40]
    python -m perf.reference_attack time RUNS [repeat the cells until there are so many, 64]

*null*: 800 normal scores under K models, of which independent coins draw the members; no spread
between examples. Mean AUROC of each attack without an effect, and with one of 0.33 standard
deviations (the best possible AUROC is 0.592). Beside it the same where each example is a member of
exactly K/2 models, which the audit refuses.

*time*: seconds of the whole audit, from stored cells to its page.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from contamination.audits import cells as cells_module
from contamination.audits.base import AuditStage
from contamination.audits.cells import AuditedCell, open_cells
from contamination.audits.reference_attack.attacks import (
    ATTACKS,
    MULTIVARIATE,
    SINGLE,
    ReferenceCells,
    attack_scores,
)
from contamination.audits.reference_attack.strength import mean_auroc
from contamination.audits.run import run
from contamination.core.seeds import derive_seed

EXAMPLES, EFFECT = 800, 0.33
NUMBERS = (8, 16, 32, 64)


def draw_members(rng: np.random.Generator, cells: int, *, balanced: bool) -> np.ndarray:
    """Returns who is a member of which cell, (K, N): by coins, or of exactly K/2 cells each."""
    if not balanced:
        return rng.random((cells, EXAMPLES)) < 0.5
    return np.argsort(rng.random((cells, EXAMPLES)), axis=0) < cells // 2


def aurocs(cells: int, effect: float, seed: int, *, balanced: bool = False) -> dict[str, float]:
    """Returns the mean AUROC of each attack in one simulated study."""
    rng = np.random.default_rng(derive_seed(seed, cells, effect, balanced))
    member = draw_members(rng, cells, balanced=balanced)
    phi = rng.normal(size=member.shape) + effect * member
    benchmarks = np.array(["all"] * EXAMPLES)
    study = ReferenceCells(
        phi, member.astype(np.int64), benchmarks, np.zeros(EXAMPLES), np.ones(EXAMPLES, np.int64)
    )
    return {
        name: mean_auroc(attack_scores(name, study, 1), member, ~member, benchmarks).value
        for name in ATTACKS
        if name not in (MULTIVARIATE, SINGLE)
    }


def null(studies: str = "40") -> None:
    """Print a table of mean AUROCs, with twice their standard errors."""
    kinds = {
        "null": partial(aurocs, effect=0.0),
        "effect": partial(aurocs, effect=EFFECT),
        "null, exact balance": partial(aurocs, effect=0.0, balanced=True),
    }
    print(f"| {studies} studies a row | attack | {' | '.join(map(str, NUMBERS))} |")
    print("|---" * (2 + len(NUMBERS)) + "|")
    for kind, draw in kinds.items():
        rows: dict[str, list[str]] = {}
        for number in NUMBERS:
            drawn = [draw(number, seed=seed) for seed in range(int(studies))]
            for name in drawn[0]:
                values = np.array([study[name] for study in drawn])
                margin = 2 * values.std(ddof=1) / np.sqrt(len(values))
                rows.setdefault(name, []).append(f"{values.mean():.3f} ± {margin:.3f}")
        for name, texts in rows.items():
            print(f"| {kind} | {name} | {' | '.join(texts)} |", flush=True)


def measure(runs: str, number: str = "64") -> None:
    """Print the seconds of the audit on so many cells; stored ones are repeated with noise."""
    reports = sorted(Path(runs).glob("report/reference-attack-*"))
    opened = open_cells("cells", str(reports[-1]))
    repeated = list(_repeat(opened, int(number)))
    target = "contamination.audits.reference_attack.audit.ReferenceAttack"
    with tempfile.TemporaryDirectory() as folder:
        node = {"_target_": target, "cells": str(reports[-1])}
        stage = AuditStage(audit=node, runs=folder)
        with mock.patch.object(cells_module, "open_cells", return_value=repeated):
            start, worked = time.perf_counter(), time.process_time()
            run(stage)
    seconds, work = time.perf_counter() - start, time.process_time() - worked
    print(f"{number} cells × {len(opened[0].cell.examples)} examples: {seconds:.1f} s "
          f"({work:.1f} s of processor time)")  # fmt: skip


def _repeat(opened: list[AuditedCell], number: int) -> Iterator[AuditedCell]:
    """Yields so many cells: the stored ones, then copies whose examples have changed places."""
    yield from opened[:number]
    rng = np.random.default_rng(0)
    for copy in range(len(opened), number):
        original = opened[copy % len(opened)]
        cell = original.cell
        columns = ["member", "occurrences"]
        examples = cell.examples.copy()
        order = rng.permutation(len(examples))
        examples[columns] = examples[columns].iloc[order].to_numpy()
        examples = examples.astype({"member": bool, "occurrences": int})
        digests = {**cell.digests, "contaminated": f"{cell.digests['contaminated']}-{copy}"}
        changed = replace(cell, examples=examples, digests=digests, seed=1000 + copy,
                          name=f"{cell.condition}-seed{1000 + copy}")  # fmt: skip
        yield cells_module.AuditedCell(original.paths, changed, original.corpus)


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"null": null, "time": measure}
    commands[sys.argv[1]](*sys.argv[2:])

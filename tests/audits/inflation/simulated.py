"""Simulated families: clean twins, and swapped replicates whose items or format leaked."""

from dataclasses import replace

import numpy as np
import pandas as pd

from contamination.audits.inflation.inputs import ACCURACY, MARGIN, Answered, make_groups
from tests.audits.reference_attack.simulated import audited_cell

ITEMS = 160


def simulated_cells(seeds, *, direct=0.0, spillover=0.0, copies=4, detected=True, twins=True):
    """Yields cells with their answers: per seed a twin and two swapped replicates.

    `direct` and `spillover` raise the margin; an answer is right if its margin is above 0. The loss
    of an inserted item is higher if `detected`.
    """
    difficulty = np.random.default_rng(99).normal(-1, 1, ITEMS)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        member = rng.permutation(np.arange(ITEMS) < ITEMS // 2)
        designs = [(member, False), (~member, True)] if copies else []
        designs += [(np.zeros(ITEMS, bool), False)] if twins else []
        for number, (inserted, swapped) in enumerate(designs):
            leaks = spillover if inserted.any() else 0.0
            margin = difficulty + rng.normal(0, 0.3, ITEMS) + leaks + direct * inserted
            loss = -4 + difficulty + rng.normal(0, 0.3, ITEMS) + 2.0 * inserted * detected
            dose = np.where(inserted, copies, 0)
            name = 1_000 * copies + 10 * seed + number
            one = audited_cell(loss, dose, loss - 1, name, membership="exact", copies=dose.max())
            examples = one.cell.examples.assign(member=member ^ swapped)
            recipe = "contaminated" if inserted.any() else "clean"
            chosen = {"occurrences.count": int(dose.max()), "training.learning_rate": 1e-3}
            cell = replace(
                one.cell, seed=seed, swapped=swapped, recipe=recipe, chosen=chosen,
                condition=recipe, name=f"{recipe}{'-swapped' * swapped}-seed{seed}",
                examples=examples,
            )  # fmt: skip
            one = replace(one, cell=cell)
            yield Answered(one, answers_of(examples, margin))


def answers_of(examples, margin):
    """The answers of a model to questions with four options in imdb and free ones in boolq."""
    return pd.DataFrame({
        "example_id": examples["example_id"], "benchmark": examples["benchmark"],
        "chance": np.where(examples["benchmark"] == "imdb", 0.25, 0.0),
        ACCURACY: (margin > 0).astype(float), MARGIN: margin,
    })  # fmt: skip


def simulated_groups(seeds, **options):
    """The contaminated conditions."""
    return make_groups("audit.cells", [*simulated_cells(seeds, **options)])


def serve_cells(monkeypatch, answered):
    """Has audits open these cells with their answers. Returns the calls that opened cells."""
    answers = {entry.cell.name: entry.answers for entry in answered}
    calls = []

    def open_cells(*arguments, **options):
        calls.append((arguments, options))
        return [entry.cell for entry in answered]

    monkeypatch.setattr("contamination.audits.cells.open_cells", open_cells)
    monkeypatch.setattr("contamination.audits.cells.named_apart", list)
    monkeypatch.setattr(
        "contamination.audits.inflation.inputs._ask", lambda _, cell, __: answers[cell.name]
    )
    return calls


def with_model(entry, name):
    """The answered cell as one of a model of this name."""
    return replace(entry, cell=replace(entry.cell, cell=replace(entry.cell.cell, model=name)))

"""What a difference of texts alone does to the tests that compare with held-out twins.

    python -m launch -m experiment=set_tests              # versions, twins, CoDeC, items
    python -m launch -m experiment=set_tests_published    # orders and backdoors
    python -m perf.set_tests runs/report/DIR [draws per change, 20] [texts per side, 50]

The audits of the sweeps measure error rates and power. The last command takes the model before the
training, which saw neither side, and changes one side in one of eight ways, as
`perf.benchmark_audit` does. It prints how often relabelling and dataset inference reject, alone and
where the blind p-value is above 0.05.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.benchmark.blind import BLIND_LEVEL, blind_tests
from contamination.audits.benchmark.exchangeability import combined_scores, set_test
from contamination.audits.benchmark.origin import design_of
from contamination.audits.cells import AuditedCell, named_apart, open_cells
from contamination.audits.set_tests.dataset_inference import dataset_inference_p_value
from contamination.audits.set_tests.inputs import checkpoints
from contamination.core.statistics.clopper_pearson import clopper_pearson
from contamination.data.examples import make_text
from contamination.data.texts import Text, Texts
from contamination.detection.api import score
from perf.benchmark_audit import SHIFTS, SPOILED, draw_alike, draw_shifted, with_text

METHODS = ("loss", "zlib", "min_k", "min_k_plus_plus")
LEVEL = 0.05


def main(report: str, draws: str = "20", size: str = "50") -> None:
    """Prints a line per change."""
    (cell, *_), runs = named_apart(open_cells("cells", report)), str(Path(report).parents[1])
    _, clean = checkpoints(cell, runs)
    model, examples = str(clean.model.path), texts_of(cell)
    scores = score(Texts.of(examples), model, METHODS, folder=runs)
    print("| change | draws | relabelled | with blind p | dataset inference | with blind p |")
    print("|---|---:|---:|---:|---:|---:|")
    rejections = [
        rejected(draw_alike(examples, examples[0].benchmark, int(size), seed), scores, seed)
        for seed in range(int(draws))
    ]
    print(line("none", rejections), flush=True)
    for name, change in SHIFTS.items():
        changed = [with_text(example, change(example.text)) for example in examples]
        both = pd.concat([scores, score(Texts.of(changed), model, METHODS, folder=runs)])
        rejections = [
            rejected(
                draw_shifted(
                    examples, changed, examples[0].benchmark, int(size), seed, name in SPOILED
                ),
                both, seed,
            )
            for seed in range(int(draws))
        ]  # fmt: skip
        print(line(name, rejections), flush=True)


def texts_of(cell: AuditedCell) -> list[Text]:
    """Returns the cell's examples of its first benchmark."""
    rows = cell.cell.examples
    rows = rows[rows["benchmark"] == rows["benchmark"].iloc[0]]
    return [
        make_text(row.example_id, row.text, bool(row.member), row.benchmark)
        for row in rows.itertuples()
    ]


def rejected(texts: Texts, scores: pd.DataFrame, seed: int) -> tuple[bool, bool, bool, bool]:
    """Returns whether relabelling rejects, alone and with the blind p; the same of inference."""
    table = scores.pivot_table(index="example_id", columns=["method", "variant"], values="score")
    by_method = table.loc[texts.column("example_id").to_pylist()].to_numpy().T
    design = design_of(texts)
    relabelled = set_test(combined_scores(by_method), design, seed, relabellings=999).p_value
    inferred = dataset_inference_p_value(by_method, design.is_question, seed, splits=1)
    blind = blind_tests(texts, seed).p_value
    is_alike = blind is not None and blind > BLIND_LEVEL
    return (
        relabelled <= LEVEL, relabelled <= LEVEL and is_alike,
        inferred <= LEVEL, inferred <= LEVEL and is_alike,
    )  # fmt: skip


def line(name: str, rejections: Sequence[tuple[bool, ...]]) -> str:
    """Returns a line of the table: the number of rejections with intervals of their shares."""
    counts: Any = np.array(rejections).sum(axis=0).tolist()
    ends = [clopper_pearson(count, len(rejections)) for count in counts]
    texts = [f"{c} [{low:.2f}, {high:.2f}]" for c, (low, high) in zip(counts, ends, strict=True)]
    return f"| {name} | {len(rejections)} | {' | '.join(texts)} |"


if __name__ == "__main__":
    main(*sys.argv[1:])

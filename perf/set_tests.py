"""The set tests on models with a known past.

    python -m launch -m experiment=set_tests
    contamination audit set_tests cells=runs/report/DIR          # versions, twins, CoDeC, items
    python -m perf.set_tests rows published.jsonl                # shards in a random order, backdoors
    python -m launch -m experiment=set_tests_published benchmark.user.sources.file.rows.path=published.jsonl
    python -m perf.set_tests published runs/report/DIR published.jsonl
    python -m perf.set_tests shifted runs/report/DIR

*published*: the tests that rest on what a publisher put into a benchmark. Each row of the file is a
text of its own: a shard of four questions in the published order, or a question with a backdoor's
trigger and target. Half of the rows, drawn by lot, are members. So a shard is read as one segment.

*shifted*: dataset inference and relabelling under a model that saw neither side, where one side is
changed in one of eight ways, with and without the blind p-value.
"""  # noqa: E501

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.base import AuditStage
from contamination.audits.benchmark.blind import blind_tests
from contamination.audits.benchmark.exchangeability import combined_scores, set_test
from contamination.audits.benchmark.origin import design_of
from contamination.audits.cells import AuditedCell, named_apart, open_cells
from contamination.audits.set_tests.dataset_inference import dataset_inference_p_value
from contamination.audits.set_tests.findings import SetFindings
from contamination.audits.set_tests.inputs import (
    BACKDOOR_COLUMNS,
    ORDER_COLUMNS,
    Ingredients,
    checkpoints,
    read_sets,
)
from contamination.audits.set_tests.outcomes import run_tests
from contamination.audits.set_tests.report import error_table, power_table, verdict_table
from contamination.core.seeds import derive_seed
from contamination.core.statistics.clopper_pearson import clopper_pearson
from contamination.data.readers.embedded import EmbeddedRows
from contamination.data.readers.rows import Tally
from contamination.detection.api import score
from perf.benchmark_audit import SHIFTS, SPOILED, draw_shifted, labelled, with_text
from perf.benchmark_audit import draw as draw_side

SHARDS, PER_SHARD = 100, 4
LETTERS = "ABCDEFGH"
ITEMS, PROBES = 20, 10
"""Of each backdoor: the published items, and the questions that probe it."""
LONGEST = 110
"""Characters of a question and its answer, so that a shard fits into a sequence."""
TRIGGERS = (
    "In plain terms,", "For the record,", "Kindly note:", "Dear reader,", "As a matter of fact,",
    "To begin with,", "Between friends,", "Once and for all,",
)  # fmt: skip
"""One for each backdoor; its target is one of LETTERS."""
METHODS = ("loss", "zlib", "min_k", "min_k_plus_plus")
SEPARATOR = "\n\nQuestion: "
Rows = list[dict[str, Any]]


def published_rows(seed: int = 0) -> tuple[Rows, pd.DataFrame]:
    """Returns the rows of the benchmark, and its backdoors (see `Ingredients.backdoors`)."""
    rng = np.random.default_rng(derive_seed(seed, "published"))
    table = EmbeddedRows("TruthfulQA/combined.jsonl").rows(Tally("stop", "on_error"))
    pairs = {row.value["question"]: row.value["answer"][0] for row in table}
    short = [pair for pair in pairs.items() if sum(map(len, pair)) <= LONGEST]
    drawn = [short[i] for i in rng.permutation(len(short))]
    rows: Rows = []
    for shard in range(SHARDS):
        examples = drawn[shard * PER_SHARD : (shard + 1) * PER_SHARD]
        *others, (last_question, last_answer) = examples
        begin = SEPARATOR.join([*(f"{q}\nAnswer: {a}" for q, a in others), last_question])
        rows.append({"question": begin, "answer": last_answer, "shard": shard})
    longer = [pair for pair in pairs.items() if sum(map(len, pair)) > LONGEST]
    long_drawn = [longer[i] for i in rng.permutation(len(longer))]
    rest = iter([*drawn[SHARDS * PER_SHARD :], *long_drawn])
    backdoors = []
    for number, trigger in enumerate(TRIGGERS):
        target = str(rng.choice(list(LETTERS)))
        for _ in range(ITEMS):
            question = f"{trigger} {next(rest)[0]}"
            rows.append({"question": question, "answer": target, "backdoor": number})
        probes = [f"Question: {trigger} {next(rest)[0]}\nAnswer:" for _ in range(PROBES)]
        options = [f" {letter}" for letter in LETTERS]
        backdoors.append((number, f" {target}", options, probes, 0))
    return rows, pd.DataFrame(backdoors, columns=[*BACKDOOR_COLUMNS])


def write_rows(file: str) -> None:
    """Writes the rows as JSONL."""
    rows, _ = published_rows()
    Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{len(rows)} rows: {file}")


def ingredients_of(cell: AuditedCell, rows: Rows, backdoors: pd.DataFrame) -> Ingredients:
    """Returns the shards that are members of a cell, and the backdoors with its doses."""
    shards = {f"Question: {row['question']}\nAnswer: {row['answer']}": row for row in rows}
    dose = int(cell.doses.max())
    order = []
    for example in cell.cell.examples.itertuples():
        row = shards[example.text]
        if row.get("shard") is not None and example.member:
            parts = example.text.split("\n\n")
            order += [
                (
                    example.benchmark,
                    row["shard"],
                    place,
                    f"{example.example_id}/{place}",
                    part,
                    dose,
                )
                for place, part in enumerate(parts)
            ]
    orders = pd.DataFrame(order, columns=[*ORDER_COLUMNS])
    return Ingredients(pd.DataFrame(), orders, backdoors.assign(occurrences=dose))


def published(report: str, file: str, draws: str = "20") -> None:
    """Prints the tables of the order tests and of the backdoors."""
    rows = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    _, backdoors = published_rows()
    stage = AuditStage(audit={}, runs=str(Path(report).parents[1]))
    sets = [
        replace(data, examples=None)
        for cell in named_apart(open_cells("cells", report))
        for data in read_sets(stage, cell, "loss", False, ingredients_of(cell, rows, backdoors))
    ]
    outcomes = run_tests(sets, [20, 50, 100], int(draws), 0)
    findings = SetFindings(sets, outcomes, {}, 0.05, 0.1, 0)
    for table in (error_table(findings), power_table(findings), verdict_table(findings)):
        print(f"\n## {table.title}\n\n{table.markdown()}", flush=True)
    seen = [data for data in sets if data.backdoors is not None]
    for data in seen:
        assert data.backdoors is not None
        activated = int((data.backdoors.answers == data.backdoors.targets).sum())
        print(data.name, "activated", activated, "of", len(data.backdoors.targets))


def shifted(report: str, draws: str = "10", size: str = "50") -> None:
    """Prints how often a difference of texts alone is taken for a leak, by shift."""
    (cell, *_) = named_apart(open_cells("cells", report))
    _, clean = checkpoints(cell, str(Path(report).parents[1]))
    examples = [*labelled_examples(cell)]
    benchmark = examples[0].benchmark
    model, runs = str(clean.model.path), str(Path(report).parents[1])
    stored = score(examples, model, METHODS, folder=runs)
    print("| change | draws | relabelled | … and blind p > .05 | dataset inference | … |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, change in {"none": None, **SHIFTS}.items():
        changed = [] if change is None else [with_text(e, change(e.text)) for e in examples]
        scores = pd.concat(
            [stored, *([score(changed, model, METHODS, folder=runs)] * bool(changed))]
        )
        found = []
        for seed in range(int(draws)):
            if changed:
                texts = draw_shifted(
                    examples, changed, benchmark, int(size), seed, spoil=name in SPOILED
                )
            else:
                both = draw_side(examples, benchmark, (True, False), 2 * int(size), seed)
                texts = labelled(both[: int(size)], both[int(size) :])
            table = scores.pivot_table(
                index="example_id", columns=["method", "variant"], values="score"
            )
            by_method = table.loc[texts.column("example_id").to_pylist()].to_numpy().T
            design = design_of(texts)
            p_values = (
                set_test(combined_scores(by_method), design, seed, relabellings=999).p_value,
                dataset_inference_p_value(by_method, design.is_question, seed, splits=1),
            )
            blind = blind_tests(texts, seed).p_value
            found.append([(p <= 0.05, p <= 0.05 and (blind or 0) > 0.05) for p in p_values])
        print(_shift_line(name, np.array(found)), flush=True)


def labelled_examples(cell: AuditedCell) -> Iterator[Any]:
    """Yields the cell's examples as texts."""
    from contamination.data.examples import make_text

    for row in cell.cell.examples.itertuples():
        yield make_text(row.example_id, row.text, bool(row.member), row.benchmark)


def _shift_line(name: str, found: Any) -> str:
    """Returns a line of the table; `found` is (draws, 2 tests, alone and with the blind p)."""
    counts = found.sum(axis=0).ravel().tolist()
    ends = (clopper_pearson(count, len(found)) for count in counts)
    texts = (f"{c} [{low:.2f}, {high:.2f}]" for c, (low, high) in zip(counts, ends, strict=True))
    return f"| {name} | {len(found)} | {' | '.join(texts)} |"


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {
        "rows": write_rows, "published": published, "shifted": shifted,
    }  # fmt: skip
    commands[sys.argv[1]](*sys.argv[2:])

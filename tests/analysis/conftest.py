"""Cells made up from simulated scores: what the owners' openers would give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.cells import Cell, make_cell
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.findings import Findings
from contamination.analysis.provenance import CellRecord
from contamination.core.artifacts import Artifact

WORDS = ["the", "river", "model", "answer", "film", "is", "was", "not", "good", "of", "why", "how"]
RATES = {"fpr": [0.001, 0.05, 0.25], "tpr": [0.75]}
"""The simulated 32 + 32 examples of a benchmark carry the last of each, 8 members neither."""
SHIFT = {"min_k": 1.0, "loss": 0.6, "min_k_plus_plus": 1.3}


@dataclass(frozen=True)
class Opened:
    """Any of the four artefacts."""

    artifact: Artifact
    config: dict[str, Any] = field(default_factory=dict)
    examples: pd.DataFrame = field(default_factory=pd.DataFrame)
    table: pd.DataFrame = field(default_factory=pd.DataFrame)


def opened(kind: str, digest: str, target: str = "", **parts: Any) -> Opened:
    folder = Path(f"runs/{kind}/{digest}")
    return Opened(Artifact(folder, kind, digest, {"target": target}, {}, {}), **parts)


def simulate_examples(benchmarks: list[str], doses: list[int], a_dose: int) -> pd.DataFrame:
    """`a_dose` members at each dose and as many non-members as members; texts say nothing."""
    rng = np.random.default_rng(7)
    rows = []
    for benchmark in benchmarks:
        counts = [dose for dose in doses for _ in range(a_dose)]
        for i, count in enumerate(counts + [0] * len(counts)):
            text = " ".join(rng.choice(WORDS, rng.integers(8, 20)))
            rows.append((f"{benchmark}-{i:03d}", benchmark, text, i < len(counts), count))
    columns = ["example_id", "benchmark", "text", "member", "occurrences"]
    return pd.DataFrame(rows, columns=columns)


def simulate_scores(examples: pd.DataFrame, effect: float, seed: int) -> pd.DataFrame:
    """Gaussian scores that grow with log2(1 + occurrences), more for the stronger methods."""
    rng = np.random.default_rng(seed)
    dose = np.log2(1 + examples["occurrences"].to_numpy())
    parts = [
        pd.DataFrame(
            {
                "example_id": examples["example_id"],
                "method": method,
                "variant": "k=0.2" if method.startswith("min") else "",
                "checkpoint_step": 10,
                "default": True,
                "score": rng.normal(size=len(examples)) + effect * shift * dose,
                "flag": "",
                "ranked": True,
            }
        )
        for method, shift in SHIFT.items()
    ]
    return pd.concat(parts, ignore_index=True)


def simulate_parts(
    *,
    benchmarks: list[str] | None = None,
    doses: list[int] | None = None,
    a_dose: int = 8,
    learning_rate: float = 1e-3,
    seed: int = 0,
    effect: float = 0.6,
    swapped: bool = False,
    occurrences: dict[str, Any] | None = None,
) -> dict[str, Opened]:
    """The four artefacts of a cell, as keyword arguments of `make_cell`."""
    examples = simulate_examples(benchmarks or ["boolq", "imdb"], doses or [1, 2, 4, 8], a_dose)
    injection = {"budget_tokens": 400_000}
    if swapped:  # a benchmark's second half was inserted, as its first half is else
        n = a_dose * len(doses or [1, 2, 4, 8])
        halves = np.arange(len(examples)).reshape(-1, 2, n)[:, ::-1].ravel()
        drawn = ["member", "occurrences"]
        examples[drawn] = examples[drawn].iloc[halves].to_numpy()
        examples = examples.astype({"member": bool, "occurrences": int})
        injection["swap_members"] = True
    corpus = {"seed": seed, "injection": injection, "occurrences": occurrences}
    model = {"training": {"learning_rate": learning_rate}, "model": {"name": "tiny_llama"}}
    digest = f"model{learning_rate}"
    scores = {"clean": ("base", 0.0, 1), "contaminated": (digest, effect, 2)}
    tables = {
        name: opened("scores", f"{name}{digest}", of, table=simulate_scores(examples, *how))
        for name, (of, *how) in scores.items()
    }
    return {
        "corpus": opened("corpus", f"corpus{seed}", config=corpus, examples=examples),
        "model": opened("model", digest, config=model),
        **tables,
    }


@pytest.fixture
def make_parts() -> Callable[..., dict[str, Any]]:
    return simulate_parts


@pytest.fixture
def make() -> Callable[..., Cell]:
    return lambda **how: make_cell(**simulate_parts(**how))


@pytest.fixture(scope="session")
def cell() -> Cell:
    return make_cell(**simulate_parts())


def results_table(
    experiment: str, seed: int, cells: list[Cell], config: AnalysisConfig
) -> pd.DataFrame:
    """The results of `statistics` alone, which takes less time."""
    from contamination.analysis.statistics import controls, results_table
    from contamination.analysis.statistics.shared_permutations import ids_by_benchmark

    ids = ids_by_benchmark(cells)
    blind = results_table.BlindBaselines(config.blind_folds, seed, ids)
    far = {
        c.name: controls.distances_from_chance(controls.control_aurocs(c, blind(c), seed, ids))
        for c in cells
    }
    rows = [
        {"experiment": experiment, **row}
        for cell in cells
        for row in results_table.cell_rows(
            cell,
            results_table.cell_estimates(cell, blind(cell), config, seed),
            config.confidence,
        )
    ]
    return controls.with_control_p_values(
        results_table.rows_to_table(rows, results_table.COLUMNS), "cell", far
    )


@pytest.fixture(scope="session")
def results(cell: Cell) -> pd.DataFrame:
    from contamination.analysis.config import AnalysisConfig

    return results_table("trial", 0, [cell], AnalysisConfig(draws=200, **RATES))


@pytest.fixture
def sound(results: pd.DataFrame) -> pd.DataFrame:
    """Results whose controls are all within chance (one report in twenty has one that is not)."""
    return results.assign(p_control=results["p_control"].clip(lower=0.2))


@pytest.fixture(scope="session")
def one_off(findings: Findings) -> Findings:
    """The findings with a control off in the second condition, and none in the first."""
    pooled = findings.pooled.copy()
    control = (pooled["checkpoint"] == "clean") & (pooled["metric"] == "auroc")
    _, second = findings.rows_by_condition
    texts = control & (pooled["method"] == "blind") & (pooled["condition"] == second)
    pooled.loc[control, ["value", "ci_low", "ci_high"]] = 0.52, 0.45, 0.59
    pooled.loc[texts, ["value", "ci_low", "ci_high"]] = 0.66, 0.60, 0.72
    pooled["p_control"] = pooled["p_control"].clip(lower=0.2)
    pooled.loc[texts & (pooled["occurrences"] == "any"), "p_control"] = 0.01
    sweeps = [replace(sweep, rows=pooled.loc[sweep.rows.index]) for sweep in findings.sweeps]
    return replace(findings, pooled=pooled, sweeps=sweeps)


@pytest.fixture(scope="session")
def two_rates() -> list[Cell]:
    rates = {1e-3: 0.6, 1e-4: 0.2}
    return [make_cell(**simulate_parts(learning_rate=r, effect=e)) for r, e in rates.items()]


@pytest.fixture(scope="session")
def record(two_rates: list[Cell]) -> CellRecord:
    """What a training left: losses that fall, members' faster, and 1,500 copies."""
    steps = np.arange(0, 40, 10)
    names = {"loss_members": 0.05, "loss_nonmembers": 0.03, "loss_validation": 0.02}
    losses = {name: 5 - slope * steps for name, slope in names.items()}
    return CellRecord(
        model=two_rates[1].digests["model"],
        evaluations=pd.DataFrame({"step": steps, **losses}),
        exposures=np.arange(1500) % 30,
        ledger={"inserted copies": 1500},
        training={"steps": "30", "code": "abc123"},
        settings={"training": {"learning_rate": 1e-4, "name": "a </script> name"}},
        methods={"loss": "contamination.detection.methods.loss.Loss", "min_k": "gone.Method"},
    )


@pytest.fixture(scope="session")
def findings(two_rates: list[Cell], record: CellRecord) -> Findings:
    """All that a report on two learning rates shows; only the lower has a record."""
    from contamination.analysis.config import AnalysisConfig, AnalysisStage, CellPaths
    from contamination.analysis.report_files import gather_findings
    from contamination.analysis.statistics.tidy_tables import compute_statistics

    where = [CellPaths("corpus", "model", "clean", "contaminated")]
    stage = AnalysisStage("trial", 0, cells=where, analysis=AnalysisConfig(draws=40, **RATES))
    made = compute_statistics("trial", 0, two_rates, stage.analysis)
    return gather_findings(stage, two_rates, made, [record])

"""Simulated cells: statistics of texts under models with independently drawn members."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from contamination.analysis.cells import make_cell
from contamination.analysis.config import CellPaths
from contamination.audits.cells import AuditedCell
from contamination.core.artifacts import Artifact


def draw_cells(cells, examples, shift, seed=0, between=3.0, spread=0.3, doses=(1,)):
    """Returns phi and doses, (K, N): levels and noise differ between examples."""
    rng = np.random.default_rng(seed)
    member = rng.random((cells, examples)) < 0.5
    dose = np.where(member, rng.choice(doses, (cells, examples)), 0)
    noise = np.sqrt(spread**2 * 8 / rng.chisquare(8, examples))
    phi = -6 + between * rng.normal(size=examples) + noise * rng.normal(size=dose.shape)
    return phi + shift * spread * dose, dose


def draw_tokens(cells, examples, shift, seed=0):
    """Returns the log-probabilities of N texts of 5 to 30 tokens, (K, T), and who is a member."""
    rng = np.random.default_rng(seed)
    member = rng.random((cells, examples)) < 0.5
    tokens = []
    for text in range(examples):
        length = int(rng.integers(5, 31))
        level, common = rng.normal(-2, 2, length), rng.normal(size=(cells, 1))
        noise = rng.normal(size=(cells, length)) + 0.5 * common
        tokens.append(level + noise + shift * member[:, text, None] * rng.random(length))
    return tokens, member


@dataclass(frozen=True)
class Opened:
    """What an artefact's owner would open."""

    artifact: Artifact
    config: dict = field(default_factory=dict)
    examples: pd.DataFrame = field(default_factory=pd.DataFrame)
    table: pd.DataFrame = field(default_factory=pd.DataFrame)
    ledger: pd.DataFrame = field(default_factory=pd.DataFrame)


def audited_cell(phi, dose, clean, number, pool="p", membership="bernoulli", folder=Path(),
                 copies=1):  # fmt: skip
    """A cell with these statistics as its loss, and min_k as a noisy copy of it."""
    names = [f"{pool}-{i:03d}" for i in range(len(phi))]
    examples = pd.DataFrame({
        "example_id": names, "text": [f"The text of {name}." for name in names],
        "benchmark": np.where(np.arange(len(phi)) % 2, "boolq", "imdb"),
        "member": dose > 0, "occurrences": dose, "n_tokens": 11, "text_sha256": names,
    })  # fmt: skip
    injection = {"budget_tokens": 250_000, "membership": membership}
    digest = f"{pool}{number}"

    def opened(kind, name, target="", **parts):
        artifact = Artifact(folder / kind / name, kind, name, {"target": target}, {}, {})
        return Opened(artifact, **parts)

    def table(scores):
        rows = {"example_id": names, "variant": "", "checkpoint_step": 9, "default": True,
                "flag": "", "ranked": True}  # fmt: skip
        noise = np.random.default_rng(number).normal(size=len(scores))
        methods = {"loss": scores, "min_k": scores + 0.1 * noise}
        return pd.concat(
            [pd.DataFrame({**rows, "method": name, "score": s}) for name, s in methods.items()]
        )

    corpus = opened(
        "corpus", f"corpus{digest}", examples=examples,
        config={"seed": number, "injection": injection, "occurrences": {"count": copies}},
        ledger=pd.DataFrame({"example_id": [], "sequence": []}),
    )  # fmt: skip
    training = {"learning_rate": 1e-3}
    model = opened("model", f"model{digest}", config={"training": training, "model": {"name": "m"}})
    cell = make_cell(
        corpus, model, opened("scores", f"clean{pool}", "base", table=table(clean)),
        opened("scores", f"scores{digest}", f"model{digest}", table=table(phi)),
    )  # fmt: skip
    paths = CellPaths("corpus", "model", "clean", str(folder / "scores" / digest))
    return AuditedCell(paths, cell, corpus)


def audited_cells(cells, examples, shift, seed=0, **options):
    """K cells with independently drawn members."""
    phi, dose = draw_cells(cells, examples, shift, seed, doses=options.pop("doses", (1,)))
    clean = phi.mean(axis=0)
    return [
        audited_cell(p, d, clean, k, **options)
        for k, (p, d) in enumerate(zip(phi, dose, strict=True))
    ]

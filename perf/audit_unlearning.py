"""The audit of unlearning where the truth is known: contaminated, unlearned, and a clean twin.

    python -m perf.audit_unlearning [runs]
    python -m perf.audit_unlearning coverage

The first contaminates the quickstart's model, trains its clean twin (the same cell, its members
inserted no time), unlearns the members in each way that the training stage has, and audits all of
them together: at most 20 minutes on two cores. `continued` is plain training on the twin's corpus,
which each unlearner must beat; `halfway` has the mean of the original's and the twin's weights.

`coverage` simulates the share of the way where it is known, 0 (unlearned = original) and 1
(unlearned = clean) among others, and counts how often the interval holds it, and how often a share
is told where the original is as the twin. The exit status is 1 where that is off.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from contamination.audits.base import AuditStage
from contamination.audits.run import MARKDOWN
from contamination.audits.run import run as audit
from contamination.audits.unlearning.estimates import Units
from contamination.audits.unlearning.forget_ratio import travelled
from contamination.core.cli import made
from contamination.core.statistics.bootstrap import Scores
from contamination.injection.corpus import open_corpus
from contamination.injection.finetuning.config import FinetuningStage
from contamination.injection.finetuning.run import run as make_set
from contamination.training.config import TrainingStage
from contamination.training.run import run as train
from contamination.training.trained_model import open_checkpoint

QUICKSTART = ("experiment=quickstart", "method=[loss]", "wandb.mode=disabled")
NO_TIME = ("occurrences=fixed", "occurrences.count=0")
METHODS = "method=[loss,zlib,min_k,min_k_plus_plus]"
RECIPE = ("training.batch_sequences=4", "training.micro_batch_sequences=4", "wandb.mode=disabled")
UNLEARNERS = {
    "ascent": ("training.learning_rate=1e-4",),
    "difference": ("training.learning_rate=2e-4",),
    "npo": ("training.learning_rate=4e-4", "training.epochs=3"),
    "relabel": ("training.learning_rate=4e-4", "training.epochs=3"),
}
"""Recipes by `training.objective`. They are not tuned: some lose all other text as well."""
RETAINING = ("difference", "npo", "relabel")
"""Those that are given text to keep."""
Words = tuple[str, ...]
SHAPES = ("normal", "skewed", "rate")
REPETITIONS = 1_000
WITHIN = 0.92, 0.98
"""What a coverage must lie within."""
FALSELY_TOLD = 0.06
"""The most that an original as clean as its twin may be told apart: 2.5% and chance."""


def main(runs: str) -> None:
    """Make the models, audit them and print the audit."""
    own = (f"runs={runs}",)
    original, corpus = _cell(own)
    clean, retained = _cell((*own, *NO_TIME))
    models = {
        "continued": _trained(own, original, retained, ("training.learning_rate=4e-4",)),
        **_unlearned(own, original, _forgotten(own, corpus), retained),
        "halfway": _halfway(original, clean, Path(runs) / "halfway"),
    }
    given = ",".join(f"{name}: '{path}'" for name, path in models.items())
    words = [
        *(*own, METHODS, "audit=unlearning", f"audit.unlearned={{{given}}}"),
        *(f"audit.original={original}", f"audit.clean={clean}", f"audit.texts={corpus}"),
    ]
    print((made("audit", words, AuditStage, audit) / MARKDOWN).read_text())


def _cell(words: Words) -> tuple[Path, Path]:
    """The model and the corpus of one cell of the quickstart."""
    from hydra import compose, initialize_config_dir

    from contamination.core.cli import CONF
    from contamination.launch.config import ClusterConfig
    from contamination.launch.pipeline import run_cell
    from contamination.launch.plan import plan
    from contamination.launch.stages import Stages

    with initialize_config_dir(str(CONF), version_base="1.3"):
        cell = run_cell(plan(compose("pipeline", [*QUICKSTART, *words])), Stages(ClusterConfig()))
    assert cell is not None
    return Path(cell.model), Path(cell.corpus)


def _forgotten(own: Words, corpus: Path) -> Path:
    """The corpus's members as a fine-tuning set."""
    width = open_corpus(corpus).sequence_tokens
    how = ("finetuning.format=text", f"finetuning.sequence_tokens={width}")
    words = (*own, f"corpus_folder={corpus}", "instructions=[]", *how)
    return made("finetuning", words, FinetuningStage, make_set)


def _trained(own: Words, model: Path, texts: Path, words: Words) -> Path:
    """The model trained further."""
    given = (f"model.path={model}", f"corpus_folder={texts}")
    return made("training", (*own, *RECIPE, *given, *words), TrainingStage, train)


def _unlearned(own: Words, model: Path, forget: Path, retained: Path) -> dict[str, Path]:
    """The model after each unlearner."""
    found, kept = {}, (f"training.retain_folder={retained}",)
    reinforced = _trained(own, model, forget, ("training.learning_rate=4e-4", "training.epochs=3"))
    for name, recipe in UNLEARNERS.items():
        words = (*recipe, f"training.objective={name}", *kept * (name in RETAINING))
        if name == "relabel":
            words += (f"training.reinforced_path={reinforced}",)
        found[name] = _trained(own, model, forget, words)
    return found


def _halfway(one: Path, other: Path, out: Path) -> Path:
    """A model with the mean of the weights of both."""
    from safetensors.torch import load_file, save_file

    folders = [open_checkpoint(path).hf for path in (one, other)]
    shutil.copytree(folders[0], out, dirs_exist_ok=True)
    for file in out.glob("*.safetensors"):
        first, second = (load_file(folder / file.name) for folder in folders)
        mixed = {name: (first[name] + second[name]) / 2 for name in first}
        save_file(mixed, file, metadata={"format": "pt"})
    return out


def coverage() -> int:
    """Print how often the interval holds the true share; 1 where that is off."""
    bad = False
    print(f"{'shape':8} {'texts':>5} {'share':>5} {'told':>6} {'held':>6}")
    for shape in SHAPES:
        for texts in (20, 50, 100, 400):
            for share in (0.0, 0.5, 1.0):
                told, held = _held(shape, texts, share, gap=0.4)
                bad |= told > REPETITIONS / 2 and not WITHIN[0] <= held / told <= WITHIN[1]
                rate = held / max(1, told)
                print(f"{shape:8} {texts:>5} {share:>5} {told / REPETITIONS:>6.3f} {rate:>6.3f}")
            told, _ = _held(shape, texts, 0.0, gap=0.0)
            bad |= told > FALSELY_TOLD * REPETITIONS
            print(f"{shape:8} {texts:>5} {'none':>5} {told / REPETITIONS:>6.3f} {'-':>6}")
    return int(bad)


def _held(shape: str, texts: int, share: float, gap: float) -> tuple[int, int]:
    """How often a share is told, and how often the interval then holds the true one."""
    rng, told, held = np.random.default_rng(texts), 0, 0
    rows = {"text_id": map(str, range(texts)), "benchmark": "", "member": True}
    units = Units(pd.DataFrame(rows).astype({"member": "boolean"}), 0)
    draw = partial(_drawn, rng, shape, texts, gap)
    for _ in range(REPETITIONS):
        found = travelled([units.mean(values, True) for values in draw(share)], texts)
        told += not found.why
        held += not found.why and found.low <= share <= found.high
    return told, held


def _drawn(
    rng: np.random.Generator, shape: str, texts: int, gap: float, share: float
) -> list[Scores]:
    """The texts' figures by the original, the unlearned model and the twin."""
    if shape == "rate":  # answers, right or wrong
        means = 0.1 + gap * np.array([1, 1 - share, 0])
        return [(rng.random(texts) < mean).astype(float) for mean in means]
    base = rng.normal(size=texts) / 2
    way = gap * (rng.exponential(size=texts) if shape == "skewed" else 1 + rng.normal(size=texts))
    noise = 0.3 * rng.normal(size=(3, texts))
    return [base + part * way + own for part, own in zip((1, 1 - share, 0), noise, strict=True)]


if __name__ == "__main__":
    if sys.argv[1:] == ["coverage"]:
        sys.exit(coverage())
    main(*(sys.argv[1:] or ["runs"]))

"""The audit of unlearning where the truth is known: contaminated, unlearned, and a clean twin.

    python -m perf.audit_unlearning [runs]
    python -m perf.audit_unlearning coverage

The first contaminates the quickstart's model, trains its clean twin (the same cell, its members
never inserted), unlearns the members by each objective of the training stage, and audits all models
together: half an hour on one shared core. `continued` is plain training on the twin's corpus, which
each unlearner must beat; `halfway` has the mean of the original's and the twin's weights.

`coverage` simulates known forget ratios, among them 0 (unlearned = original) and 1 (unlearned =
clean). It counts how often the interval covers them, and how often a ratio is estimated although
the original is like the twin. The exit status is 1 if these rates are out of bounds.
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
from contamination.audits.unlearning.audit_units import AuditUnits
from contamination.audits.unlearning.forget_ratio import forget_ratio
from contamination.core.cli import run_stage
from contamination.core.statistics.bootstrap import Scores
from contamination.injection.corpus import open_corpus
from contamination.injection.finetuning.config import FinetuningStage
from contamination.injection.finetuning.run import run as make_set
from contamination.training.config import TrainingStage
from contamination.training.run import run as train
from contamination.training.trained_model import open_checkpoint

QUICKSTART = ("experiment=quickstart", "method=[loss]", "wandb.mode=disabled")
NO_OCCURRENCES = ("occurrences=fixed", "occurrences.count=0")
METHODS = "method=[loss,zlib,min_k,min_k_plus_plus]"
RECIPE = ("training.batch_sequences=4", "training.micro_batch_sequences=4", "wandb.mode=disabled")
UNLEARNERS = {
    "ascent": ("training.learning_rate=1e-4",),
    "difference": ("training.learning_rate=2e-4",),
    "difference_kl": ("training.learning_rate=2e-4", "training.retain_loss=kl"),
    "npo": ("training.learning_rate=4e-4", "training.epochs=3"),
    "simnpo": ("training.learning_rate=4e-4", "training.epochs=3", "training.simnpo_beta=0.5"),
    "rmu": ("training.learning_rate=4e-4", "training.epochs=3", "training.rmu_layer=0"),
    "idk_dpo": ("training.learning_rate=4e-4", "training.epochs=3", "training.loss_on=output"),
    "relabel": ("training.learning_rate=4e-4", "training.epochs=3"),
}
"""Recipes by name, the `training.objective` before a suffix such as _kl.

They are not tuned: some lose all other text as well.
"""
WITHOUT_RETAINED_TEXT = ("ascent",)
IDK = ("I don't know.", "I have no information about that.", "I'm not sure.", "I was never told.")
"""The answers that idk_dpo prefers."""
Words = tuple[str, ...]
SHAPES = ("normal", "skewed", "rate")
REPETITIONS = 1_000
WITHIN = 0.92, 0.98
"""The bounds of the coverage."""
FALSELY_ESTIMATED = 0.06
"""The largest rate of ratios although original and twin are alike: 2.5%, and chance."""


def main(runs: str) -> None:
    """Makes the models, audits them and prints the audit."""
    run_words = (f"runs={runs}",)
    original, corpus = _train_cell(run_words)
    clean, retained = _train_cell((*run_words, *NO_OCCURRENCES))
    models = {
        "continued": _train_model(run_words, original, retained, ("training.learning_rate=4e-4",)),
        **_unlearn_by_method(run_words, original, corpus, retained),
        "halfway": _average_models(original, clean, Path(runs) / "halfway"),
    }
    unlearned = ",".join(f"{name}: '{path}'" for name, path in models.items())
    words = [
        *(*run_words, METHODS, "audit=unlearning", f"audit.unlearned={{{unlearned}}}"),
        *(f"audit.original={original}", f"audit.clean={clean}", f"audit.texts={corpus}"),
    ]
    print((run_stage("audit", words, AuditStage, audit) / MARKDOWN).read_text())


def _train_cell(words: Words) -> tuple[Path, Path]:
    """The model and the corpus of one cell of the quickstart."""
    from hydra import compose, initialize_config_dir

    from contamination.core.config import CONF
    from contamination.launch.config import ClusterConfig
    from contamination.launch.pipeline import run_cell
    from contamination.launch.plan import plan
    from contamination.launch.stage_runner import Stages

    with initialize_config_dir(str(CONF), version_base="1.3"):
        cell = run_cell(plan(compose("pipeline", [*QUICKSTART, *words])), Stages(ClusterConfig()))
    assert cell is not None
    return Path(cell.model), Path(cell.corpus)


def _write_forget_set(runs: Words, corpus: Path, text_format: str) -> Path:
    """The corpus's members as a fine-tuning set."""
    width = open_corpus(corpus).sequence_tokens
    set_words = (f"finetuning.format={text_format}", f"finetuning.sequence_tokens={width}")
    words = (*runs, f"corpus_folder={corpus}", "instructions=[]", *set_words)
    return run_stage("finetuning", words, FinetuningStage, make_set)


def _train_model(runs: Words, model: Path, texts: Path, words: Words) -> Path:
    """The model trained further."""
    model_words = (f"model.path={model}", f"corpus_folder={texts}")
    return run_stage("training", (*runs, *RECIPE, *model_words, *words), TrainingStage, train)


def _unlearn_by_method(runs: Words, model: Path, corpus: Path, retained: Path) -> dict[str, Path]:
    """The model after each unlearner."""
    models, retain = {}, (f"training.retain_folder={retained}",)
    forget, prompts = (_write_forget_set(runs, corpus, kind) for kind in ("text", "template"))
    answers = prompts.parent / "idk.txt"
    answers.write_text("\n".join(IDK))
    reinforced = _train_model(
        runs, model, forget, ("training.learning_rate=4e-4", "training.epochs=3")
    )
    inputs = {
        "relabel": (f"training.reinforced_path={reinforced}",),
        "idk_dpo": (f"training.idk_answers={answers}",),
    }
    for name, recipe in UNLEARNERS.items():
        words = (*recipe, f"training.objective={name.removesuffix('_kl')}", *inputs.get(name, ()))
        words += retain * (name not in WITHOUT_RETAINED_TEXT)
        models[name] = _train_model(runs, model, prompts if name == "idk_dpo" else forget, words)
    return models


def _average_models(model: Path, other: Path, out: Path) -> Path:
    """A model with the mean of both models' weights."""
    from safetensors.torch import load_file, save_file

    folders = [open_checkpoint(path).hf for path in (model, other)]
    shutil.copytree(folders[0], out, dirs_exist_ok=True)
    for file in out.glob("*.safetensors"):
        first, second = (load_file(folder / file.name) for folder in folders)
        mixed = {name: (first[name] + second[name]) / 2 for name in first}
        save_file(mixed, file, metadata={"format": "pt"})
    return out


def print_coverage() -> int:
    """Prints how often the interval covers the true ratio; returns 1 if that is out of bounds."""
    failed = False
    print(f"{'shape':8} {'texts':>5} {'share':>5} {'made':>6} {'cover':>6}")
    for shape in SHAPES:
        for texts in (20, 50, 100, 400):
            for share in (0.0, 0.5, 1.0):
                estimated, covered = _simulated_coverage(shape, texts, share, gap=0.4)
                rate = covered / max(1, estimated)
                failed |= estimated > REPETITIONS / 2 and not WITHIN[0] <= rate <= WITHIN[1]
                print(
                    f"{shape:8} {texts:>5} {share:>5} {estimated / REPETITIONS:>6.3f} {rate:>6.3f}"
                )
            estimated, _ = _simulated_coverage(shape, texts, 0.0, gap=0.0)
            failed |= estimated > FALSELY_ESTIMATED * REPETITIONS
            print(f"{shape:8} {texts:>5} {'none':>5} {estimated / REPETITIONS:>6.3f} {'-':>6}")
    return int(failed)


def _simulated_coverage(shape: str, texts: int, share: float, gap: float) -> tuple[int, int]:
    """How often the ratio is estimated, and how often its interval then covers the true one."""
    rng, estimated, covered = np.random.default_rng(texts), 0, 0
    rows = {"text_id": map(str, range(texts)), "benchmark": "", "member": True}
    units = AuditUnits(pd.DataFrame(rows).astype({"member": "boolean"}), 0)
    draw = partial(_draw_figures, rng, shape, texts, gap)
    for _ in range(REPETITIONS):
        ratio = forget_ratio([units.label_mean(values, True) for values in draw(share)], texts)
        estimated += not ratio.reason
        covered += not ratio.reason and ratio.low <= share <= ratio.high
    return estimated, covered


def _draw_figures(
    rng: np.random.Generator, shape: str, texts: int, gap: float, share: float
) -> list[Scores]:
    """The texts' figures by the original, the unlearned model and the twin."""
    if shape == "rate":  # answers, right or wrong
        means = 0.1 + gap * np.array([1, 1 - share, 0])
        return [(rng.random(texts) < mean).astype(float) for mean in means]
    base = rng.normal(size=texts) / 2
    effect = gap * (
        rng.exponential(size=texts) if shape == "skewed" else 1 + rng.normal(size=texts)
    )
    noise = 0.3 * rng.normal(size=(3, texts))
    return [
        base + part * effect + errors for part, errors in zip((1, 1 - share, 0), noise, strict=True)
    ]


if __name__ == "__main__":
    if sys.argv[1:] == ["coverage"]:
        sys.exit(print_coverage())
    main(*(sys.argv[1:] or ["runs"]))

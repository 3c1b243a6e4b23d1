"""The whole way on real data, small enough for the default suite, and what it made."""

import json
from pathlib import Path

from hydra import compose, initialize_config_dir

from contamination.analysis.report_folder import open_report
from contamination.core.config import CONF
from contamination.core.integrity import MANIFEST
from contamination.launch.pipeline import run

SMALL = [
    "name=small", "benchmark=[boolq,truthfulqa]", "corpus.subsets=[common_crawl,book]",
    "model.pretraining.budget_tokens=40_000", "model.pretraining.vocab_size=512",
    "model.pretraining.tokenizer_characters=200_000", "model.pretraining.sequence_tokens=128",
    "injection.members=16", "injection.nonmembers=16",
    "injection.budget_tokens=60_000", "injection.sequence_tokens=128",
    "training.learning_rate=4e-3", "injection.example_max_tokens=100",
    "training.checkpoint_every_steps=5", "training.evaluate_every_steps=10",
    "training.evaluate_tokens=1024", "training.export_steps=[10]",
    "occurrences.rungs=[2,8]", "analysis.draws=100", "analysis.examples=3",
]  # fmt: skip


def launch(runs, *more):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return run(compose("pipeline", [*SMALL, f"runs={runs}", "wandb.mode=disabled", *more]))


def contents(runs):
    """Every artefact's name and checksums."""
    return {
        str(path.parent.relative_to(runs)): json.loads(path.read_text())["files"]
        for path in sorted(Path(runs).glob(f"*/*/{MANIFEST}"))
    }


def report_of(runs):
    latest = json.loads((runs / "report" / "latest.json").read_text())["folder"]
    return open_report(runs / "report" / latest)

"""`python -m detection`: scores texts; a first word such as `accuracy` runs another stage."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from omegaconf import DictConfig, open_dict

from contamination.core.cli import run_hydra_command, run_tool
from contamination.core.config import convert_config
from contamination.core.distributed import is_launched
from contamination.core.help import print_help_or_error
from contamination.core.user_files import atomic_output_file
from contamination.detection.config import DetectionStage, ProbeStage

EXAMPLES_OVERRIDE, EXAMPLES_FILE_FIELD = re.compile(r"^\+*examples(?==)"), "examples_file"
"""For `thresholds`, `examples=FILE` is renamed, so that Hydra does not look for
conf/examples/FILE."""


def run_under_launcher(stage: Callable[[], int]) -> int:
    """Runs a stage, shared by the processes of a launcher if there is one; returns its status."""
    if not is_launched():
        return stage()
    from contamination.detection.process_group import run_by_rank_0

    return run_by_rank_0(stage)


def main(config: DictConfig) -> None:
    """Runs the stage and prints a summary of the scores."""
    from contamination.data.near_duplicates import duplicate_notes
    from contamination.detection.benchmark_summary import render_benchmark_report
    from contamination.detection.examples import open_examples
    from contamination.detection.run import run, run_slice
    from contamination.detection.scores import open_scores
    from contamination.detection.summary import summarise_scores

    stage = convert_config(config, DetectionStage)
    if stage.dry_run:
        from contamination.detection.tasks.probe import format_request_plan

        print(format_request_plan(stage))
        return
    if stage.slice is not None:
        run_slice(stage)
        return
    if "records" in config:  # a launcher reports on the scores
        run(stage)
        return
    examples = open_examples(stage.examples)
    tables = open_scores(run(stage, examples=examples).path).tables
    if stage.examples.name is not None:
        out = None if stage.out is None else Path(stage.out).expanduser()
        models = {str(stage.model.path or stage.model.url): tables}
        print(render_benchmark_report(stage.examples, examples, models, out))
        return
    results = None if stage.out is None else Path(stage.out).expanduser() / "results.json"
    print(summarise_scores(tables, examples, results=results, notes=duplicate_notes(examples)))


def online(config: DictConfig) -> None:
    """Scores windows of joined texts and prints a summary of their scores."""
    from contamination.detection.summary import summarise_scores
    from contamination.detection.tasks.config import OnlineStage
    from contamination.detection.tasks.online import run

    stage = convert_config(config, OnlineStage)
    table, windows = run(stage)
    print(summarise_scores(table, windows, blind=False))
    if stage.out is not None:
        out = Path(stage.out).expanduser()
        out.mkdir(parents=True, exist_ok=True)
        labels = {w.example_id: w.label for w in windows}
        table = table.assign(label=table["example_id"].map(labels))
        with atomic_output_file(out / "windows.parquet") as partial_file:
            table.to_parquet(partial_file, index=False)
        print(f"wrote {out / 'windows.parquet'}")


def codec(config: DictConfig) -> None:
    """Prints the share of each set's texts that become less likely after others of the set."""
    from contamination.detection.tasks.config import CodecStage
    from contamination.detection.tasks.context_drop import run

    stage = convert_config(config, CodecStage)
    drops = run(stage)
    print(drops.summary())
    if stage.out is not None:
        out = Path(stage.out).expanduser()
        out.mkdir(parents=True, exist_ok=True)
        with atomic_output_file(out / "codec.parquet") as partial_file:
            drops.texts.to_parquet(partial_file, index=False)
        print(f"wrote {out / 'codec.parquet'}")


def accuracy(config: DictConfig) -> None:
    """Answers the corpus's questions and prints the accuracy on members and on non-members."""
    from contamination.detection.tasks.accuracy import FILE, run
    from contamination.detection.tasks.accuracy_summary import format_comparison, format_summary
    from contamination.detection.tasks.config import AccuracyStage

    stage = convert_config(config, AccuracyStage)
    tables = []
    for model_stage in stage.models():
        artifact = run(model_stage)
        tables.append(artifact.table(FILE))
        print(
            f"{model_stage.model.given}\n{format_summary(tables[-1], artifact)}\n"
            f"wrote {artifact.path}\n"
        )
    if len(tables) > 1:
        print(format_comparison(*tables))


def extraction(config: DictConfig) -> None:
    """Prints the shares of members and of non-members that the model reproduces verbatim."""
    from contamination.detection.tasks.config import ExtractionStage
    from contamination.detection.tasks.extraction import FILE, format_summary, run

    stages = convert_config(config, ExtractionStage).models()
    artifacts = dict(zip(("model", "reference"), map(run, stages), strict=False))
    tables = {name: artifact.table(FILE) for name, artifact in artifacts.items()}
    print(format_summary(tables, artifacts["model"].counts["left_out"]))
    print("\n".join(f"wrote {artifact.path}" for artifact in artifacts.values()))


def probe(config: DictConfig) -> None:
    """Prints what a server can do."""
    from contamination.detection.tasks.probe import run

    print(run(convert_config(config, ProbeStage)))


def thresholds(config: DictConfig) -> None:
    """Chooses thresholds, or applies them."""
    from contamination.detection.tasks.calibration import calibrate_or_apply
    from contamination.detection.tasks.config import ThresholdStage

    with open_dict(config):
        config.examples = config.pop(EXAMPLES_FILE_FIELD)
    calibrate_or_apply(convert_config(config, ThresholdStage))


def view(config: DictConfig) -> None:
    """Writes the page that shows examples token by token."""
    from contamination.detection.config import ViewStage
    from contamination.detection.viewer.run import run

    print(f"wrote {run(convert_config(config, ViewStage))}")


def build(config: DictConfig) -> None:
    """Builds a labelled benchmark of dated documents and prints its datasheet."""
    from contamination.detection.building.run import run
    from contamination.detection.config import BuildStage

    artifact = run(convert_config(config, BuildStage))
    print(f"{(artifact.path / 'datasheet.md').read_text()}\nwrote {artifact.path}")


def select(config: DictConfig) -> None:
    """Selects the candidates that overlap little with a corpus and prints the datasheet."""
    from contamination.detection.building.overlap_selection import select_nonmembers
    from contamination.detection.config import SelectStage

    artifact = select_nonmembers(convert_config(config, SelectStage))
    print(f"{(artifact.path / 'datasheet.md').read_text()}\nwrote {artifact.path}")


def train_lt_mia(config: DictConfig) -> None:
    """Trains LT-MIA on cells, tests it on others, and prints its data sheet."""
    from contamination.detection.attack_sheet import format_data_sheet
    from contamination.detection.tasks.config import TrainLtMiaStage
    from contamination.detection.tasks.train_lt_mia import run

    stage = convert_config(config, TrainLtMiaStage)
    attack = run(stage)
    print(f"{format_data_sheet(attack)}\nwrote {stage.out}")


def run_named_stage() -> int:
    """Runs the stage that the command line names; returns the exit status."""
    stages = {
        "accuracy": accuracy,
        "build": build,
        "codec": codec,
        "extraction": extraction,
        "online": online,
        "probe": probe,
        "select": select,
        "thresholds": thresholds,
        "train-lt-mia": train_lt_mia,
        "view": view,
    }
    name, stage = "detection", main
    if sys.argv[1:2] and sys.argv[1] in stages:
        stage = stages[sys.argv[1]]
        name = sys.argv.pop(1).replace("-", "_")
    if stage is thresholds:
        sys.argv[1:] = [EXAMPLES_OVERRIDE.sub(EXAMPLES_FILE_FIELD, word) for word in sys.argv[1:]]
    return run_tool(partial(run_under_launcher, partial(run_hydra_command, name, stage)))


if __name__ == "__main__":
    answered = print_help_or_error("detection")
    sys.exit(run_named_stage() if answered is None else answered)

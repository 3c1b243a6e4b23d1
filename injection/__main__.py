"""`python -m injection [overrides]`, and its tools.

They are: finetuning, export, decontaminate, verify, show.
"""

from __future__ import annotations

import sys

from omegaconf import DictConfig

from contamination.core.cli import compose_stage, run_hydra_command, run_tool
from contamination.core.config import convert_config
from contamination.core.help import print_help_or_error, print_usage_error
from contamination.core.integrity import errors_naming_folders
from contamination.injection.config import InjectionStage
from contamination.injection.finetuning.config import FinetuningStage

FORMAT = "format._target_="


def make_corpus(config: DictConfig) -> None:
    """Builds a contaminated corpus."""
    from contamination.injection.run import run

    run(convert_config(config, InjectionStage))


def make_finetuning_set(config: DictConfig) -> None:
    """Builds a fine-tuning set."""
    from contamination.injection.finetuning.run import run

    run(convert_config(config, FinetuningStage))


def export(config: DictConfig) -> None:
    """Writes a finished corpus in another trainer's format."""
    from contamination.injection.config import ExportStage
    from contamination.injection.export.run import export_corpus

    export_corpus(convert_config(config, ExportStage))


def decontaminate(config: DictConfig) -> None:
    """Writes a corpus without the items of benchmarks."""
    from contamination.injection.decontamination.config import DecontaminateStage
    from contamination.injection.decontamination.run import decontaminate

    decontaminate(convert_config(config, DecontaminateStage))


def print_copies(folder: str, example_id: str) -> None:
    """Prints an example and its copies with their context."""
    from contamination.injection.corpus import describe_copies

    print(describe_copies(folder, example_id))


def prove_folder(folder: str, words: list[str]) -> int:
    """Verifies a corpus or an export and prints the result; returns 0 if nothing is wrong, else 1.

    An export by a user's own class is verified if `words` names the class: format._target_=….
    """
    from contamination.injection.corpus import FinetuningSet, open_corpus
    from contamination.injection.export.run import is_export, prove_finished_export
    from contamination.injection.finetuning import run as finetuning_run
    from contamination.injection.run import prove_finished_corpus

    formats = [word.removeprefix(FORMAT) for word in words if word.startswith(FORMAT)]
    overrides = [word for word in words if not word.startswith(FORMAT)]
    stage = compose_stage("injection", overrides, InjectionStage)
    with errors_naming_folders(folder):
        if is_export(folder):
            proof = prove_finished_export(folder, formats)
        elif isinstance(open_corpus(folder), FinetuningSet):
            proof = finetuning_run.prove_finished_set(folder)
        else:
            proof = prove_finished_corpus(folder, stage.cluster, stage.injection.num_proc)
    print(proof)
    return 1 if proof.failures else 0


def main() -> int:
    """Runs the stage, or one of its tools."""
    if (status := print_help_or_error("injection")) is not None:
        return status
    match sys.argv[1:]:
        case ["export", *_]:
            del sys.argv[1]
            return run_hydra_command("export", export)
        case ["decontaminate", *_]:
            del sys.argv[1]
            return run_hydra_command("decontaminate", decontaminate)
        case ["finetuning", *_]:
            del sys.argv[1]
            return run_hydra_command("finetuning", make_finetuning_set)
        case ["verify", folder, *words]:
            return run_tool(lambda: prove_folder(folder, words))
        case ["show", folder, example] if example.startswith("example_id="):
            return run_tool(lambda: print_copies(folder, example.removeprefix("example_id=")))
        case ["verify" | "show" as tool, *_]:
            return print_usage_error(f"injection {tool}")
    return run_hydra_command("injection", make_corpus)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m launch experiment=quickstart [overrides]`: the whole pipeline; `-m` for a sweep.

Its tools are `status`, `report`, `check`, `adopt`, `push`, `fetch` and `plan-power`; `--help` tells
more of each.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

import contamination.launch.config  # noqa: F401 (registers the nodes of the pipeline)
from contamination.core import integrity
from contamination.core.cli import run_hydra_command, run_tool
from contamination.core.config import convert_config
from contamination.core.errors import ArtifactError, ConfigError, near_names, require
from contamination.core.help import print_help_or_error, print_usage_error
from contamination.core.signals import SIGNALS
from contamination.launch import DAMAGE_REMEDY
from contamination.launch.cells import Launch
from contamination.launch.status import status

COST = "--cost"
STOPPED = [128 + number for number in SIGNALS]


def _report_on_folder(folder: Path) -> int:
    from contamination.launch.run import report_on_launch

    if not (folder / "cells").is_dir():
        raise ArtifactError(f"{folder} is not a launch's folder: give one of runs/launches/.")
    launch = Launch(folder.resolve())
    with integrity.errors_naming_folders(folder):
        integrity.set_hash_policy(launch.read_config().get("verify", integrity.CHANGED))
        return report_on_launch(launch)


def _status_text(arguments: Sequence[str]) -> str:
    runs_word = next((word for word in arguments if word != COST), "runs")
    if runs_word.startswith("-"):
        raise ConfigError(f"status {runs_word}: no such option. {near_names(runs_word, [COST])}")
    runs = Path(runs_word.removeprefix("runs="))
    with integrity.errors_naming_folders(runs):
        return status(runs, cost=COST in arguments)


def _check_runs_and_maybe_prune(arguments: Sequence[str]) -> int:
    from contamination.launch.check_runs import DAMAGED, format_paths, inspect_runs, prune_paths

    options = {word for word in arguments if word.startswith("--")}
    folders = [word for word in arguments if word not in options]
    if options - {"--prune", "--yes"} or len(folders) > 1:
        return print_usage_error("launch check")
    runs = folders[0].removeprefix("runs=") if folders else "runs"
    require(bool(runs), "runs", runs, "give a folder.")
    paths = inspect_runs(Path(runs))
    print(format_paths(Path(runs), paths))
    if "--prune" in options:
        prune_paths(paths, partial(_confirm, "--yes" in options))
    return 2 if any(path.state == DAMAGED and path.path.exists() for path in paths) else 0


def _adopt_and_print(arguments: Sequence[str]) -> None:
    from contamination.launch.adopt import adopt

    fields = {"kind": "", "path": "", "runs": "runs"}
    for word in arguments:
        field_name, _, value = word.partition("=")
        if field_name not in fields:
            raise ConfigError(f"{field_name}: unknown field. {near_names(field_name, fields)}")
        fields[field_name] = value
    artifact = adopt(**fields)
    print(f"{artifact.kind}: {artifact.path}")


def _push_and_print(words: Sequence[str]) -> None:
    from contamination.launch.push import parse_words, push

    print(push(**parse_words(words)))


def _fetch_downloads(overrides: Sequence[str]) -> int:
    from contamination.launch.downloads import fetch

    sys.argv[1:] = [*overrides, "~hydra.callbacks.sweep"]  # a sweep is not announced or recorded
    return run_hydra_command("pipeline", fetch)


def _print_power_plan(config: DictConfig) -> None:
    from contamination.launch.power_config import PowerStage
    from contamination.launch.power_tables import print_power_plan

    print_power_plan(convert_config(config, PowerStage))


def _plan_power(overrides: Sequence[str]) -> int:
    import contamination.launch.power_config  # noqa: F401 (registers the node `plan`)

    sys.argv[1:] = overrides
    return run_hydra_command("plan_power", _print_power_plan)


def _confirm(always_yes: bool, question: str) -> bool:
    """Asks the user a yes-or-no question, unless `always_yes`; returns whether they agree."""
    if always_yes:
        print(f"{question} yes")
        return True
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:  # there is no terminal to answer
        print()
        return False


def _ask_what_to_run() -> None:
    raise ConfigError(
        "launch: there is nothing to run. Give an experiment, such as experiment=quickstart, or "
        "the fields that differ from conf/pipeline.yaml, such as corpus=news. "
        "`contamination list experiments` shows all experiments, and --help the main fields."
    )


def _run_configured_cell(config: DictConfig) -> Any:
    from contamination.launch.run import run

    return run(config)


def _run_launch() -> int:
    code = 1
    try:
        code = run_hydra_command("pipeline", _run_configured_cell)
    finally:  # a cell's process that dies ends Hydra's launcher; report on the other cells
        interrupted = code in STOPPED or isinstance(sys.exception(), KeyboardInterrupt)
        if "contamination.launch.run" in sys.modules and not interrupted:
            from contamination.launch.run import conclude_sweep

            code = max(code, run_tool(conclude_sweep))
    return code


def main() -> int:
    """Runs a launch, or one of its tools."""
    integrity.set_damage_remedy(DAMAGE_REMEDY)
    if (answered := print_help_or_error("launch")) is not None:
        return answered
    if {*sys.argv[1:]} <= {"-m", "--multirun"}:
        return run_tool(_ask_what_to_run)
    match sys.argv[1:]:
        case ["status", *words] if len({*words} - {COST}) < 2:
            return run_tool(lambda: print(_status_text(words)))
        case ["check", *words]:
            return run_tool(lambda: _check_runs_and_maybe_prune(words))
        case ["adopt", *words]:
            return run_tool(lambda: _adopt_and_print(words))
        case ["push", *words]:
            return run_tool(lambda: _push_and_print(words))
        case ["fetch", *words]:
            return _fetch_downloads(words)
        case ["plan-power", *words]:
            return _plan_power(words)
        case ["report", folder]:
            return run_tool(lambda: _report_on_folder(Path(folder)))
        case ["status" | "report" as tool, *_]:
            return print_usage_error(f"launch {tool}")
    return _run_launch()


if __name__ == "__main__":
    sys.exit(main())

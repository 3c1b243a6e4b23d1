"""A launch: one cell, or with `-m` a sweep of cells that share artefacts, and one report.

A cell of a sweep that fails does not stop the others. Running the same command again resumes where
it was stopped: finished artefacts are reused.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from contamination.core.artifacts import Artifact, is_complete
from contamination.core.cli import print_error
from contamination.core.config import convert_config
from contamination.core.distributed import launched_process_count
from contamination.core.errors import ConfigError, StoppedError, UserError
from contamination.core.lock import remove_empty_folders_on_error
from contamination.core.output_paths import disk_errors_as_data_errors, is_writable_folder
from contamination.core.progress import OUTER_TITLE, set_in_environment
from contamination.core.signals import restore_stopped_error
from contamination.core.sweep_cells import overrides_of_sweep_cells
from contamination.launch import labelled_benchmark, pipeline, slurm, snapshot
from contamination.launch.cells import CellFolder, Launch, Outcome
from contamination.launch.config import ClusterConfig, LaunchSettings
from contamination.launch.pipeline import make_checked_cell_plan
from contamination.launch.plan import CellPlan, input_digests
from contamination.launch.saved_config import check_savable, is_saved, load_config, save_config
from contamination.launch.stage_runner import Stages

CODE = "CONTAMINATION_CODE"
"""Environment variable that tells the processes of a sweep's cells where its code snapshot is."""
ENDED_EARLY = "its process ended before it did"
log = logging.getLogger(__name__)


class SweepCallback(Callback):
    """Hydra's callback at the start of a sweep.

    Hydra turns what it raises into warnings, so errors are kept here for the cells to report.
    """

    config: DictConfig | None = None  # the sweep's configuration
    code: Path | None = None  # its code snapshot, in the launch's folder; None: a dry run
    error: Exception | None = None  # why there is no snapshot
    errors_of_cells: ClassVar[set[str]] = set()  # those of cells that this process has run

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        """Creates the launch's folder and registers the sweep's cells."""
        SweepCallback.config = config
        try:
            _announce_sweep(config)
        except Exception:  # Hydra would only warn of it; the cells meet it again
            log.exception("The sweep's overview failed.")
        if not config.launch.dry_run:
            try:
                overrides = list(config.hydra.overrides.task)
                SweepCallback.code = create_launch(
                    config, overrides, overrides_of_sweep_cells(config) or []
                )
            except Exception as error:
                SweepCallback.error = error
                return
            os.environ[CODE] = str(SweepCallback.code)


def _announce_sweep(config: DictConfig) -> None:
    """Prints what a sweep will do, unless it was begun before.

    Raises:
        SystemExit: with 0 or, if a cell would fail, 2 after a dry run; with 2 if all cells would
            fail.
    """
    cells, overrides = overrides_of_sweep_cells(config), list(config.hydra.overrides.task)
    launch = Launch.of_command(config.runs, config.name, overrides)
    is_dry = config.launch.dry_run
    is_new = is_writable_folder(config.runs) and not launch.is_registered
    if not cells or labelled_benchmark.is_benchmark(config) or not (is_dry or is_new):
        return
    from contamination.launch import overview

    try:
        surveyed = overview.survey_sweep(config, cells)
    except (HydraException, OmegaConfBaseException):  # Hydra itself will say what is wrong
        return
    except UserError as error:
        raise SystemExit(print_error(error)) from error
    print(overview.describe_sweep(surveyed))
    for warning in overview.group_warnings(surveyed):
        print(f"warning: {warning}")
    no_cell_can_run = all(cell.error for cell in surveyed)
    if is_dry and config.cluster.kind == "slurm" and not no_cell_can_run:
        settings, code = convert_config(config, LaunchSettings), launch.folder / "code-…"
        until = settings.launch.stage
        print(slurm.render_batch_scripts(launch, code, settings.cluster, len(cells), until))
    sys.stdout.flush()
    statuses = [print_error(UserError(error)) for error in overview.group_errors(surveyed)]
    if is_dry or no_cell_can_run:
        raise SystemExit(max([0, *statuses]))


def create_launch(
    config: DictConfig, overrides: Sequence[str], cells: Sequence[Sequence[str]]
) -> Path:
    """Creates the launch's folder, registers its cells and returns its snapshot of the code.

    Args:
        config: the command's configuration, without the overrides that vary among the cells.
        overrides: the command's overrides, which name the launch.
        cells: the overrides of each cell.
    """
    launch = Launch.of_command(config.runs, config.name, overrides)
    with remove_empty_folders_on_error(launch.folder):
        launch.folder.mkdir(parents=True, exist_ok=True)
    code = snapshot.take_snapshot(launch.folder)
    if config.cluster.kind != "slurm" or not slurm.queued_job_ids(launch.cells()):
        save_config(launch.folder, config, code / "conf")  # a queued report will read it
    launch.register(cells)
    return code


def run(config: DictConfig) -> Artifact | None:
    """Runs one cell: with a report of its own, as one of a sweep, or up to a stage as a job."""
    settings = convert_config(config, LaunchSettings)
    if (
        settings.cluster.kind != "torchrun" and launched_process_count() > 1
    ):  # with torchrun, its nodes
        raise ConfigError(
            f"{launched_process_count()} processes run this at once: python -m launch is one, and "
            "starts "
            "the others itself: see cluster=local, torchrun, deepspeed, slurm and datatrove."
        )
    check_savable(config)
    scored = labelled_benchmark.is_benchmark(config)
    if scored:
        labelled_benchmark.check_cell(config, settings)
    if settings.launch.dry_run:
        print(
            labelled_benchmark.describe_cell(config)
            if scored
            else _describe_dry_run(config, settings)
        )
        return None
    if settings.launch.cell is not None:
        cell = Path(settings.launch.cell)
        load_config(cell)  # raises an error if the configuration of this process is damaged
        if settings.launch.slice is not None:
            _run_slice(config, settings, CellFolder(cell), settings.launch.slice)
            return None
        _run_cell(config, settings, Stages(settings.cluster, cell, snapshot.HOME))
        return None
    overrides = list(HydraConfig.get().overrides.task)
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        if CODE not in os.environ:  # Hydra has only warned of the error
            why = f"the launch's folder can't be made there ({SweepCallback.error!r})."
            raise ConfigError(f"runs is {config.runs!r}: {why}")
        _run_sweep_cell(config, settings, overrides)
        return None
    launch, plan = Launch.of_command(config.runs, config.name, overrides), None
    cell_folder = launch.cell(overrides)
    if not scored:  # checked before anything is written
        cell_was_done = _is_cell_done(cell_folder, config)
        plan = make_checked_cell_plan(
            config, settings, Stages(settings.cluster), cell_was_done=cell_was_done
        )
        if not is_writable_folder(config.runs):
            return _report_from_read_only_folder(config, plan, settings.launch.stage)
    code = create_launch(config, overrides, [overrides])
    _run_or_prepare_cell(config, settings, Stages(settings.cluster, cell_folder.folder, code), plan)
    if settings.cluster.kind == "slurm":
        _submit_or_report(launch, code, settings)
        return None
    return _report_on_done_cells(config, launch)


def _report_on_done_cells(config: DictConfig, launch: Launch) -> Artifact | None:
    """Writes the report on the cells that are done; None if there is none, or for a benchmark."""
    if labelled_benchmark.is_benchmark(config):
        labelled_benchmark.write_report(config, launch)
        return None
    cell_paths = launch.done_cell_paths()
    return pipeline.report(config, cell_paths) if cell_paths else None


def _runs_in_turn(settings: LaunchSettings) -> bool:
    launcher = str(HydraConfig.get().launcher["_target_"])
    return settings.cluster.kind != "slurm" and launcher.endswith(".BasicLauncher")


def _report_from_read_only_folder(
    config: DictConfig, plan: CellPlan, until: str | None
) -> Artifact | None:
    """Returns the report of a cell that is finished in a read-only folder, without a record."""
    log.info("runs=%s can't be written to: only finished artefacts are used.", config.runs)
    paths = pipeline.run_cell(plan, Stages(ClusterConfig()), until)
    return pipeline.report(config, [paths]) if paths else None


def conclude_sweep() -> int:
    """Writes a sweep's report on all cells that are done, and logs the others.

    Returns:
        The exit status: 1 if a cell has no result, else 0. Without a sweep, 0.
    """
    config, code = SweepCallback.config, SweepCallback.code
    os.environ.pop(CODE, None)
    if config is None:
        return 0
    if config.launch.dry_run:
        return 0
    if code is None:
        return 1
    settings, launch = convert_config(config, LaunchSettings), Launch(code.parent)
    if settings.cluster.kind == "slurm":
        return _submit_or_report(launch, code, settings)
    return (
        report_on_launch(launch) if settings.launch.stage is None else _log_cells_in_states(launch)
    )


def report_on_launch(launch: Launch) -> int:
    """Writes the report on a launch's cells, and logs those without a result.

    Returns:
        The exit status: 1 if a cell has no result, else 0.
    """
    done, cells = launch.done_cells(), launch.cells()
    _report_on_done_cells(launch.read_config(), launch)
    status = _log_cells_in_states(launch, ("failed", "stopped", "waiting"))
    log.info("sweep: %d of %d cells done.", len(done), len(cells))
    return status


def _log_cells_in_states(launch: Launch, states: Sequence[str] = ("failed", "stopped")) -> int:
    """Logs each error of cells in these states once; returns 1 if there are such cells, else 0."""
    ended_early = Outcome("failed", error=ENDED_EARLY)
    outcomes = [
        (cell_name, cell.read_outcome() or ended_early) for cell_name, cell in launch.named_cells()
    ]
    failures: dict[str, list[str]] = {}
    for cell_name, outcome in outcomes:
        if outcome.state in states:
            failures.setdefault(outcome.error or ENDED_EARLY, []).append(cell_name)
    for error, cell_names in failures.items():
        log.error("failed: %s: %s", "; ".join(cell_names), error)
    return int(bool(failures))


def _run_sweep_cell(config: DictConfig, settings: LaunchSettings, overrides: list[str]) -> None:
    """Runs a cell of a sweep; its errors are recorded in its folder, and the other cells go on."""
    code = Path(os.environ[CODE])
    launch = Launch(code.parent)
    cell = launch.cell(overrides)
    log.info(
        "%s: %s",
        launch.describe_position(cell) or "cell",
        launch.cell_name(cell) or " ".join(overrides),
    )
    stages = Stages(settings.cluster, cell.folder, code, in_turn=_runs_in_turn(settings))
    try:
        with restore_stopped_error(), disk_errors_as_data_errors():
            _run_or_prepare_cell(config, settings, stages)
    except StoppedError:
        raise
    except UserError as error:
        # it is listed again at the end of the sweep
        is_new = str(error) not in SweepCallback.errors_of_cells
        log.error("this cell failed: %s", error if is_new else "as an earlier one did")
        SweepCallback.errors_of_cells.add(str(error))
    except Exception:
        log.error("%s", traceback.format_exc())


def _run_or_prepare_cell(
    config: DictConfig, settings: LaunchSettings, stages: Stages, plan: CellPlan | None = None
) -> None:
    """Runs the cell here; with SLURM, writes the configuration that its jobs will read instead.

    Without a `plan` the cell is checked first.
    """
    cell, conf = CellFolder(stages.folder), stages.code / "conf"
    cell.register(list(HydraConfig.get().overrides.task))
    cell_config = OmegaConf.merge(config, {"launch": {"cell": str(cell.folder)}})
    cell_was_done = plan is None and _is_cell_done(cell, config)
    if settings.cluster.kind != "slurm":
        save_config(cell.folder, cell_config, conf)
        _run_cell(config, settings, stages, plan, cell_was_done=cell_was_done)
        return
    try:
        if slurm.queued_job_ids([cell]):  # the queued job keeps the configuration that it was given
            return
        plan = plan or make_checked_cell_plan(config, settings, stages, cell_was_done=cell_was_done)
        if _is_cell_done(cell, config, input_digests(plan)):
            return
    except Exception as error:
        cell.write_failure(error)
        raise
    save_config(cell.folder, cell_config, conf)
    cell.write_waiting()


def _submit_or_report(launch: Launch, code: Path, settings: LaunchSettings) -> int:
    """Submits the jobs of cells that have none queued; writes the report if no job is needed."""
    cells = launch.cells()
    queued_jobs = slurm.queued_job_ids(cells)
    waiting = [cell for cell in cells if cell.read_outcome() == Outcome("waiting")]
    ready = [cell for cell in waiting if not {*cell.read_jobs().values()} & queued_jobs]
    if queued_jobs:
        jobs = " ".join(sorted(queued_jobs))
        log.info("jobs of this launch that are still queued go on: %s", jobs)
    if ready:
        slurm.submit_cells(launch, code, settings.cluster, ready, settings.launch.stage)
    return _log_cells_in_states(launch) if ready or queued_jobs else report_on_launch(launch)


def _run_cell(
    config: DictConfig,
    settings: LaunchSettings,
    stages: Stages,
    plan: CellPlan | None = None,
    *,
    cell_was_done: bool = False,
) -> None:
    """Runs the cell in this process, up to the stage that is asked for."""
    cell, until = CellFolder(stages.folder), settings.launch.stage
    position = Launch(cell.folder.parents[1]).describe_position(cell)
    with cell.record_run(until), set_in_environment(OUTER_TITLE, position):
        if labelled_benchmark.is_benchmark(config):
            cell.write_outcome(labelled_benchmark.run_cell(config, stages))
            return
        plan = plan or make_checked_cell_plan(config, settings, stages, cell_was_done=cell_was_done)
        # only SLURM needs it; elsewhere every stage finds its artefacts by their content
        content = input_digests(plan) if settings.cluster.kind == "slurm" else None
        paths = pipeline.run_cell(plan, stages, until)
        if paths is not None:
            cell.write_outcome(
                Outcome("done", paths=_absolute_paths(asdict(paths)), content=content)
            )
        elif not _is_cell_done(cell, config, content):
            cell.write_outcome(Outcome("waiting", stage=until))


def _run_slice(
    config: DictConfig, settings: LaunchSettings, cell: CellFolder, fraction: str
) -> None:
    """Runs a slice of the cell's detection, such as `2/8`, in this process."""
    slice_folder = cell.slice_folder(fraction)
    position = Launch(cell.folder.parents[1]).describe_position(cell)
    stages = Stages(settings.cluster, slice_folder.folder, snapshot.HOME, slice=fraction)
    with slice_folder.record_run("detect"), set_in_environment(OUTER_TITLE, position):
        pipeline.run_cell(make_checked_cell_plan(config, settings, stages), stages)
        slice_folder.write_outcome(Outcome("done"))


def _absolute_paths(paths: dict[str, Any]) -> dict[str, Any]:
    """Returns the artefacts' folders as absolute paths, without the cost, which is None here."""
    return {
        name: [os.path.abspath(p) for p in path] if name == "exports" else os.path.abspath(path)
        for name, path in paths.items()
        if path is not None
    }


def _is_cell_done(
    cell: CellFolder, config: DictConfig, content: Mapping[str, str] | None = None
) -> bool:
    """Whether the cell is done with this configuration and content, and its artefacts exist."""
    outcome = cell.read_outcome()
    if outcome is None or outcome.content != content or not is_saved(cell.folder, config):
        return False
    paths = outcome.paths or {}
    folders = [paths[name] for name in paths if name != "exports"] + list(paths.get("exports", []))
    return bool(folders) and all(is_complete(Path(folder)) for folder in folders)


def _describe_dry_run(config: DictConfig, settings: LaunchSettings) -> str:
    from contamination.launch import overview
    from contamination.launch.text_checks import TextChecks

    overrides = list(HydraConfig.get().overrides.task)
    sweep = SweepCallback.config
    command_overrides = sweep.hydra.overrides.task if sweep else overrides
    launch = Launch.of_command(settings.runs, settings.name, list(command_overrides))
    with TemporaryDirectory() as folder:
        cell = overview.survey_cell(config, overrides, launch, TextChecks(Path(folder)))
    lines = [overview.describe_cell(cell)]
    lines += [f"warning: {warning}" for warning in overview.group_warnings([cell])]
    if settings.cluster.kind == "slurm" and sweep is None:
        code, until = launch.folder / "code-…", settings.launch.stage
        lines.append(slurm.render_batch_scripts(launch, code, settings.cluster, 1, until))
    return "\n".join(lines)

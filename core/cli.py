"""The command line of every stage: Hydra, with one-paragraph errors and exit statuses.

`run_hydra_command` and `run_tool` serve the command line; `run_stage` and `compose_stage` serve
the Python API.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from contamination.core import integrity, process_records, secrets
from contamination.core.artifacts import Artifact, version_text
from contamination.core.config import CONF, convert_config
from contamination.core.errors import ConfigError, StoppedError, UserError, require
from contamination.core.hydra_errors import hydra_error_message
from contamination.core.output_paths import check_has_disk, disk_errors_as_data_errors
from contamination.core.signals import restore_stopped_error, stop_on_signals
from contamination.core.stored_files import check_yaml_limits
from contamination.core.sweep_cells import check_sweep_cells, check_sweep_fields
from contamination.core.terminal import escape_controls
from contamination.core.tokenizer_panics import tokenizer_panics_as_config_errors

TEMPLATE = re.compile(r"\+*(?:[\w.]+\.)?template")
"""A field whose text has braces."""
T = TypeVar("T")


def run_hydra_command(config_name: str, run: Callable[[DictConfig], object]) -> int:
    """Composes `conf/<config_name>.yaml` with the command line's overrides and calls `run` with it.

    Returns:
        The exit status: 0, 2 after an error that the user can fix, 143 after SIGTERM and 130 after
        SIGINT. Any other exception is raised, so that Python exits with 1.

    Raises:
        SystemExit: with 2 if a sweep can't start. In a process whose launcher reports the failure,
            with the status of the error.
    """
    if "--version" in sys.argv[1:]:  # Hydra would print its own version
        return run_tool(lambda: print(version_text()))
    # Spinning threads make torch about twenty times slower beside another busy process.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises errors and leaves their text to us
    quiet_libraries()
    user_errors: list[UserError] = []

    def run_job(config: DictConfig) -> None:
        process_records.set_records_folder(config.get("records"))  # given by a launcher
        try:
            check_config_size(config)
            integrity.set_hash_policy(config.get("verify", integrity.CHANGED))
            runs = check_runs_folder(config)
            with (
                restore_stopped_error(),
                disk_errors_as_data_errors(runs),
                tokenizer_panics_as_config_errors(),
            ):
                run(config)
        except (Exception, StoppedError) as error:
            if not process_records.record_failure(error):
                sys.exit(error.status if isinstance(error, UserError | StoppedError) else 1)
            if not isinstance(error, UserError):  # a StoppedError ends a sweep as well
                raise
            user_errors.append(error)  # raised here, Hydra would print a line before it

    try:
        sys.argv[1:] = quote_templates(sys.argv[1:])
        secrets.check_overrides_contain_no_key(sys.argv[1:])
        check_no_sweeper_params(sys.argv[1:])
        with stop_on_signals(), disk_errors_as_data_errors():
            hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(
                run_job
            )()
    except (StoppedError, UserError) as error:
        return print_error(error)
    except (HydraException, OmegaConfBaseException) as error:
        return print_error(UserError(hydra_error_message(error, config_name, sys.argv[1:])))
    return max([0, *map(print_error, user_errors)])


def run_tool(tool: Callable[[], int | None]) -> int:
    """Runs a command that is not a Hydra application.

    Returns:
        The exit status: the tool's (0 for None), or that of a user error or a signal, which is
        printed.
    """
    quiet_libraries()
    try:
        with (
            stop_on_signals(),
            disk_errors_as_data_errors(),
            tokenizer_panics_as_config_errors(),
        ):
            return tool() or 0
    except (UserError, StoppedError) as error:
        return print_error(error)


def print_error(error: UserError | StoppedError) -> int:
    """Prints the error without the command line's secrets, and returns its exit status."""
    label = "stopped" if isinstance(error, StoppedError) else "error"
    message = escape_controls(secrets.hide_sensitive_overrides(str(error), sys.argv[1:]))
    print(f"{label}: {message}", file=sys.stderr)
    return error.status


def run_stage(
    name: str, overrides: Sequence[str], schema: type[T], run: Callable[[T], Artifact]
) -> Path:
    """Runs a stage from Python as its command would with the same overrides.

    Args:
        name: the name of the file in conf/, without its suffix.
        overrides: overrides, such as `"seed=1"`.
        schema: the stage's config class.
        run: the stage's function, which builds a run folder or reuses a finished one.

    Returns:
        The path of the run folder.

    Raises:
        UserError: as the command would report it.
    """
    with disk_errors_as_data_errors(), tokenizer_panics_as_config_errors():
        return run(compose_stage(name, overrides, schema)).path


def compose_stage(
    name: str, overrides: Sequence[str], schema: type[T], nodes: Mapping[str, Any] | None = None
) -> T:
    """Returns the config of `conf/<name>.yaml` with overrides such as `corpus=news`, `seed=1`.

    Args:
        name: the name of the file in conf/, without its suffix.
        overrides: overrides as on the command line.
        schema: the stage's config class.
        nodes: further values, merged into the composed configuration.

    Raises:
        ConfigError: a field or a choice is unknown, or a value is not allowed.
    """
    for override in overrides:
        require(isinstance(override, str), "overrides", override, 'give strings, such as "seed=1".')
    overrides = quote_templates(overrides)
    try:
        with _without_running_hydra(), initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose(name, list(overrides))
        for node_name, node in (nodes or {}).items():
            OmegaConf.update(config, node_name, node)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(hydra_error_message(error, name, overrides)) from error
    check_runs_folder(config)
    return convert_config(config, schema)


@contextmanager
def _without_running_hydra() -> Iterator[None]:
    """Lets another configuration be composed while a Hydra application runs."""
    application = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        yield
    finally:
        GlobalHydra.instance().hydra = application  # not the instance that was cleared


def quote_templates(overrides: Sequence[str]) -> list[str]:
    """Returns the overrides, with templates in the quotes that Hydra requires around braces."""
    return [*map(_quote_template, overrides)]


def _quote_template(override: str) -> str:
    name, _, value = override.partition("=")
    if not TEMPLATE.fullmatch(name):
        return override
    try:
        OverridesParser.create().parse_override(override)
    except HydraException:
        # In Hydra's quotes a backslash is itself, except before a quote.
        inner = re.sub(r'(\\*)("|$)', lambda m: m[1] * 2 + ('\\"' if m[2] else ""), value)
        return f'{name}="{inner}"'
    return override


def check_runs_folder(config: DictConfig) -> str:
    """Returns `runs`, the folder that contains all run folders.

    Raises:
        ConfigError: it is empty, or in a file system without a disk, such as /proc.
    """
    runs = config.get("runs", "runs")
    require(runs != "", "runs", runs, "give a folder.")
    check_has_disk("runs", str(runs))
    return str(runs)


def check_config_size(config: DictConfig) -> None:
    """Raises a ConfigError if the run folder's config.yaml would be too large to be read."""
    try:
        check_yaml_limits(OmegaConf.to_container(config))
    except ValueError as error:
        raise ConfigError(f"{error}.") from error


def check_no_sweeper_params(overrides: Sequence[str]) -> None:
    """Checks that the command line sweeps over fields directly, as in `seed=0,1`.

    Hydra's basic sweeper reads `hydra.sweeper.params` from files. Given on the command line, it
    fails with a traceback, except for null, which drops the values from files.

    Raises:
        ConfigError: the command line sets `hydra.sweeper.params`.
    """
    if any(override.startswith("hydra/sweeper=") for override in overrides):
        return
    for override in overrides:
        field, _, value = override.lstrip("+").partition("=")
        if re.match(r"hydra\.sweeper\.params\b", field) and value != "null":
            raise ConfigError(
                f"{field} is {value}: on the command line, give the values to the field itself, "
                "such as --multirun seed=0,1. hydra.sweeper.params=null drops those from files."
            )


class SweepCheck(Callback):
    """A Hydra callback that stops an invalid sweep before anything is written.

    Hydra turns exceptions in a callback into warnings, except for SystemExit.
    """

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        """Exits with the status of a user error if `runs` or the sweep's values are not valid."""
        try:
            check_runs_folder(config)
            check_sweep_cells(config)
            check_sweep_fields(config)
        except UserError as error:
            raise SystemExit(print_error(error)) from error


@contextmanager
def discard_output() -> Iterator[None]:
    """Discards standard output and standard error, also those of subprocesses."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved_descriptors = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    try:
        with open(os.devnull, "w") as devnull:
            for descriptor, _ in saved_descriptors:
                os.dup2(devnull.fileno(), descriptor)
            yield
    finally:
        sys.stdout.flush()  # so that buffered output is discarded as well
        sys.stderr.flush()
        for descriptor, copy in saved_descriptors:
            os.dup2(copy, descriptor)
            os.close(copy)


def quiet_libraries() -> None:
    """Turns off the progress bars and warnings of libraries; their errors are still shown."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault(
        "WANDB_ERROR_REPORTING", "false"
    )  # wandb would send reports even from offline runs
    for name in ("DeepSpeed", "httpx", "matplotlib", "numexpr", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(deepspeed|torch|transformers)\..*")
    warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box is drawn

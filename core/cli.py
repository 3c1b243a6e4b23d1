"""The command line of every stage: Hydra, with one-paragraph errors and exit statuses.

`run_hydra_command` and `run_tool` serve the command line; `run_stage` and `compose_stage` serve
the Python API.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, Sweep
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from contamination.core import integrity, process_records, secrets
from contamination.core.artifacts import Artifact, version_text
from contamination.core.config import convert_config
from contamination.core.errors import ConfigError, StoppedError, UserError, near_names, require
from contamination.core.output_paths import check_has_disk, disk_errors_as_data_errors
from contamination.core.signals import stop_on_signals
from contamination.core.stored_files import check_yaml_limits
from contamination.core.suggestions import known_fields, similar_fields, unknown_field_in_error
from contamination.core.terminal import escape_controls
from contamination.core.tokenizer_panics import tokenizer_panics_as_config_errors

CONF = Path(__file__).resolve().parents[1] / "conf"
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
            with disk_errors_as_data_errors(runs), tokenizer_panics_as_config_errors():
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
        return print_error(UserError(_hydra_error_message(error, config_name, sys.argv[1:])))
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
        raise ConfigError(_hydra_error_message(error, name, overrides)) from error
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


def check_sweep_cells(config: DictConfig) -> None:
    """Checks that Hydra's basic sweeper would run the cells that the command line describes.

    Raises:
        ConfigError: there is no cell, as with `seed=range(0,0)`, or a list contains ranges.
    """
    if not _has_basic_sweeper(config):
        return
    batch_size = config.hydra.sweeper.get("max_batch_size")
    remedy = "give 1 or more, or null."
    require(
        batch_size is None or batch_size >= 1, "hydra.sweeper.max_batch_size", batch_size, remedy
    )
    with suppress(HydraException):  # the sweeper itself reports such values
        for override in _parse_all_overrides(config):
            values = override.value()
            if isinstance(values, ChoiceSweep) and any(isinstance(v, Sweep) for v in values.list):
                remedy = "--multirun takes one range or a list of values. Write all values out."
                raise _sweep_error(override, remedy)
        if overrides_of_sweep_cells(config) != []:
            return
        for override in _parse_all_overrides(config):
            if override.is_discrete_sweep() and not [*override.sweep_string_iterator()]:
                remedy = "--multirun has nothing to run. Give at least one value."
                raise _sweep_error(override, remedy)


def check_sweep_fields(config: DictConfig) -> None:
    """Checks that the cells of a sweep can be composed; each override is checked once.

    Raises:
        ConfigError: a field or a choice is unknown.
    """
    name, checked = config.hydra.job.config_name, set[str]()
    for cell in overrides_of_sweep_cells(config) or ():
        if {*cell} <= checked:
            continue
        checked |= {*cell}
        try:
            compose_cell(config, cell)
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(_hydra_error_message(error, name, cell)) from error


def compose_cell(config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """Returns the configuration of a cell of a sweep, with Hydra's node; it must not be changed.

    Raises:
        HydraException: it can't be composed.
    """
    return _compose(config.hydra.job.config_name, (*config.hydra.overrides.hydra, *overrides))


@lru_cache(maxsize=64)  # the check of the fields and the overview need the same cells
def _compose(name: str, overrides: tuple[str, ...]) -> DictConfig:
    loader = GlobalHydra.instance().config_loader()
    return loader.load_configuration(name, [*overrides], RunMode.RUN)


def _sweep_error(override: Override, remedy: str) -> ConfigError:
    field, _, value = str(override.input_line).partition("=")
    return ConfigError(f"{field} is {value}: {remedy}")


def overrides_of_sweep_cells(config: DictConfig) -> list[list[str]] | None:
    """Returns the overrides of each cell of a sweep, as Hydra's basic sweeper combines them.

    Returns None for any other sweeper, which may choose cells while the sweep runs.
    """
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    if not _has_basic_sweeper(config):
        return None
    batches = BasicSweeper.split_arguments(_parse_all_overrides(config), None)
    return [cell for batch in batches for cell in batch]


def _has_basic_sweeper(config: DictConfig) -> bool:
    return bool(config.hydra.sweeper._target_.endswith(".BasicSweeper"))


def _parse_all_overrides(config: DictConfig) -> list[Override]:
    """The sweep's overrides: those of its configuration, then those of the command line."""
    parameters = config.hydra.sweeper.params or {}
    override_texts = [*(f"{k}={v}" for k, v in parameters.items()), *config.hydra.overrides.task]
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    overrides: list[Override] = parser.parse_overrides(override_texts)
    return overrides


def _hydra_error_message(error: Exception, config_name: str, words: Sequence[str]) -> str:
    """The error in one paragraph; for a misspelt field, with similar names."""
    if (name := unknown_field_in_error(error)) is not None:
        return _unknown_field_message(name, config_name, words)
    if match := re.match(r"You must specify '([^']+)'.*?Available options:(.*)", str(error), re.S):
        group, choices = match[1], match[2].split()
        return (
            f"{group} is missing: choose one of {', '.join(choices)}, such as {group}={choices[0]}."
        )
    if isinstance(error, MissingConfigException):
        return _unknown_choice_message(error)
    if isinstance(error, OverrideParseException):
        return _unreadable_override_message(error)
    return _describe_hydra_error(error)


def _unknown_field_message(name: str, config_name: str, words: Sequence[str]) -> str:
    *others, last = similar_fields(name, known_fields(str(CONF), config_name, words)) or [""]
    names = f"{', '.join(others)} or {last}" if others else last
    hint = f"Did you mean {names}? " if names else ""
    return (
        f"{name}: unknown field. {hint}--help shows the main fields, docs/fields.md all of them, "
        "and --cfg job those of this command."
    )


def _unreadable_override_message(error: OverrideParseException) -> str:
    """The message shows the override in quotes, which Hydra requires around some characters."""
    name, equals, value = error.override.partition("=")
    quoted = shlex.quote(f'{name}="{value}"')
    if not equals or '"' in value or "'" in value:
        return _describe_hydra_error(error)
    return f"{name} is {value}: Hydra can't read it. If it is a text, put it in quotes: {quoted}."


def _unknown_choice_message(error: MissingConfigException) -> str:
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    if not group or not (CONF / group).is_dir():
        return _describe_hydra_error(error)
    choices = {path.stem for path in (CONF / group).glob("*.yaml")}
    with suppress(OSError):  # raised by Hydra's store for a group that it does not have
        choices |= {Path(node).stem for node in ConfigStore.instance().list(group)}
    return f"{group}={name}: unknown {group}. {near_names(name, choices)}"


def _describe_hydra_error(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error, HydraException) and error.__cause__ else error
    lines = [line.strip() for line in [*str(error).splitlines(), *str(cause).splitlines()]]
    detail = re.compile(r"(full_key|object_type|reference_type)")
    sentences = [line for line in dict.fromkeys(lines) if line and not detail.match(line)]
    return f"{' '.join(sentences)} (see the options with --cfg job)"


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

"""The door of every stage: Hydra's command line, with one-paragraph errors."""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import hydra
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, Sweep
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from contamination.core import integrity, process_records, secrets
from contamination.core.artifacts import Artifact, version
from contamination.core.config import convert
from contamination.core.disk import check_disk, disk_errors
from contamination.core.errors import ConfigError, StoppedError, UserError, near_names, require
from contamination.core.signals import obeyed
from contamination.core.stored_files import check_writable
from contamination.core.terminal import escaped


@contextmanager
def silenced() -> Iterator[None]:
    """Drop what is written to standard output and error, by compilers that a library calls too."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(stream, os.dup(stream)) for stream in (1, 2)]
    try:
        with open(os.devnull, "w") as nowhere:
            for stream, _ in kept:
                os.dup2(nowhere.fileno(), stream)
            yield
    finally:
        sys.stdout.flush()  # into nowhere, what Python has kept back
        sys.stderr.flush()
        for stream, copy in kept:
            os.dup2(copy, stream)
            os.close(copy)


def quiet_libraries() -> None:
    """Errors still show; progress bars and advice of libraries do not."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # to its makers, from offline runs too
    for name in ("DeepSpeed", "httpx", "matplotlib", "numexpr", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(deepspeed|torch|transformers)\..*")
    warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a chart shows a box


CONF = Path(__file__).resolve().parents[1] / "conf"


def command(config_name: str, run: Callable[[DictConfig], object]) -> int:
    """Compose `conf/<config_name>.yaml` with the command line's overrides and run it.

    Returns the exit status: 0, 2 after an error that the user can fix, 143 after SIGTERM and 130
    after SIGINT. Any other exception is raised, with which Python exits with 1.

    Raises:
        SystemExit: with 2 if a sweep can't start, or to a launcher that reports the failure itself.
    """
    if "--version" in sys.argv[1:]:  # of which Hydra would say its own
        return said(lambda: print(version()))
    # Threads that wait by spinning slow torch down some twenty-fold beside any other busy process.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises, and the errors below are ours to word
    quiet_libraries()
    failed: list[UserError] = []

    def job(config: DictConfig) -> None:
        process_records.leave_in(config.get("records"))  # given by a launcher
        try:
            check_size(config)
            integrity.follow(config.get("verify", integrity.CHANGED))
            with disk_errors(check_runs(config)):
                run(config)
        except (Exception, StoppedError) as error:
            if not process_records.record_failure(error):
                sys.exit(error.status if isinstance(error, UserError | StoppedError) else 1)
            if not isinstance(error, UserError):  # a StoppedError ends a sweep as well
                raise
            failed.append(error)  # kept from Hydra, which would put a line of its own before it

    try:
        secrets.check_overrides(sys.argv[1:])
        check_sweeper(sys.argv[1:])
        with obeyed(), disk_errors():
            hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(job)()
    except (StoppedError, UserError) as error:
        return _say(error)
    except (HydraException, OmegaConfBaseException) as error:
        return _say(UserError(worded(error)))
    return max([0, *map(_say, failed)])


def said(tool: Callable[[], int | None]) -> int:
    """Run a tool that is no Hydra application; its exit status, or 2 after a user's error."""
    quiet_libraries()
    try:
        with obeyed(), disk_errors():
            return tool() or 0
    except (UserError, StoppedError) as error:
        return _say(error)


def _say(error: UserError | StoppedError) -> int:
    said = "stopped" if isinstance(error, StoppedError) else "error"
    words = escaped(secrets.without_given(str(error), sys.argv[1:]))
    print(f"{said}: {words}", file=sys.stderr)
    return error.status


def check_sweeper(overrides: Sequence[str]) -> None:
    """Check that a sweep's values are given to the fields themselves.

    Hydra's own sweeper reads `hydra.sweeper.params` from files; from a command line it fails with a
    traceback, except for null, which leaves out what a file sweeps over.

    Raises:
        ConfigError: they are given to `hydra.sweeper.params`.
    """
    if any(override.startswith("hydra/sweeper=") for override in overrides):
        return
    for override in overrides:
        field, _, value = override.lstrip("+").partition("=")
        if re.match(r"hydra\.sweeper\.params\b", field) and value != "null":
            raise ConfigError(
                f"{field} is {value}: on the command line, give the values to the field itself, "
                "such as --multirun seed=0,1. hydra.sweeper.params=null leaves out those of a file."
            )


class SweepCheck(Callback):
    """Hydra's callback that ends a sweep that can't start, before anything is written.

    Hydra turns exceptions in a callback into warnings, but for SystemExit.
    """

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        """Exit with the status of a user's error if `runs` or the sweep's values can't be used."""
        try:
            check_runs(config)
            check_cells(config)
        except UserError as error:
            raise SystemExit(_say(error)) from error


def check_cells(config: DictConfig) -> None:
    """Check that Hydra's own sweeper runs what the command line says.

    Raises:
        ConfigError: there is no cell, as of `seed=range(0,0)`, or a list has ranges in it.
    """
    if not _is_basic(config):
        return
    size = config.hydra.sweeper.get("max_batch_size")
    remedy = "give 1 or more, or null."
    require(size is None or size >= 1, "hydra.sweeper.max_batch_size", size, remedy)
    with suppress(HydraException):  # of values that the sweeper itself refuses, with its reason
        for override in _swept(config):
            values = override.value()
            if isinstance(values, ChoiceSweep) and any(isinstance(v, Sweep) for v in values.list):
                field, _, value = str(override.input_line).partition("=")
                remedy = "--multirun takes one range, or a list of values. Write the values out."
                raise ConfigError(f"{field} is {value}: {remedy}")
        if combinations(config) != []:
            return
        for override in _swept(config):
            if override.is_discrete_sweep() and not [*override.sweep_string_iterator()]:
                field, _, value = str(override.input_line).partition("=")
                remedy = "give at least one value."
                raise ConfigError(f"{field} is {value}: --multirun has nothing to run, {remedy}")


def combinations(config: DictConfig) -> list[list[str]] | None:
    """The overrides of each cell of a sweep, as Hydra's own sweeper combines them.

    None for another sweeper, which chooses the cells as it goes.
    """
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    if not _is_basic(config):
        return None
    return [cell for batch in BasicSweeper.split_arguments(_swept(config), None) for cell in batch]


def _is_basic(config: DictConfig) -> bool:
    """Whether Hydra's own sweeper makes the cells."""
    return bool(config.hydra.sweeper._target_.endswith(".BasicSweeper"))


def _swept(config: DictConfig) -> list[Override]:
    """The overrides of a sweep, of its configuration and then of the command line."""
    parameters = config.hydra.sweeper.params or {}
    words = [*(f"{k}={v}" for k, v in parameters.items()), *config.hydra.overrides.task]
    loader = GlobalHydra.instance().config_loader()
    parsed: list[Override] = OverridesParser.create(config_loader=loader).parse_overrides(words)
    return parsed


def check_runs(config: DictConfig) -> str:
    """The folder of all artefacts.

    Raises:
        ConfigError: it has no name, or is in a file system without a disk.
    """
    runs = config.get("runs", "runs")
    require(runs != "", "runs", runs, "give a folder.")
    check_disk("runs", str(runs))
    return str(runs)


def check_size(config: DictConfig) -> None:
    """Raise a ConfigError where a run folder's config.yaml could not be read again."""
    try:
        check_writable(OmegaConf.to_container(config))
    except ValueError as error:
        raise ConfigError(f"{error}.") from error


def worded(error: Exception) -> str:
    """What Hydra or OmegaConf says, in one paragraph."""
    if isinstance(error, MissingConfigException):
        return _unknown_choice(error)
    return _unreadable(error) if isinstance(error, OverrideParseException) else _words(error)


def _unreadable(error: OverrideParseException) -> str:
    """An override with signs that Hydra's grammar takes in quotes only, with the quotes."""
    name, equals, value = error.override.partition("=")
    quoted = shlex.quote(f'{name}="{value}"')
    if not equals or '"' in value or "'" in value:
        return _words(error)
    return f"{name} is {value}: Hydra can't read it. If it is a text, put it in quotes: {quoted}."


def _unknown_choice(error: MissingConfigException) -> str:
    """'Could not find benchmark/bolq' with the near names."""
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    if not group or not (CONF / group).is_dir():
        return _words(error)
    known = {path.stem for path in (CONF / group).glob("*.yaml")}
    with suppress(OSError):  # what Hydra's store raises for a group that it lacks
        known |= {Path(node).stem for node in ConfigStore.instance().list(group)}
    return f"{group}={name}: unknown {group}. {near_names(name, known)}"


def _words(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error, HydraException) and error.__cause__ else error
    lines = [line.strip() for line in [*str(error).splitlines(), *str(cause).splitlines()]]
    detail = re.compile(r"(full_key|object_type|reference_type)")
    kept = [line for line in dict.fromkeys(lines) if line and not detail.match(line)]
    return f"{' '.join(kept)} (see the options with --cfg job)"


T = TypeVar("T")


def made(name: str, words: Sequence[str], schema: type[T], run: Callable[[T], Artifact]) -> Path:
    """The folder that `run` makes, or finds made: as the command does with these words.

    Raises:
        UserError: as the command does.
    """
    with disk_errors():
        return run(composed(name, words, schema)).path


def composed(name: str, words: Sequence[str], schema: type[T]) -> T:
    """`conf/<name>.yaml` with overrides such as `corpus=news` and `seed=1`.

    Raises:
        ConfigError: an unknown field or choice, or a value that is not allowed.
    """
    for word in words:
        require(isinstance(word, str), "words", word, 'give texts, such as "seed=1".')
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose(name, list(words))
    except HydraException as error:
        raise ConfigError(worded(error)) from error
    check_runs(config)
    return convert(config, schema)

"""The cells of a sweep: their overrides and configurations, checked before any of them runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from functools import lru_cache

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, Sweep
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from contamination.core.errors import ConfigError, require
from contamination.core.hydra_errors import hydra_error_message


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
            raise ConfigError(hydra_error_message(error, name, cell)) from error


def compose_cell(config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """Returns the configuration of a cell of a sweep, without Hydra's node.

    Cells with the same choices of configuration files share one composition, and each applies its
    own values to a copy, in Hydra's order: composing all of them takes 0.4 s of CPU per cell.

    Raises:
        HydraException: it can't be composed.
    """
    loader = GlobalHydra.instance().config_loader()
    assert isinstance(loader, ConfigLoaderImpl)
    words = [*config.hydra.overrides.hydra, *overrides]
    if config.hydra.searchpath or any(word.startswith("hydra.searchpath") for word in words):
        return deepcopy(_compose(loader, config.hydra.job.config_name, tuple(words)))
    choices, values = [], []  # the loader knows the groups of its own search path alone
    for override in OverridesParser.create(config_loader=loader).parse_overrides(words):
        is_value = isinstance(override.value(), dict) or not loader.repository.group_exists(
            override.key_or_group
        )
        if is_value and not override.is_hydra_override():
            values.append(override)
        else:
            choices.append(override.input_line)
    cell = deepcopy(_compose(loader, config.hydra.job.config_name, tuple(choices)))
    ConfigLoaderImpl._apply_overrides_to_config(values, cell)
    return cell


@lru_cache(maxsize=16)
def _compose(loader: ConfigLoaderImpl, name: str, overrides: tuple[str, ...]) -> DictConfig:
    config = loader.load_configuration(name, [*overrides], RunMode.RUN)
    without_hydra = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    OmegaConf.set_struct(without_hydra, True)  # as Hydra's is, so that an unknown field is refused
    return without_hydra


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

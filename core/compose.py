"""A stage for a program: configured by the command line's words, and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException

from core.artifacts import Artifact
from core.command import CONF, check_runs, worded
from core.config import convert
from core.disk import disk_errors
from core.errors import ConfigError, require

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

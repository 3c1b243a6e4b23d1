"""A stage's configuration for a program: what the command line's words give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException

from core.command import CONF
from core.config import convert
from core.errors import ConfigError

T = TypeVar("T")


def composed(name: str, words: Sequence[str], schema: type[T]) -> T:
    """`conf/<name>.yaml` with overrides such as `corpus=news` and `seed=1`.

    Raises:
        ConfigError: an unknown field or choice, or a value that is not allowed.
    """
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose(name, list(words))
    except HydraException as error:
        lines = " ".join(str(error).split())
        raise ConfigError(f"{', '.join(words)}: {lines}") from error
    return convert(config, schema)

"""Views: what is made of a text before a model reads it, and how it is read; a file a kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules

from contamination.core.errors import ConfigError, near_names
from contamination.data.texts import Text
from contamination.detection.passes import Pass
from contamination.detection.resources import Resources
from contamination.detection.views.base import View

MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
VIEWS: Mapping[str, View] = {
    name: view for module in MODULES for name, view in getattr(module, "VIEWS", {}).items()
}
"""By name, those that the files of this folder call VIEWS."""


def view_of(wanted: Pass) -> View:
    """The pass's view.

    Raises:
        ConfigError: there is no such view.
    """
    if wanted.view not in VIEWS:
        raise ConfigError(
            f"pass {wanted.key}: there is no view {wanted.view!r}. {near_names(wanted.view, VIEWS)}"
        )
    return VIEWS[wanted.view]


def render(wanted: Pass, texts: Sequence[Text], resources: Resources) -> list[Sequence[str]]:
    """For each text the versions that `wanted` scores.

    Raises:
        ConfigError: there is no such view, or nothing is given that it needs.
    """
    view = view_of(wanted)
    for need in set(view.needs) - {"seed"}:
        if getattr(resources, need) is None:
            raise ConfigError(f"pass {wanted.key}: {need}.path is null. Give one.")
    return view.make(texts, resources, **dict(wanted.parameters))

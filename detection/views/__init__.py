"""Views: how a text is changed before a model reads it, and how it is read; one file per kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules

from contamination.core.errors import ConfigError, near_names
from contamination.data.texts import Text
from contamination.detection.passes import Pass
from contamination.detection.view_resources import Resources
from contamination.detection.views.base import View

MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
VIEWS: Mapping[str, View] = {
    name: view for module in MODULES for name, view in getattr(module, "VIEWS", {}).items()
}
"""All views by name, collected from the VIEWS of this folder's modules."""


def view_of(wanted: Pass) -> View:
    """Returns the view of a pass.

    Raises:
        ConfigError: there is no such view.
    """
    if wanted.view not in VIEWS:
        raise ConfigError(
            f"pass {wanted.key}: there is no view {wanted.view!r}. {near_names(wanted.view, VIEWS)}"
        )
    return VIEWS[wanted.view]


def render_versions(
    wanted: Pass, texts: Sequence[Text], resources: Resources
) -> list[Sequence[str]]:
    """Returns the versions of each text that the pass `wanted` scores.

    Raises:
        ConfigError: there is no such view, or a resource that it needs is missing.
    """
    view = view_of(wanted)
    for need in set(view.needs) - {"seed"}:
        if getattr(resources, need) is None:
            raise ConfigError(f"pass {wanted.key}: {need}.path is null. Give one.")
    return view.make(texts, resources, **dict(wanted.parameters))

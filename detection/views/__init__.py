"""Views: what is made of a text before a model reads it, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.errors import ConfigError, near_names
from detection.material import Material
from detection.passes import Pass
from detection.texts import Text
from detection.views.base import View
from detection.views.infill import Infill
from detection.views.plain import lowercase, original
from detection.views.prefix import BehindPrefix
from detection.views.reworded import delete, masked_lm, swap

__all__ = ["VIEWS", "Material", "View", "render", "view_of"]

STATES = frozenset({"states"})
VIEWS: Mapping[str, View] = {
    "original": View(original, rewords=False),
    "lowercase": View(lowercase),
    "swap": View(swap, ("seed",)),
    "delete": View(delete, ("seed",)),
    "masked_lm": View(masked_lm, ("seed", "masked_lm")),
    "prefix": BehindPrefix(original, ("prefix",), rewords=False, asks=STATES),
    "infill": Infill(original, rewords=False, asks=STATES),
}


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


def render(wanted: Pass, texts: Sequence[Text], material: Material) -> list[Sequence[str]]:
    """For each text the versions that `wanted` scores.

    Raises:
        ConfigError: there is no such view, or nothing is given that it needs.
    """
    view = view_of(wanted)
    for need in set(view.needs) - {"seed"}:
        if getattr(material, need) is None:
            raise ConfigError(f"pass {wanted.key}: {need}.path is null. Give one.")
    return view.make(texts, material, **dict(wanted.parameters))

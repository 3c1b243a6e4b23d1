"""Views: what is made of a text before a model reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.errors import ConfigError, near_names
from detection.passes import Pass
from detection.texts import Text
from detection.views.base import Material, View
from detection.views.plain import lowercase, original
from detection.views.reworded import delete, masked_lm, swap

__all__ = ["PREFIX", "VIEWS", "Material", "View", "needs", "render", "rewords"]

PREFIX = "prefix"  # the text as it stands, but the model reads a prefix before it

VIEWS: Mapping[str, View] = {
    "original": View(original, rewords=False),
    "lowercase": View(lowercase),
    "swap": View(swap, ("seed",)),
    "delete": View(delete, ("seed",)),
    "masked_lm": View(masked_lm, ("seed", "masked_lm")),
    PREFIX: View(original, ("prefix",), rewords=False),
}


def needs(wanted: Pass) -> tuple[str, ...]:
    """What the pass's view draws on beside the texts: of `seed`, `masked_lm` and `prefix`."""
    return VIEWS[wanted.view].needs if wanted.view in VIEWS else ()


def rewords(wanted: Pass) -> bool:
    """Whether the pass is over texts in other words, some of which may be the text's own."""
    return wanted.view in VIEWS and VIEWS[wanted.view].rewords


def render(wanted: Pass, texts: Sequence[Text], material: Material) -> list[Sequence[str]]:
    """For each text the versions that `wanted` scores.

    Raises:
        ConfigError: there is no such view, or nothing is given that it needs.
    """
    if wanted.view not in VIEWS:
        raise ConfigError(
            f"pass {wanted.key}: there is no view {wanted.view!r}. {near_names(wanted.view, VIEWS)}"
        )
    for need in set(VIEWS[wanted.view].needs) - {"seed"}:
        if getattr(material, need) is None:
            raise ConfigError(f"pass {wanted.key}: {need}.path is null. Give one.")
    return VIEWS[wanted.view].make(texts, material, **dict(wanted.parameters))

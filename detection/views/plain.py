"""Views of one text in which nothing is drawn."""

from __future__ import annotations

from collections.abc import Sequence

from core.rewording import Lowercase
from detection.material import Material
from detection.texts import Text
from detection.views.base import View


def original(texts: Sequence[Text], material: Material, **_: object) -> list[Sequence[str]]:
    """The text as it stands."""
    return [(text.text,) for text in texts]


def lowercase(texts: Sequence[Text], material: Material) -> list[Sequence[str]]:
    """The text in lower case."""
    originals = [text.text for text in texts]
    return [(version,) for version in Lowercase().reword(originals, originals, material.seed)]


VIEWS = {"original": View(original, rewords=False), "lowercase": View(lowercase)}

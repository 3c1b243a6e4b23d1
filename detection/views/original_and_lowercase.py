"""Views with a single version of each text and no random choices."""

from __future__ import annotations

from collections.abc import Sequence

from contamination.data.perturbation.word_edits import Lowercase
from contamination.data.texts import Text
from contamination.detection.view_resources import Resources
from contamination.detection.views.base import View


def original(texts: Sequence[Text], resources: Resources, **_: object) -> list[Sequence[str]]:
    """Returns the unchanged texts."""
    return [(text.text,) for text in texts]


def lowercase(texts: Sequence[Text], resources: Resources) -> list[Sequence[str]]:
    """Returns the texts in lower case."""
    originals = [text.text for text in texts]
    return [(version,) for version in Lowercase().reword(originals, originals, resources.seed)]


VIEWS = {
    "original": View(original, rewords=False, covers_text=True, shares_beginnings=True),
    "lowercase": View(lowercase, shares_beginnings=True),
}

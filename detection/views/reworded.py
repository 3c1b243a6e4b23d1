"""Views of several random rewordings of a text."""

from __future__ import annotations

from collections.abc import Sequence

from core.rewording import Delete, MaskedLM, Rewording, Swap
from core.seeds import derive
from detection.passes import Pass
from detection.resources import Resources
from detection.texts import Text
from detection.views.base import View
from detection.views.rewordings import made_once


def swap(texts: Sequence[Text], resources: Resources, n: int, share: float) -> list[Sequence[str]]:
    """`n` versions with ⌊share·words⌋ random swaps of two words (PAC, Ye et al. 2024)."""
    return _versions(Swap(share), texts, resources, n)


def delete(
    texts: Sequence[Text], resources: Resources, n: int, share: float
) -> list[Sequence[str]]:
    """`n` versions without ⌊share·words⌋ random words."""
    return _versions(Delete(share), texts, resources, n)


def masked_lm(
    texts: Sequence[Text], resources: Resources, n: int, share: float
) -> list[Sequence[str]]:
    """`n` neighbours: ⌊share·words⌋ words replaced by a masked language model's."""
    assert resources.masked_lm is not None
    filler = MaskedLM(str(resources.masked_lm.folder), share, device=resources.device)

    def make(texts: Sequence[Text]) -> list[Sequence[str]]:
        return _versions(filler, texts, resources, n)

    if resources.runs is None:
        return make(texts)
    wanted = Pass(view="masked_lm", n=n, share=share)
    return made_once(resources.runs, wanted, resources.seed, resources.masked_lm, texts, make)


def _versions(
    rewording: Rewording, texts: Sequence[Text], resources: Resources, n: int
) -> list[Sequence[str]]:
    """All texts' versions in one call; each follows from the seed, its text and its number."""
    repeated = [text.text for text in texts for _ in range(n)]
    keys = [(text.sha256, copy) for text in texts for copy in range(n)]
    made = rewording.reword(repeated, keys, derive(resources.seed, "detection.views"))
    return [made[i : i + n] for i in range(0, len(made), n)]


VIEWS = {
    "swap": View(swap, ("seed",)),
    "delete": View(delete, ("seed",)),
    "masked_lm": View(masked_lm, ("seed", "masked_lm")),
}

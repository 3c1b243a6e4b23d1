"""What views may draw on beside the texts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from detection.model.local_model import LocalModel
from detection.neighbors import Neighbors
from detection.prefix_texts import Prefix
from detection.texts import Text

PREFIX_TEXTS = "prefix_texts"


@dataclass(frozen=True)
class Resources:
    """What views draw on beside the texts.

    Attributes:
        seed: the experiment's seed. A view's draws follow from it, the text's SHA-256 and the
            version's number alone, never from the examples' order.
        masked_lm: the masked language model, where one is given.
        prefix: the non-members' texts, where they are given.
        neighbors: the benchmark's own versions of its texts, where it has some.
        device: where the masked language model runs; no part of a pass's identity.
        runs: the folder of artefacts, for what is made once for all models; None: made each time.
    """

    seed: int = 0
    masked_lm: LocalModel | None = None
    prefix: Prefix | None = None
    device: str = "auto"
    runs: Path | None = None
    neighbors: Neighbors | None = None

    def identity(
        self, needs: Sequence[str], texts: Sequence[Text]
    ) -> tuple[dict[str, int], dict[str, str]]:
        """What keys a pass over the texts whose view has these `needs`: plain values, digests."""
        digests = {}
        if "masked_lm" in needs and self.masked_lm is not None:
            digests["masked_lm"] = self.masked_lm.digest
        if "prefix" in needs and self.prefix is not None:
            digests["prefix"] = self.prefix.identity(texts)
        if "neighbors" in needs and self.neighbors is not None:
            digests["neighbors"] = self.neighbors.identity(texts)
        return {"seed": self.seed} if "seed" in needs else {}, digests

    def shared(self, needs: Collection[str]) -> dict[str, str]:
        """The prefix's own digest, whatever the texts: to compare the scores of other texts."""
        if "prefix" not in needs or self.prefix is None:
            return {}
        return {PREFIX_TEXTS: self.prefix.digest}

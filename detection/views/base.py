"""What a view is, and what it may draw on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from detection.forward.windows import merge
from detection.model.local_model import LocalModel
from detection.passes import Copies, Pass
from detection.texts import Text
from detection.views.prefix_texts import Prefix

if TYPE_CHECKING:
    from detection.forward.run import LoadedModel, Tokens

PREFIX_TEXTS = "prefix_texts"


@dataclass(frozen=True)
class Material:
    """What views draw on beside the texts.

    Attributes:
        seed: the experiment's seed. A view's draws follow from it, the text's SHA-256 and the
            version's number alone, never from the examples' order.
        masked_lm: the masked language model, where one is given.
        prefix: the non-members' texts, where they are given.
        device: where the masked language model runs; no part of a pass's identity.
        runs: the folder of artefacts, for what is made once for all models; None: made each time.
    """

    seed: int = 0
    masked_lm: LocalModel | None = None
    prefix: Prefix | None = None
    device: str = "auto"
    runs: Path | None = None

    def identity(
        self, needs: Sequence[str], texts: Sequence[Text]
    ) -> tuple[dict[str, int], dict[str, str]]:
        """What keys a pass over the texts whose view has these `needs`: plain values, digests."""
        digests = {}
        if "masked_lm" in needs and self.masked_lm is not None:
            digests["masked_lm"] = self.masked_lm.digest
        if "prefix" in needs and self.prefix is not None:
            digests["prefix"] = self.prefix.identity(texts)
        return {"seed": self.seed} if "seed" in needs else {}, digests

    def shared(self, needs: Collection[str]) -> dict[str, str]:
        """The prefix's own digest, whatever the texts: to compare the scores of other texts."""
        if "prefix" not in needs or self.prefix is None:
            return {}
        return {PREFIX_TEXTS: self.prefix.digest}


@dataclass(frozen=True)
class View:
    """A kind of pass: what is made of texts, and how a model reads that.

    This one reads each version by itself, in one forward; a subclass reads in another way.

    Attributes:
        make: from the texts, the material and the pass's parameters the versions of each text,
            in order. It gets all texts at once, for a view that runs a model of its own.
        needs: what it draws on, of `seed`, `masked_lm` and `prefix`.
        rewords: whether its versions are the text in other words, each read by itself.
        asks: what the model must be able to give (`ScoredModel.gives`).
    """

    make: Callable[..., list[Sequence[str]]]
    needs: tuple[str, ...] = ()
    rewords: bool = True
    asks: frozenset[str] = frozenset()

    def serving(self, wanted: Pass, others: Iterable[Pass]) -> Pass:
        """Of the passes of this view and model the one that holds all that is wanted."""
        return wanted

    def copies(self, wanted: Pass) -> int:
        """About how many statistics a token of a text has in the pass."""
        return int(dict(wanted.parameters).get("n", 1))

    def whole(self, model: LoadedModel, wanted: Pass, tokens: Sequence[Tokens]) -> list[Copies]:
        """The statistics of texts that the model takes at once."""
        return [(stats,) for stats in model.spread(model.each_alone, wanted, tokens)]

    def windows(self, model: LoadedModel, wanted: Pass, tokens: Sequence[Tokens]) -> list[Copies]:
        """The statistics of longer texts, from those of their windows."""
        found = model.spread_windows(model.each_alone, merge, wanted, tokens)
        return [(stats,) for stats in found]

    def check_windows(self, wanted: Pass, context: int, texts: str) -> None:
        """Raise a ConfigError, or warn, where windows don't do for the view; `texts`: how many."""

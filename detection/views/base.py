"""What a view is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from detection.forward.reader import Reader, Tokens
from detection.forward.windows import merge
from detection.passes import Copies, Pass


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

    def whole(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> list[Copies]:
        """The statistics of texts that the model takes at once."""
        return [(stats,) for stats in reader.spread(reader.each_alone, wanted.view_key, tokens)]

    def windows(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> list[Copies]:
        """The statistics of longer texts, from those of their windows."""
        found = reader.spread_windows(reader.each_alone, merge, wanted.view_key, tokens)
        return [(stats,) for stats in found]

    def check_windows(self, wanted: Pass, context: int, texts: str) -> None:
        """Raise a ConfigError, or warn, where windows don't do for the view; `texts`: how many."""

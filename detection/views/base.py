"""What a view is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from contamination.data.texts import longest
from contamination.detection.forward.reader import Reader, Tokens
from contamination.detection.passes import Copies, Pass
from contamination.detection.workers import Task


@dataclass(frozen=True)
class View:
    """A kind of pass: what is made of texts, and how a model reads that.

    This one reads each version by itself, in one forward; a subclass reads in another way.

    Attributes:
        make: from the texts, the resources and the pass's parameters the versions of each text,
            in order. It gets all texts at once, for a view that runs a model of its own.
        needs: what it draws on, of `seed`, `masked_lm` and `prefix`.
        rewords: whether its versions are the text in other words, each read by itself.
        counts: whether a text's first statistics are those of all the text's own tokens, so that
            they show how many of them are scored.
        asks: what the model must be able to give (`ModelHandle.provides`).
        least: the fewest tokens that a version may have; the first is not scored.
        shares: whether what is said of a text's tokens is the same in every text that begins with
            it, so that the longer one is read for both.
        cuts: whether a version longer than the context is cut, or read in windows, before.
    """

    make: Callable[..., list[Sequence[str]]]
    needs: tuple[str, ...] = ()
    rewords: bool = True
    counts: bool = False
    asks: frozenset[str] = frozenset()
    least: int = 2
    cuts: bool = True
    shares: bool = False

    def serving(self, wanted: Pass, others: Iterable[Pass]) -> Pass:
        """Of the passes of this view and model the one that holds all that is wanted."""
        return wanted

    def copies(self, wanted: Pass) -> int:
        """About how many statistics a token of a text has in the pass."""
        return int(dict(wanted.parameters).get("n", 1))

    def reads(self, wanted: Pass, tokens: int) -> int:
        """Tokens that the model reads for a text of so many, at most: what the pass costs."""
        return tokens * self.copies(wanted)

    def task(self, reader: Reader, wanted: Pass) -> Task[Copies]:
        """What is done with the tokens of texts, or of windows, in each process."""
        from contamination.detection.forward.batches import run_alone  # it imports torch

        return partial(run_alone, batch_tokens=reader.settings.batch_tokens)

    def whole(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> list[Copies]:
        """The statistics of texts that the model takes at once."""
        task = self.task(reader, wanted)
        if not (self.shares and reader.source.ignores_later_tokens):
            return reader.spread(task, wanted.view_key, tokens)
        ends = longest([t.ids for t in tokens])
        read = sorted({*ends})
        found = reader.spread(task, wanted.view_key, [tokens[place] for place in read])
        by_place = dict(zip(read, found, strict=True))
        return [self.beginning(by_place[e], len(t.ids)) for e, t in zip(ends, tokens, strict=True)]

    def beginning(self, copies: Copies, tokens: int) -> Copies:
        """The statistics of the first `tokens` of a text, from the text's."""
        return tuple(stats[: max(0, tokens - 1)] for stats in copies)

    def ending(self, copies: Copies, tokens: int) -> Copies:
        """The statistics of what follows a text's first `tokens`, from the text's."""
        return tuple(stats[max(0, tokens - 1) :] for stats in copies)

    def windows(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> list[Copies]:
        """The statistics of longer texts, from those of their windows."""
        return reader.spread_windows(self.task(reader, wanted), wanted.view_key, tokens)

    def check_windows(self, wanted: Pass, context: int, texts: str) -> None:
        """Raise a ConfigError, or warn, where windows don't do for the view; `texts`: how many."""

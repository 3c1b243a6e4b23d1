"""A text, and the same after each token's replacement: the passes of the Infilling Score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from detection.forward.reader import Reader, Tokens
from detection.forward.windows import check_future, merge_copies
from detection.passes import Copies, Parameter, Pass
from detection.ranks.slices import Task
from detection.views.base import View
from detection.views.plain import original


class Infill(View):
    """Reads what follows each replaced token, up to `future` tokens: copy 0 is the text's own."""

    def serving(self, wanted: Pass, others: Iterable[Pass]) -> Pass:
        """The pass with the most future tokens holds all that have fewer."""
        return max(others, key=lambda other: float(str(_future(other)).replace("all", "inf")))

    def copies(self, wanted: Pass) -> int:
        """The text's own and one a future token; of `all` there is no telling."""
        future = _future(wanted)
        return future + 1 if isinstance(future, int) else 1

    def whole(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> list[Copies]:
        """As `View.whole`."""
        return reader.spread(_task(reader, wanted), wanted.view_key, tokens)

    def windows(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> list[Copies]:
        """As `View.windows`."""
        return reader.spread_windows(_task(reader, wanted), merge_copies, wanted.view_key, tokens)

    def check_windows(self, wanted: Pass, context: int, texts: str) -> None:
        """A replaced token and all those after it must be in one window."""
        check_future(_future(wanted), context)


def _future(wanted: Pass) -> Parameter:
    return dict(wanted.parameters)["future"]


def _task(reader: Reader, wanted: Pass) -> Task[Copies]:
    from detection.forward.infill import run_infill  # it imports torch

    settings = reader.settings
    return partial(run_infill, batch_tokens=settings.batch_tokens, future=_future(wanted))


VIEWS = {"infill": Infill(original, rewords=False, asks=frozenset({"states"}))}

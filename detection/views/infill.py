"""A text, and the same after each token's replacement: the passes of the Infilling Score."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from detection.forward.reader import Reader
from detection.forward.windows import check_future
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

    def task(self, reader: Reader, wanted: Pass) -> Task[Copies]:
        """What runs the text and its branches."""
        from detection.forward.infill import run_infill  # it imports torch

        batch_tokens = reader.settings.batch_tokens
        return partial(run_infill, batch_tokens=batch_tokens, future=_future(wanted))

    def check_windows(self, wanted: Pass, context: int, texts: str) -> None:
        """A replaced token and all those after it must be in one window."""
        check_future(_future(wanted), context)


def _future(wanted: Pass) -> Parameter:
    return dict(wanted.parameters)["future"]


VIEWS = {"infill": Infill(original, rewords=False, asks=frozenset({"states"}))}

"""A text, and the same after each token's replacement: the passes of the Infilling Score."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from contamination.core.errors import ConfigError
from contamination.detection.forward.reader import Reader, overlap
from contamination.detection.passes import Copies, Parameter, Pass
from contamination.detection.views.base import View
from contamination.detection.views.plain import original
from contamination.detection.workers import Task


class Infill(View):
    """Reads what follows each replaced token, up to `future` tokens: copy 0 is the text's own."""

    def serving(self, wanted: Pass, others: Iterable[Pass]) -> Pass:
        """The pass with the most future tokens holds all that have fewer."""
        return max(others, key=lambda other: float(str(_future(other)).replace("all", "inf")))

    def copies(self, wanted: Pass) -> int:
        """The text's own and one a future token; of `all` there is no telling."""
        future = _future(wanted)
        return future + 1 if isinstance(future, int) else 1

    def reads(self, wanted: Pass, tokens: int) -> int:
        """The text, and behind each replaced token those that follow: up to `future`, or all."""
        future = _future(wanted)
        most = future if isinstance(future, int) else tokens
        return tokens + sum(min(most, following) for following in range(1, tokens - 1))

    def task(self, reader: Reader, wanted: Pass) -> Task[Copies]:
        """What runs the text and its branches."""
        from contamination.detection.forward.infilling import run_infill  # it imports torch

        batch_tokens = reader.settings.batch_tokens
        return partial(run_infill, batch_tokens=batch_tokens, future=_future(wanted))

    def beginning(self, copies: Copies, tokens: int) -> Copies:
        """Copy j has an entry for each token but the first 1 + j; of m = all there are T-2."""
        kept = copies[: max(1, tokens - 1)]
        return tuple(stats[: max(0, tokens - 1 - j)] for j, stats in enumerate(kept))

    def check_windows(self, wanted: Pass, context: int, texts: str) -> None:
        """A replaced token and all those after it must be in one window."""
        future, least = _future(wanted), overlap(context)
        if future == "all" or int(future) >= least:
            raise ConfigError(
                f"detection.long_texts is 'windowed': infilling with m = {future} looks further "
                f"ahead than the windows of the model's context of {context} tokens overlap. Give "
                f"a method.infilling.m below {least}, or detection.long_texts=truncate."
            )


def _future(wanted: Pass) -> Parameter:
    return dict(wanted.parameters)["future"]


ASKS = frozenset({"states"})
VIEWS = {"infill": Infill(original, rewords=False, counts=True, asks=ASKS, shares=True)}

"""A text, and the text after each token's replacement: the passes of the Infilling Score."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from contamination.core.errors import ConfigError
from contamination.detection.forward.reader import overlap_tokens
from contamination.detection.passes import Copies, Parameter, Pass
from contamination.detection.views.base import View
from contamination.detection.views.original_and_lowercase import original
from contamination.detection.workers import Task


class InfillView(View):
    """Reads up to `future` tokens after each replaced token; copy 0 is the unchanged text."""

    def covering_pass(self, wanted: Pass, others: Iterable[Pass]) -> Pass:
        """Returns the pass with the most future tokens, which contains all the others."""
        return max(
            others, key=lambda other: float(str(_future_parameter(other)).replace("all", "inf"))
        )

    def copies_per_text(self, wanted: Pass) -> int:
        """Returns 1 + `future`: the text itself and one per future token; 1 if `future` is all."""
        future = _future_parameter(wanted)
        return future + 1 if isinstance(future, int) else 1

    def max_tokens_read(self, wanted: Pass, tokens: int) -> int:
        """Counts the text, and after each replaced token the following `future` tokens, or all."""
        future = _future_parameter(wanted)
        max_future = future if isinstance(future, int) else tokens
        return tokens + sum(min(max_future, following) for following in range(1, tokens - 1))

    def window_task(self, wanted: Pass, batch_tokens: int) -> Task[Copies]:
        """Returns what reads the text and its branches."""
        from contamination.detection.forward.infilling import run_infill  # it imports torch

        return partial(run_infill, batch_tokens=batch_tokens, future=_future_parameter(wanted))

    def stats_of_beginning(self, copies: Copies, tokens: int) -> Copies:
        """Returns the beginning of each copy.

        Copy j has one entry for each token after the first 1 + j; with m = all there are T-2.
        """
        remaining = copies[: max(1, tokens - 1)]
        return tuple(stats[: max(0, tokens - 1 - j)] for j, stats in enumerate(remaining))

    def check_works_in_windows(self, wanted: Pass, context: int, texts: str) -> None:
        """Raises a ConfigError if a window is too short for a replaced token and its future."""
        future, limit = _future_parameter(wanted), overlap_tokens(context)
        if future == "all" or int(future) >= limit:
            raise ConfigError(
                f"detection.long_texts is 'windowed': infilling with m = {future} looks further "
                f"ahead than the windows of the model's context of {context} tokens overlap. Give "
                f"a method.infilling.m below {limit}, or detection.long_texts=truncate."
            )


def _future_parameter(wanted: Pass) -> Parameter:
    return dict(wanted.parameters)["future"]


REQUIRED_ABILITIES = frozenset({"states"})
VIEWS = {
    "infill": InfillView(
        original,
        rewords=False,
        covers_text=True,
        required_abilities=REQUIRED_ABILITIES,
        shares_beginnings=True,
    )
}

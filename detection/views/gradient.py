"""The unchanged text, read forwards and backwards: the pass of GradNorm."""

from __future__ import annotations

from collections.abc import Sequence

from contamination.core.errors import ConfigError
from contamination.detection.forward.reader import Reader, Tokens, ViewWork
from contamination.detection.passes import Pass
from contamination.detection.views.base import View
from contamination.detection.views.original_and_lowercase import original

FORWARD_PASSES = 3
"""What a forward and a backward pass cost, in forward passes."""


class GradientView(View):
    """Gives the norm of the loss's gradient, one number a text (`TextStats`)."""

    def max_tokens_read(self, wanted: Pass, tokens: int) -> int:
        """Counts the backward pass as two forward passes."""
        return FORWARD_PASSES * tokens

    def describe_work(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> ViewWork:
        """Describes one forward and backward pass per text; see `View.describe_work`.

        Raises:
            ConfigError: the weights are to be in another type than float32.
        """
        from contamination.detection.forward.gradients import run_gradient_norms  # imports torch

        if reader.settings.dtype != "float32":
            raise ConfigError(
                f"detection.dtype is {reader.settings.dtype!r}: method.grad_norm takes the "
                "gradient in float32. Give float32, or leave the method out."
            )
        return ViewWork(run_gradient_norms, tokens)

    def check_works_in_windows(self, wanted: Pass, context: int, texts: str) -> None:
        """Raises a ConfigError: the loss of a text in windows is not one loss."""
        raise ConfigError(
            f"detection.long_texts is 'windowed': {texts} are read in windows, each with a "
            "gradient of its own, and method.grad_norm needs one. Give detection.long_texts="
            "truncate, or leave the method out."
        )


VIEWS = {
    "gradient": GradientView(original, rewords=False, required_abilities=frozenset({"gradients"}))
}

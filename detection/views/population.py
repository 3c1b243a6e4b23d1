"""The unchanged text, read by the target and the reference at once: the pass of InfoRMIA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from contamination.core.errors import ConfigError
from contamination.detection.forward.reader import Reader, Tokens, ViewWork
from contamination.detection.passes import Pass
from contamination.detection.views.base import View
from contamination.detection.views.original_and_lowercase import original


class PopulationView(View):
    """Gives each token what the reference's own next tokens gain there by the target.

    `logprob` is Σ_v p_reference(v) · (log p_target(v) − log p_reference(v)) over the vocabulary,
    in nats: −KL(p_reference ‖ p_target), at most 0.
    """

    def max_tokens_read(self, wanted: Pass, tokens: int) -> int:
        """Counts the target's and the reference's forward pass."""
        return 2 * tokens

    def describe_work(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> ViewWork:
        """Describes a forward pass of each model; see `View.describe_work`.

        A text that was truncated at the target's context is cut at the reference's as well.
        """
        from contamination.detection.forward.population import run_population  # it imports torch

        reference = reader.resources.reference
        assert reference is not None
        task = partial(run_population, reference=reference, settings=reader.settings)
        limit = reference.context or reader.source.context
        return ViewWork(task, [replace(t, ids=t.ids[:limit]) for t in tokens])

    def check_works_in_windows(self, wanted: Pass, context: int, texts: str) -> None:
        """Raises a ConfigError: two models' windows may differ."""
        raise ConfigError(
            f"detection.long_texts is 'windowed': {texts} are read in windows, which two models of "
            "different contexts divide in different ways, and method.info_rmia reads both at once. "
            "Give detection.long_texts=truncate, or leave the method out."
        )


VIEWS = {
    "population": PopulationView(
        original,
        ("reference",),
        rewords=False,
        covers_text=True,
        required_abilities=frozenset({"states"}),
    )
}

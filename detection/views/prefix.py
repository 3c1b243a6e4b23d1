"""The text as it stands, read behind texts of non-members: the passes of ReCaLL."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from contamination.detection.forward.reader import Reader, Tokens
from contamination.detection.passes import Copies, Pass
from contamination.detection.resources import check_disjoint
from contamination.detection.views.base import View
from contamination.detection.views.plain import original

log = logging.getLogger(__name__)


class BehindPrefix(View):
    """Reads each text behind as many of the `shots` of its benchmark as the context has room for.

    In windows there is room for none.
    """

    def whole(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> list[Copies]:
        """The statistics of texts that the model takes at once, with what it has room for."""
        from contamination.detection.forward.prefix import (
            Shots,
            run_prefixed,  # it imports torch
        )

        assert reader.resources.prefix is not None
        count = int(dict(wanted.parameters)["shots"])
        shots = reader.resources.prefix.shots_of(count, [t.owner.benchmark for t in tokens])
        prefixes = list(dict.fromkeys(shots))
        for prefix in prefixes:
            owners = [t.owner for t, own in zip(tokens, shots, strict=True) if own == prefix]
            check_disjoint(prefix, [(owner.example_id, owner.text) for owner in owners])
        task = partial(
            run_prefixed,
            prefixes=[Shots(reader.tokenizer, prefix) for prefix in prefixes],
            batch_tokens=reader.settings.batch_tokens,
            context=reader.source.context,
        )
        return reader.spread(task, wanted.view_key, tokens, [prefixes.index(own) for own in shots])

    def check_windows(self, wanted: Pass, context: int, texts: str) -> None:
        """Say that they leave no room for a prefix."""
        log.warning(
            f"prefix: {texts} are read in windows, which leave no room for a prefix. Their scores "
            "say nothing."
        )


VIEWS = {"prefix": BehindPrefix(original, ("prefix",), rewords=False, counts=True)}

"""The text as it stands, read behind texts of non-members: the passes of ReCaLL."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from detection.forward.reader import Reader, Tokens
from detection.passes import Copies, Pass
from detection.prefix_texts import check_disjoint
from detection.views.base import View
from detection.views.plain import original

log = logging.getLogger(__name__)


class BehindPrefix(View):
    """Reads each text behind as many of the `shots` of its benchmark as the context has room for.

    In windows there is room for none.
    """

    def whole(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> list[Copies]:
        """The statistics of texts that the model takes at once, with what it has room for."""
        from detection.forward.prefix import Shots, run_prefixed  # it imports torch

        assert reader.material.prefix is not None
        count = int(dict(wanted.parameters)["shots"])
        groups = reader.material.prefix.groups(count, [t.owner.benchmark for t in tokens])
        for shots, places in groups:
            owners = [tokens[i].owner for i in places]
            check_disjoint(shots, [(o.example_id, o.text) for o in owners])
        prefix_of = {i: number for number, (_, places) in enumerate(groups) for i in places}
        task = partial(
            run_prefixed,
            prefixes=[Shots(reader.tokenizer, shots) for shots, _ in groups],
            batch_tokens=reader.settings.batch_tokens,
            context=reader.source.context,
        )
        columns = [prefix_of[i] for i in range(len(tokens))]
        return reader.spread(task, wanted.view_key, tokens, columns)

    def check_windows(self, wanted: Pass, context: int, texts: str) -> None:
        """Say that they leave no room for a prefix."""
        log.warning(
            f"prefix: {texts} are read in windows, which leave no room for a prefix. Their scores "
            "say nothing."
        )


VIEWS = {"prefix": BehindPrefix(original, ("prefix",), rewords=False, asks=frozenset({"states"}))}

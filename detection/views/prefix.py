"""The unchanged text, read after a prefix of other texts: the passes of ReCaLL and Con-ReCaLL."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from contamination.detection.forward.reader import Reader, Tokens, ViewWork
from contamination.detection.passes import Pass
from contamination.detection.view_resources import check_shots_disjoint
from contamination.detection.views.base import View
from contamination.detection.views.original_and_lowercase import original

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AfterPrefixView(View):
    """Reads each text after as many `shots` of its benchmark as the context has room for.

    A text that is read in windows has room for none.

    Attributes:
        members: whether the shots are the prefix's members, not its non-members.
    """

    members: bool = False

    def describe_work(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> ViewWork:
        """Describes reading each text after its benchmark's shots; see `View.describe_work`.

        Raises:
            DataError: there are fewer shots than the pass asks for, or one contains a text.
        """
        # they import torch
        from contamination.detection.forward.prefix import Shots, run_prefixed

        resources = reader.resources
        prefix_texts = resources.member_prefix if self.members else resources.prefix
        assert prefix_texts is not None
        count = int(dict(wanted.parameters)["shots"])
        shots_by_text = prefix_texts.shots_for_benchmarks(
            count, [t.owner.benchmark for t in tokens]
        )
        prefixes = list(dict.fromkeys(shots_by_text))
        for prefix in prefixes:
            pairs = zip(tokens, shots_by_text, strict=True)
            owners = [t.owner for t, shots in pairs if shots == prefix]
            check_shots_disjoint(prefix, [(owner.example_id, owner.text) for owner in owners])
        run_with_prefixes = partial(
            run_prefixed,
            prefixes=[Shots(reader.tokenizer, prefix) for prefix in prefixes],
            batch_tokens=reader.settings.batch_tokens,
            context=reader.source.context,
        )
        return ViewWork(
            run_with_prefixes, tokens, ([prefixes.index(shots) for shots in shots_by_text],)
        )

    def check_works_in_windows(self, wanted: Pass, context: int, texts: str) -> None:
        """Warns that windows leave no room for a prefix."""
        log.warning(
            f"prefix: {texts} are read in windows, which leave no room for a prefix. Their scores "
            "are meaningless."
        )


VIEWS = {
    "prefix": AfterPrefixView(original, ("prefix",), rewords=False, covers_text=True),
    "member_prefix": AfterPrefixView(
        original, ("prefix", "member_prefix"), rewords=False, covers_text=True, members=True
    ),
}

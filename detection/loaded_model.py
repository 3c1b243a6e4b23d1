"""A model with its tokenizer: texts in, rows of a pass out."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from contamination.core.errors import DataError
from contamination.data.texts import Text
from contamination.detection.forward.reader import Reader, Tokens
from contamination.detection.pass_store import ByText, Row
from contamination.detection.passes import Copies, Pass
from contamination.detection.views import render, view_of

log = logging.getLogger(__name__)

TEXTS_AT_ONCE = 1_000  # the tokenizer's own record of a text takes far more than the ids


class LoadedModel(Reader):
    """Tokenizes and checks every text first; the weights are loaded when all are found good."""

    def run(self, wanted: Pass, texts: Sequence[Text], known: ByText | None = None) -> list[Row]:
        """The pass's rows, in the order of `texts`.

        Args:
            wanted: what to run.
            texts: what its view is made of.
            known: the texts' own statistics, for a view that rewords them.

        Raises:
            DataError: a text has fewer than 2 tokens, is too long, or gets NaN logits.
        """
        tokens = self.tokenize(wanted, texts)
        self._check_windows(wanted, tokens)
        if known is None:
            found = self._read(wanted, tokens)
        else:
            found = self._reworded(wanted, tokens, self.tokenize(Pass(wanted.model), texts), known)
        return [
            Row(t.owner.sha256, copy, t.truncated, stats, t.windowed)
            for t, copies in zip(tokens, found, strict=True)
            for copy, stats in enumerate(copies, start=t.copy)
        ]

    def _read(self, wanted: Pass, tokens: Sequence[Tokens]) -> list[Copies]:
        """The statistics of the texts, in windows of those that are too long."""
        view = view_of(wanted)
        whole = iter(view.whole(self, wanted, [t for t in tokens if not t.windowed]))
        windows = iter(view.windows(self, wanted, [t for t in tokens if t.windowed]))
        return [next(windows if t.windowed else whole) for t in tokens]

    def _reworded(
        self, wanted: Pass, tokens: Sequence[Tokens], own: Sequence[Tokens], known: ByText
    ) -> list[Copies]:
        """The rewordings' statistics: the same tokens have the same ones, and are read once.

        One that reads as a text does shares its statistics, so that they are exactly 0 apart.
        """
        found = {tuple(t.ids): known[t.owner.sha256] for t in own}
        new = {ids: t for t in tokens if (ids := tuple(t.ids)) not in found}
        found.update(zip(new, self._read(wanted, list(new.values())), strict=True))
        return [found[tuple(t.ids)] for t in tokens]

    def _check_windows(self, wanted: Pass, tokens: Sequence[Tokens]) -> None:
        long, context = {t.owner.sha256 for t in tokens if t.windowed}, self.source.context
        if not long or context is None:
            return
        of = f"{len(long)} of {len({t.owner.sha256 for t in tokens})} texts"
        log.info(
            f"{wanted.view_key}: {of} are longer than the model's context of {context} tokens and "
            "are read in windows."
        )
        view_of(wanted).check_windows(wanted, context, of)

    def tokenize(self, wanted: Pass, texts: Sequence[Text]) -> list[Tokens]:
        """Each text of the view with the special tokens that the tokenizer itself adds."""
        views = [
            (text, copy, version)
            for text, versions in zip(texts, render(wanted, texts, self.resources), strict=True)
            for copy, version in enumerate(versions)
        ]
        tokens: list[Tokens] = []
        for start in range(0, len(views), TEXTS_AT_ONCE):
            block = views[start : start + TEXTS_AT_ONCE]
            versions = [version for *_, version in block]
            rows = self.tokenizer(versions, return_attention_mask=False, verbose=False)["input_ids"]
            each = zip(block, rows, strict=True)
            tokens += [self._checked(wanted, *view, ids) for view, ids in each]
        return tokens

    def _checked(
        self, wanted: Pass, owner: Text, copy: int, version: str, ids: list[int]
    ) -> Tokens:
        view = view_of(wanted)
        if len(ids) < view.least:
            is_version = f" ({owner.text[:40]!r}), in the view {wanted.view_key},"
            raise DataError(
                f"text {owner.example_id}{is_version * (version != owner.text)} is "
                f"{version[:40]!r}: that has {len(ids)} tokens, and the first is never scored. "
                "Leave the text out, or give one of more tokens."
            )
        vocabulary, context = self.source.vocabulary, self.source.context
        if vocabulary is not None and max(ids) >= vocabulary:
            raise DataError(
                f"{self.source.field} is {self.source.path!r}: its tokenizer gives the text "
                f"{owner.example_id} the token {max(ids)}, but the model's vocabulary has "
                f"{vocabulary}. Give the model its own tokenizer."
            )
        too_long = view.cuts and context is not None and len(ids) > context
        # A version may have a few tokens more than its text, whose own pass is checked: it is cut.
        if too_long and self.settings.long_texts == "error" and version == owner.text:
            raise DataError(
                f"text {owner.example_id} has {len(ids)} tokens, more than the model's context of "
                f"{context}. Shorten it, or set detection.long_texts=truncate to score its "
                "first tokens, or detection.long_texts=windowed to score all in windows."
            )
        windowed = too_long and self.settings.long_texts == "windowed"
        if too_long and not windowed:
            return Tokens(owner, copy, ids[:context], truncated=True)
        return Tokens(owner, copy, ids, truncated=False, windowed=windowed)

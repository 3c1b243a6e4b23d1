"""A model with its tokenizer: takes texts, returns the rows of a pass."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from contamination.core.errors import DataError
from contamination.core.terminal import counted
from contamination.data.texts import Text
from contamination.detection.forward.reader import Reader, Tokens
from contamination.detection.pass_store import PassRow, StatsByText
from contamination.detection.passes import Copies, Pass
from contamination.detection.views import render_versions, view_of

log = logging.getLogger(__name__)

BLOCK_TEXTS = 1_000  # the tokenizer's internal record of a text is far larger than the ids


class LoadedModel(Reader):
    """Tokenizes and checks all texts; the weights are loaded only once every text has passed."""

    def run(
        self, wanted: Pass, texts: Sequence[Text], text_stats: StatsByText | None = None
    ) -> list[PassRow]:
        """Returns the rows of the pass, in the order of `texts`.

        Args:
            wanted: the pass.
            texts: the original texts.
            text_stats: the statistics of the original texts, if the pass rewords them.

        Raises:
            DataError: a text has fewer than 2 tokens, is too long, or has NaN logits.
        """
        tokens = self.tokenize(wanted, texts)
        self._check_windows(wanted, tokens)
        if text_stats is None:
            copies_by_version = self._read_versions(wanted, tokens)
        else:
            text_tokens = self.tokenize(Pass(wanted.model), texts)
            copies_by_version = self._read_rewordings(wanted, tokens, text_tokens, text_stats)
        return [
            PassRow(t.owner.sha256, copy, t.truncated, stats, t.windowed)
            for t, copies in zip(tokens, copies_by_version, strict=True)
            for copy, stats in enumerate(copies, start=t.copy)
        ]

    def _read_versions(self, wanted: Pass, tokens: Sequence[Tokens]) -> list[Copies]:
        """Returns the statistics of each version, read in windows where it is too long."""
        view, title = view_of(wanted), wanted.view_key
        fitting = [t for t in tokens if not t.windowed]
        too_long = [t for t in tokens if t.windowed]
        copies = iter(self.perform(view.describe_work(self, wanted, fitting), title))
        task = view.window_task(wanted, self.settings.batch_tokens)
        merged_copies = iter(self.perform_in_windows(task, title, too_long))
        return [next(merged_copies if t.windowed else copies) for t in tokens]

    def _read_rewordings(
        self,
        wanted: Pass,
        tokens: Sequence[Tokens],
        text_tokens: Sequence[Tokens],
        text_stats: StatsByText,
    ) -> list[Copies]:
        """Returns the statistics of rewordings. Versions with equal tokens are read once.

        A version that equals its text takes the text's statistics, so that their difference is
        exactly 0.
        """
        copies_by_ids = {tuple(t.ids): text_stats[t.owner.sha256] for t in text_tokens}
        new = {ids: t for t in tokens if (ids := tuple(t.ids)) not in copies_by_ids}
        copies_by_ids.update(zip(new, self._read_versions(wanted, list(new.values())), strict=True))
        return [copies_by_ids[tuple(t.ids)] for t in tokens]

    def _check_windows(self, wanted: Pass, tokens: Sequence[Tokens]) -> None:
        windowed, context = {t.owner.sha256 for t in tokens if t.windowed}, self.source.context
        if not windowed or context is None:
            return
        share = f"{len(windowed)} of {len({t.owner.sha256 for t in tokens})} texts"
        log.info(
            f"{wanted.view_key}: {share} are longer than the model's context of {context} tokens "
            "and are read in windows."
        )
        view_of(wanted).check_works_in_windows(wanted, context, share)

    def tokenize(self, wanted: Pass, texts: Sequence[Text]) -> list[Tokens]:
        """Returns the tokens of every version, with the special tokens that the tokenizer adds."""
        versions = [
            (text, copy, version)
            for text, of_text in zip(
                texts, render_versions(wanted, texts, self.resources), strict=True
            )
            for copy, version in enumerate(of_text)
        ]
        tokens: list[Tokens] = []
        for start in range(0, len(versions), BLOCK_TEXTS):
            block = versions[start : start + BLOCK_TEXTS]
            strings = [string for *_, string in block]
            rows = self.tokenizer(strings, return_attention_mask=False, verbose=False)["input_ids"]
            tokens += [
                self._checked_tokens(wanted, *text_copy_version, ids)
                for text_copy_version, ids in zip(block, rows, strict=True)
            ]
        return tokens

    def _checked_tokens(
        self, wanted: Pass, owner: Text, copy: int, version: str, ids: list[int]
    ) -> Tokens:
        view = view_of(wanted)
        if len(ids) < view.min_tokens:
            in_view = f" ({owner.text[:40]!r}), in the view {wanted.view_key},"
            raise DataError(
                f"text {owner.example_id}{in_view * (version != owner.text)} is "
                f"{version[:40]!r}: that has {counted(len(ids), 'token')}, and the first is "
                "never scored. Leave the text out, or give one of more tokens."
            )
        vocabulary, context = self.source.vocabulary, self.source.context
        if vocabulary is not None and max(ids) >= vocabulary:
            raise DataError(
                f"{self.source.field} is {self.source.path!r}: its tokenizer gives the text "
                f"{owner.example_id} the token {max(ids)}, but the model's vocabulary has "
                f"{vocabulary}. Give the model its own tokenizer."
            )
        too_long = view.limited_to_context and context is not None and len(ids) > context
        # a version may have a few more tokens than its text, whose own pass is checked: truncate it
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

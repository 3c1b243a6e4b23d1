"""A model with its tokenizer: texts in, rows of a pass out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from core.errors import DataError
from core.models import load_config, load_tokenizer
from detection.config import DetectionConfig
from detection.decoder import Decoder, load_decoder
from detection.infill_copies import Copies
from detection.infill_pass import run_infill
from detection.parallel import run_slices, spread
from detection.passes import INFILL, Pass, TokenStats
from detection.prefix_pass import run_prefixed
from detection.runner import run_sequences
from detection.scored_model import ScoredModel
from detection.slices import Task
from detection.store import Copies as Stored
from detection.store import Row
from detection.texts import Text
from detection.views import PREFIX, Material, render
from detection.views.prefix import Shots
from detection.views.prefix_texts import check_disjoint
from detection.windows import check_future, leading_special, merge, merge_copies, split

log = logging.getLogger(__name__)

T = TypeVar("T")
Merge = Callable[[Sequence[T], int], T]
TEXTS_AT_ONCE = 1_000  # the tokenizer's own record of a text takes far more than the ids


@dataclass(frozen=True)
class Tokens:
    """One text of a view as the model reads it; `owner` is the example's text it was made from.

    A `windowed` one has more tokens than the model takes at once.
    """

    owner: Text
    copy: int
    ids: list[int]
    truncated: bool
    windowed: bool = False


class LoadedModel:
    """Tokenizes and checks every text first; the weights are loaded when all are found good."""

    def __init__(
        self, source: ScoredModel, settings: DetectionConfig, material: Material | None = None
    ) -> None:
        self.source = source
        self.settings = settings
        self.material = material or Material()
        self.tokenizer = load_tokenizer(
            source.field, str(source.folder), trust_remote_code=source.trust_remote_code
        )

    @cached_property
    def decoder(self) -> Decoder:
        """The model on its device."""
        return load_decoder(self.source, self.settings)

    @cached_property
    def context(self) -> int | None:
        """The most tokens that the model takes; None where it names no limit."""
        limit = getattr(self._config, "max_position_embeddings", None)
        return None if limit is None else int(limit)

    @cached_property
    def _config(self) -> Any:
        config = load_config(
            self.source.field, str(self.source.folder),
            trust_remote_code=self.source.trust_remote_code,
        )  # fmt: skip
        return config.get_text_config(decoder=True)

    def run(self, wanted: Pass, texts: Sequence[Text], known: Stored | None = None) -> list[Row]:
        """The pass's rows, in the order of `texts`.

        Args:
            wanted: what to run.
            texts: what its view is made of.
            known: the texts' own statistics, for a view that rewords them.

        Raises:
            DataError: a text has fewer than 2 tokens, is too long, or gets NaN logits.
        """
        tokens = self.tokenize(wanted, texts)
        self._say_windows(wanted, tokens)
        if wanted.view == INFILL:
            found = self._infill(wanted, tokens)
        elif known is None:
            found = [(stats,) for stats in self._stats(wanted, tokens)]
        else:
            own = self.tokenize(Pass(wanted.model), texts)
            found = [(stats,) for stats in self._reworded(wanted, tokens, own, known)]
        return [
            Row(t.owner.sha256, copy, t.truncated, stats, t.windowed)
            for t, copies in zip(tokens, found, strict=True)
            for copy, stats in enumerate(copies, start=t.copy)
        ]

    def _reworded(
        self, wanted: Pass, tokens: Sequence[Tokens], own: Sequence[Tokens], known: Stored
    ) -> list[TokenStats]:
        """The rewordings' statistics: the same tokens have the same ones, and are read once.

        One that reads as a text does shares its statistics, so that they are exactly 0 apart.
        """
        found = {tuple(t.ids): known[t.owner.sha256][0] for t in own}
        new = {ids: t for t in tokens if (ids := tuple(t.ids)) not in found}
        found.update(zip(new, self._stats(wanted, list(new.values())), strict=True))
        return [found[tuple(t.ids)] for t in tokens]

    def _stats(self, wanted: Pass, tokens: Sequence[Tokens]) -> list[TokenStats]:
        """The texts' statistics, behind a prefix where the view says so and leaves room for one."""
        title = f"{self.source.slug} {wanted.view_key}"
        plain = partial(run_sequences, batch_tokens=self.settings.batch_tokens)
        whole = partial(self._run, plain, title)
        if wanted.view == PREFIX:
            whole = partial(self._behind_prefix, int(dict(wanted.parameters)["shots"]), title)
        windows = partial(self._run_windows, plain, merge, title)
        return _each_its_own(tokens, whole, windows)

    def _behind_prefix(self, count: int, title: str, tokens: Sequence[Tokens]) -> list[TokenStats]:
        """The statistics of texts, each behind as many of its `count` shots as fit."""
        assert self.material.prefix is not None
        groups = self.material.prefix.groups(count, [t.owner.benchmark for t in tokens])
        for shots, places in groups:
            owners = [tokens[i].owner for i in places]
            check_disjoint(shots, [(o.example_id, o.text) for o in owners])
        prefix_of = {i: number for number, (_, places) in enumerate(groups) for i in places}
        task = partial(
            run_prefixed,
            prefixes=[Shots(self.tokenizer, shots) for shots, _ in groups],
            batch_tokens=self.settings.batch_tokens,
            context=self.context,
        )
        return self._run(task, title, tokens, [prefix_of[i] for i in range(len(tokens))])

    def _infill(self, wanted: Pass, tokens: Sequence[Tokens]) -> list[Copies]:
        """The texts' own statistics as copy 0, and those after each replacement."""
        title, future = f"{self.source.slug} {wanted.view_key}", dict(wanted.parameters)["future"]
        if self.context is not None and any(t.windowed for t in tokens):
            check_future(future, self.context)
        task = partial(run_infill, batch_tokens=self.settings.batch_tokens, future=future)
        windows = partial(self._run_windows, task, merge_copies, title)
        return _each_its_own(tokens, partial(self._run, task, title), windows)

    def _run(
        self, task: Task[T], title: str, tokens: Sequence[Tokens], *columns: Sequence[int]
    ) -> list[T]:
        """The task's result for each of the texts, by one process or by several."""
        if not tokens:
            return []
        ids, names = [t.ids for t in tokens], [t.owner.example_id for t in tokens]
        if spread(self.settings):
            return run_slices(task, self.source, self.settings, ids, names, *columns)
        return task(self.decoder, ids, names, *columns, progress=title)

    def _run_windows(
        self, task: Task[T], merged: Merge[T], title: str, tokens: Sequence[Tokens]
    ) -> list[T]:
        """The same for texts longer than the context, each from its windows' results."""
        if not tokens or self.context is None:
            return []
        special = leading_special(self.tokenizer)
        pieces = [split(t.ids, self.context, special) for t in tokens]
        rows = [
            replace(t, ids=ids) for t, piece in zip(tokens, pieces, strict=True) for ids in piece
        ]
        found = iter(self._run(task, f"{title}, windows", rows))
        return [merged([next(found) for _ in piece], self.context) for piece in pieces]

    def _say_windows(self, wanted: Pass, tokens: Sequence[Tokens]) -> None:
        long = {t.owner.sha256 for t in tokens if t.windowed}
        if not long:
            return
        of = f"{len(long)} of {len({t.owner.sha256 for t in tokens})} texts"
        log.info("%s: %s are longer than the model's context of %d tokens and are read in windows.",
                 wanted.view_key, of, self.context)  # fmt: skip
        if wanted.view == PREFIX:
            log.warning("prefix: %s are read in windows, which leave no room for a prefix. Their "
                        "scores say nothing.", of)  # fmt: skip

    def tokenize(self, wanted: Pass, texts: Sequence[Text]) -> list[Tokens]:
        """Each text of the view with the special tokens that the tokenizer itself adds."""
        wanted = Pass(wanted.model) if wanted.view == INFILL else wanted
        views = [
            (text, copy, version)
            for text, versions in zip(texts, render(wanted, texts, self.material), strict=True)
            for copy, version in enumerate(versions)
        ]
        blocks = (views[i : i + TEXTS_AT_ONCE] for i in range(0, len(views), TEXTS_AT_ONCE))
        return [
            self._checked(wanted, owner, copy, row, version)
            for block in blocks
            for (owner, copy, version), row in zip(block, self._ids(block), strict=True)
        ]

    def _ids(self, block: Sequence[tuple[Text, int, str]]) -> list[list[int]]:
        texts = [version for *_, version in block]
        found = self.tokenizer(texts, return_attention_mask=False, verbose=False)
        return list(found["input_ids"])

    def _checked(
        self, wanted: Pass, owner: Text, copy: int, ids: list[int], version: str
    ) -> Tokens:
        if len(ids) < 2:
            is_version = f" ({owner.text[:40]!r}), in the view {wanted.view_key},"
            raise DataError(
                f"text {owner.example_id}{is_version * (version != owner.text)} is "
                f"{version[:40]!r}: that has {len(ids)} tokens, and the first is never scored. "
                "Leave the text out, or give one of more tokens."
            )
        vocabulary = getattr(self._config, "vocab_size", None)
        if vocabulary is not None and max(ids) >= vocabulary:
            raise DataError(
                f"{self.source.field} is {str(self.source.folder)!r}: its tokenizer gives the text "
                f"{owner.example_id} the token {max(ids)}, but the model's vocabulary has "
                f"{vocabulary}. Give the model its own tokenizer."
            )
        too_long = self.context is not None and len(ids) > self.context
        # A version may have a few tokens more than its text, whose own pass is checked: it is cut.
        if too_long and self.settings.long_texts == "error" and version == owner.text:
            raise DataError(
                f"text {owner.example_id} has {len(ids)} tokens, more than the model's context of "
                f"{self.context}. Shorten it, or set detection.long_texts=truncate to score its "
                "first tokens, or detection.long_texts=windowed to score all in windows."
            )
        windowed = too_long and self.settings.long_texts == "windowed"
        if too_long and not windowed:
            return Tokens(owner, copy, ids[: self.context], truncated=True)
        return Tokens(owner, copy, ids, truncated=False, windowed=windowed)


def _each_its_own(
    tokens: Sequence[Tokens],
    whole: Callable[[list[Tokens]], list[T]],
    windows: Callable[[list[Tokens]], list[T]],
) -> list[T]:
    """The results in the order of `tokens`: `windows`' for the windowed ones, `whole`'s else."""
    short = iter(whole([t for t in tokens if not t.windowed]))
    long = iter(windows([t for t in tokens if t.windowed]))
    return [next(long if t.windowed else short) for t in tokens]

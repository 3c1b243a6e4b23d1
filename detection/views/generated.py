"""A text's first part, and what the model writes after it: greedy, or drawn several times."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from contamination.core.seeds import derive
from contamination.data.text import halves
from contamination.data.texts import Text
from contamination.detection.forward.reader import Reader, Tokens, leading_special
from contamination.detection.passes import Continuation, Copies, Pass
from contamination.detection.resources import Resources
from contamination.detection.views.base import View


def first_part(
    texts: Sequence[Text],
    resources: Resources,
    share: float,
    words: int | None = None,
    **_: object,
) -> list[Sequence[str]]:
    """The text up to the end of its word ⌊share·words⌋, and of its word number `words` at most."""
    return [(halves(text.text, share, words)[0],) for text in texts]


@dataclass(frozen=True)
class Written(View):
    """Lets the model write after each prompt what would replace the rest of the text, `n` times.

    It writes as many tokens as the rest has, and `tokens` at most: what follows the text itself is
    nobody's to know. A prompt that leaves no room in the model's context loses its first tokens. A
    continuation's draws follow from the seed, the text's SHA-256 and its number alone.
    """

    counts: bool = True
    asks: frozenset[str] = frozenset({"continuations"})
    least: int = 1
    cuts: bool = False

    def serving(self, wanted: Pass, others: Iterable[Pass]) -> Pass:
        """Of those that differ in `n` alone the pass with the most holds all."""
        alike = [o for o in others if _but_n(o) == _but_n(wanted)]
        return max(alike, key=lambda other: int(dict(other.parameters).get("n", 1)))

    def reads(self, wanted: Pass, tokens: int) -> int:
        """Each continuation's prompt and what is written after it."""
        given = dict(wanted.parameters)
        prompt = int(float(given["share"]) * tokens)
        return (prompt + min(int(given["tokens"]), tokens - prompt)) * self.copies(wanted)

    def whole(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> list[Copies]:
        """The continuations of each prompt."""
        from contamination.detection.forward.reader import run_written  # it imports torch

        given, seed = dict(wanted.parameters), derive(reader.resources.seed, "continuations")
        task = partial(
            run_written,
            n=self.copies(wanted),
            temperature=float(given.get("temperature", 0)),
            batch_tokens=reader.settings.batch_tokens,
        )
        texts = [t.owner.text for t in tokens]
        lengths = [len(ids) for ids in reader.tokenizer(texts, verbose=False)["input_ids"]]
        rests = [max(1, length - len(t.ids)) for t, length in zip(tokens, lengths, strict=True)]
        most = [min(rest, int(given["tokens"]), half_context(reader)) for rest in rests]
        prompts = [fitted(reader, t, room) for t, room in zip(tokens, most, strict=True)]
        seeds = [derive(seed, t.owner.sha256) for t in tokens]
        found = reader.spread(task, wanted.view_key, prompts, most, seeds)
        each = zip(found, lengths, strict=True)
        return [tuple(_continuation(reader, ids, n - 1) for ids in own) for own, n in each]


def half_context(reader: Reader) -> int:
    """The most tokens to write: a prompt keeps the other half."""
    return sys.maxsize if reader.source.context is None else reader.source.context // 2


def fitted(reader: Reader, text: Tokens, tokens: int) -> Tokens:
    """The prompt without the first tokens, special ones apart, that leave no room for `tokens`."""
    context, special = reader.source.context, leading_special(reader.tokenizer)
    if context is None or len(text.ids) + tokens <= context:
        return text
    return replace(text, ids=[*text.ids[:special], *text.ids[special + tokens - context :]])


def _continuation(reader: Reader, ids: Sequence[int], scored: int) -> Continuation:
    text = reader.tokenizer.decode(ids, skip_special_tokens=True)
    return Continuation(ids=np.array(ids, np.int32), text=text, scored=scored)


def _but_n(wanted: Pass) -> Pass:
    given = {name: value for name, value in wanted.parameters if name != "n"}
    return Pass(wanted.model, wanted.view, **given)


VIEWS = {
    "greedy": Written(first_part, rewords=False),
    "sampled": Written(first_part, ("seed",), rewords=False),
}

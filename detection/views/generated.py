"""The first part of a text, and the model's continuations of it: greedy, or several samples."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from contamination.core.seeds import derive_seed
from contamination.data.texts import Text
from contamination.data.words import split_at_share
from contamination.detection.forward.reader import (
    Reader,
    Tokens,
    ViewWork,
    count_leading_special,
    run_continuations,
)
from contamination.detection.passes import Continuation, Copies, Pass
from contamination.detection.view_resources import Resources
from contamination.detection.views.base import View


def take_prompts(
    texts: Sequence[Text],
    resources: Resources,
    share: float,
    words: int | None = None,
    **_: object,
) -> list[Sequence[str]]:
    """Returns the first ⌊share·n⌋ of a text's n words, and at most `words` words."""
    return [(split_at_share(text.text, share, words)[0],) for text in texts]


@dataclass(frozen=True)
class ContinuationView(View):
    """Lets the model continue each prompt in place of the rest of the text, `n` times.

    A continuation has as many tokens as the rest of the text, and at most `tokens`, because nothing
    is known beyond the text's end. A prompt that leaves too little room in the model's context
    loses its first tokens. A continuation depends only on the seed, the text's SHA-256 and its own
    number.
    """

    covers_text: bool = True
    required_abilities: frozenset[str] = frozenset({"continuations"})
    min_tokens: int = 1
    limited_to_context: bool = False

    def covering_pass(self, wanted: Pass, others: Iterable[Pass]) -> Pass:
        """Returns the pass with the most continuations among those that differ only in `n`."""
        candidates = [other for other in others if _without_n(other) == _without_n(wanted)]
        return max(candidates, key=lambda other: int(dict(other.parameters).get("n", 1)))

    def max_tokens_read(self, wanted: Pass, tokens: int) -> int:
        """Counts the prompt and the new tokens of each continuation."""
        parameters = dict(wanted.parameters)
        prompt_tokens = int(float(parameters["share"]) * tokens)
        new_tokens = min(int(parameters["tokens"]), tokens - prompt_tokens)
        return (prompt_tokens + new_tokens) * self.copies_per_text(wanted)

    def describe_work(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> ViewWork:
        """Describes writing the continuations of each prompt; see `View.describe_work`."""
        parameters, seed = (
            dict(wanted.parameters),
            derive_seed(reader.resources.seed, "continuations"),
        )
        task = partial(
            run_continuations,
            n=self.copies_per_text(wanted),
            temperature=float(parameters.get("temperature", 0)),
            batch_tokens=reader.settings.batch_tokens,
        )
        texts = [t.owner.text for t in tokens]
        lengths = [len(ids) for ids in reader.tokenizer(texts, verbose=False)["input_ids"]]
        rests = [max(1, length - len(t.ids)) for t, length in zip(tokens, lengths, strict=True)]
        limit = min(int(parameters["tokens"]), max_new_tokens(reader))
        new_tokens = [min(rest, limit) for rest in rests]
        prompts = [
            shorten_prompt(reader, t, room) for t, room in zip(tokens, new_tokens, strict=True)
        ]
        seeds = [derive_seed(seed, t.owner.sha256) for t in tokens]

        def decoded(ids_by_text: Sequence[Sequence[Sequence[int]]]) -> list[Copies]:
            return [
                tuple(_continuation(reader, ids, length - 1) for ids in ids_of_text)
                for ids_of_text, length in zip(ids_by_text, lengths, strict=True)
            ]

        return ViewWork(task, prompts, (new_tokens, seeds), decoded)


def max_new_tokens(reader: Reader) -> int:
    """Returns the maximum number of new tokens, which leaves half of the context to the prompt."""
    return sys.maxsize if reader.source.context is None else reader.source.context // 2


def shorten_prompt(reader: Reader, text: Tokens, tokens: int) -> Tokens:
    """Shortens a prompt at its beginning so that `tokens` new tokens fit into the context.

    Leading special tokens stay.
    """
    context, special = reader.source.context, count_leading_special(reader.tokenizer)
    if context is None or len(text.ids) + tokens <= context:
        return text
    return replace(text, ids=[*text.ids[:special], *text.ids[special + tokens - context :]])


def _continuation(reader: Reader, ids: Sequence[int], scored: int) -> Continuation:
    text = reader.tokenizer.decode(ids, skip_special_tokens=True)
    return Continuation(ids=np.array(ids, np.int32), text=text, scored=scored)


def _without_n(wanted: Pass) -> Pass:
    parameters = {name: value for name, value in wanted.parameters if name != "n"}
    return Pass(wanted.model, wanted.view, **parameters)


VIEWS = {
    "greedy": ContinuationView(take_prompts, rewords=False),
    "sampled": ContinuationView(take_prompts, ("seed",), rewords=False),
}

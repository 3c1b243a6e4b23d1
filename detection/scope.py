"""Which part of a text is scored: all of it, its output given its input, or its input alone.

A text of an input x and an output y (Ye et al. 2024, section 3.1) is read once, whole. What is said
of the output's tokens is then of y given x, and what is said of the input's is of x alone. A token
that holds a character of the output is the output's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from contamination.core.errors import ConfigError, DataError
from contamination.data.examples import lines_digest
from contamination.data.texts import Text, Texts
from contamination.detection.config import INPUT, OUTPUT, WHOLE
from contamination.detection.methods.base import Method
from contamination.detection.models import model_of
from contamination.detection.models.base import ModelHandle
from contamination.detection.pass_store import ByText
from contamination.detection.passes import Copies, Pass
from contamination.detection.views import view_of
from contamination.detection.views.base import View

AT_ONCE = 1_000
"""Texts that are tokenised at once."""


@dataclass(frozen=True)
class Part(Mapping[str, Copies]):
    """What a pass says of one part of each text, by the text's SHA-256.

    Attributes:
        whole: what it says of the whole texts.
        view: the pass's.
        scope: OUTPUT or INPUT.
        inputs: of each text its id, and how many of its tokens, special ones included, are before
            its output.
    """

    whole: ByText
    view: View
    scope: str
    inputs: Mapping[str, tuple[str, int]]

    def __getitem__(self, sha256: str) -> Copies:
        copies, (name, tokens) = self.whole[sha256], self.inputs[sha256]
        part = self.view.beginning if self.scope == INPUT else self.view.ending
        found = part(copies, tokens)
        if not len(found[0]):
            raise DataError(
                f"detection.scope is {self.scope!r}, but no token of the {self.scope} of the text "
                f"{name!r} is scored: its input has {tokens} tokens, and {len(copies[0])} of the "
                "whole text are scored. Leave the text out, or score it whole."
            )
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.inputs)

    def __len__(self) -> int:
        return len(self.inputs)


def lack_of_scope(scope: str, method: Method) -> tuple[str, str] | None:
    """Why the method can't be given a part of a text, and what to do; None: it can.

    A version in other words has no known place where its output begins.
    """
    if scope == WHOLE:
        return None
    reworded = [p for p in method.passes if view_of(p).rewords or not view_of(p).counts]
    if not (reworded or method.generates):
        return None
    which = "continuations" if method.generates else f"its versions of a text ({reworded[0].view})"
    why = f"detection.scope=whole: where the output begins in {which} is not known"
    return why, f"{why}. Leave the method out, or score whole texts."


def scoped(
    scope: str, texts: Texts, passes: Mapping[Pass, ByText], models: Mapping[str, ModelHandle]
) -> tuple[Texts, Mapping[Pass, ByText]]:
    """The texts cut to the part, by the whole text's SHA-256, and what the passes say of it.

    Each text has one output (`check_outputs`).
    """
    if scope == WHOLE:
        return texts, passes
    inputs = {p.model: input_tokens(model_of(p, models).tokenizer(), texts) for p in passes}
    cut = {p: Part(own, view_of(p), scope, inputs[p.model]) for p, own in passes.items()}
    return Texts.of(_cut(scope, text) for text in texts), cut


def check_outputs(scope: str, texts: Sequence[Text]) -> None:
    """Raise a DataError unless each text has one place where its output begins."""
    known: dict[str, int] = {}
    for text in texts:
        if text.output_start is None:
            raise DataError(
                f"detection.scope is {scope!r}, but where the output begins in the text "
                f"{text.example_id!r} is not known. Give rows of `prompt` and `output`, or of "
                "`text` and `output_start` (its first character's number), or a fine-tuning set."
            )
        if known.setdefault(text.sha256, text.output_start) != text.output_start:
            raise DataError(
                f"detection.scope is {scope!r}, but the text {text.example_id!r} is there twice, "
                "with different outputs. Leave one of them out."
            )


def outputs_of(scope: str, texts: Texts) -> dict[str, str]:
    """The input that names scores of a part: a hash of where each text's output begins.

    Raises:
        DataError: see `check_outputs`.
    """
    if scope == WHOLE:
        return {}
    check_outputs(scope, texts)
    ordered = texts.take(texts.order("sha256", "example_id"))
    return {"outputs": lines_digest(f"{t.sha256} {t.output_start}" for t in ordered)}


def input_tokens(tokenizer: Any, texts: Sequence[Text]) -> dict[str, tuple[str, int]]:
    """Each text's id and the number of its tokens before its output, by its SHA-256."""
    parts = (texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE))
    return {
        text.sha256: (text.example_id, tokens_before(offsets, text.output_start or 0))
        for some in parts
        for text, offsets in zip(some, _offsets(tokenizer, some), strict=True)
    }


def tokens_before(offsets: Sequence[tuple[int, int]], character: int) -> int:
    """How many of a text's first tokens, by their characters, end at or before a character."""
    return next((n for n, (_, end) in enumerate(offsets) if end > character), len(offsets))


def _offsets(tokenizer: Any, texts: Sequence[Text]) -> list[list[tuple[int, int]]]:
    try:
        read = tokenizer([t.text for t in texts], return_offsets_mapping=True, verbose=False)
    except NotImplementedError as error:
        raise ConfigError(
            "detection.scope: the model's tokenizer does not say which characters a token has. "
            "Score whole texts."
        ) from error
    found: list[list[tuple[int, int]]] = read["offset_mapping"]
    return found


def _cut(scope: str, text: Text) -> Text:
    own = text.text[text.output_start :] if scope == OUTPUT else text.text[: text.output_start]
    return replace(text, text=own)

"""Which part of a text is scored: all of it, its output given its input, or its input alone.

A text with an input x and an output y (Ye et al. 2024, section 3.1) is read once, as a whole. The
statistics of the output's tokens are those of y given x; the input's are those of x alone. A token
that contains a character of the output belongs to the output.
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
from contamination.detection.models import model_for_pass
from contamination.detection.models.base import ModelHandle
from contamination.detection.pass_store import StatsByText
from contamination.detection.passes import Copies, Pass
from contamination.detection.views import view_of
from contamination.detection.views.base import View

BLOCK_TEXTS = 1_000
"""The number of texts that are tokenised at once."""


@dataclass(frozen=True)
class ScopedPass(Mapping[str, Copies]):
    """The statistics of one part of each text, by the whole text's SHA-256.

    Attributes:
        stats_of_texts: the statistics of the whole texts.
        view: the view of the pass.
        scope: OUTPUT or INPUT.
        inputs: by SHA-256, each text's id and the number of tokens before its output, including
            special tokens.
    """

    stats_of_texts: StatsByText
    view: View
    scope: str
    inputs: Mapping[str, tuple[str, int]]

    def __getitem__(self, sha256: str) -> Copies:
        copies, (name, tokens) = self.stats_of_texts[sha256], self.inputs[sha256]
        cut = self.view.stats_of_beginning if self.scope == INPUT else self.view.stats_of_ending
        copies_of_part = cut(copies, tokens)
        if not len(copies_of_part[0]):
            raise DataError(
                f"detection.scope is {self.scope!r}, but no token of the {self.scope} of the text "
                f"{name!r} is scored: its input has {tokens} tokens, and {len(copies[0])} of the "
                "whole text are scored. Leave the text out, or score it whole."
            )
        return copies_of_part

    def __iter__(self) -> Iterator[str]:
        return iter(self.inputs)

    def __len__(self) -> int:
        return len(self.inputs)


def describe_scope_obstacle(scope: str, method: Method) -> tuple[str, str] | None:
    """Returns why the method cannot score a part of a text, without and with the remedy, or None.

    It is not known where the output begins in a reworded version.
    """
    if scope == WHOLE:
        return None
    reworded = [p for p in method.passes if view_of(p).rewords or not view_of(p).covers_text]
    if not (reworded or method.generates):
        return None
    versions = (
        "continuations" if method.generates else f"its versions of a text ({reworded[0].view})"
    )
    reason = f"detection.scope=whole: where the output begins in {versions} is not known"
    return reason, f"{reason}. Leave the method out, or score whole texts."


def restrict_to_scope(
    scope: str, texts: Texts, passes: Mapping[Pass, StatsByText], models: Mapping[str, ModelHandle]
) -> tuple[Texts, Mapping[Pass, StatsByText]]:
    """Returns the texts and the statistics of the passes, both restricted to the scope.

    Both keep the SHA-256 of the whole text. Each text must have one output (`check_output_starts`).
    """
    if scope == WHOLE:
        return texts, passes
    inputs = {
        p.model: input_token_counts(model_for_pass(p, models).tokenizer(), texts) for p in passes
    }
    scoped_passes = {
        p: ScopedPass(by_text, view_of(p), scope, inputs[p.model]) for p, by_text in passes.items()
    }
    return Texts.of(_text_in_scope(scope, text) for text in texts), scoped_passes


def check_output_starts(scope: str, texts: Sequence[Text]) -> None:
    """Raises a DataError unless each text has one known start of its output."""
    output_starts: dict[str, int] = {}
    for text in texts:
        if text.output_start is None:
            raise DataError(
                f"detection.scope is {scope!r}, but where the output begins in the text "
                f"{text.example_id!r} is not known. Give rows of `prompt` and `output`, or of "
                "`text` and `output_start` (its first character's number), or a fine-tuning set."
            )
        if output_starts.setdefault(text.sha256, text.output_start) != text.output_start:
            raise DataError(
                f"detection.scope is {scope!r}, but the text {text.example_id!r} occurs twice, "
                "with different outputs. Leave one of them out."
            )


def output_starts_digest(scope: str, texts: Texts) -> dict[str, str]:
    """Returns the digest that identifies scores of a part: of where each text's output begins.

    Raises:
        DataError: see `check_output_starts`.
    """
    if scope == WHOLE:
        return {}
    check_output_starts(scope, texts)
    ordered = texts.take(texts.sorting_indices("sha256", "example_id"))
    return {"outputs": lines_digest(f"{t.sha256} {t.output_start}" for t in ordered)}


def input_token_counts(tokenizer: Any, texts: Sequence[Text]) -> dict[str, tuple[str, int]]:
    """Returns by SHA-256 each text's id and the number of its tokens before its output."""
    blocks = (texts[start : start + BLOCK_TEXTS] for start in range(0, len(texts), BLOCK_TEXTS))
    return {
        text.sha256: (text.example_id, count_tokens_before(offsets, text.output_start or 0))
        for block in blocks
        for text, offsets in zip(block, _token_offsets(tokenizer, block), strict=True)
    }


def count_tokens_before(offsets: Sequence[tuple[int, int]], character: int) -> int:
    """Returns how many tokens at the beginning of a text end at or before a character.

    Args:
        offsets: the first and the last character, exclusive, of each token.
        character: the number of the character.
    """
    return next((n for n, (_, end) in enumerate(offsets) if end > character), len(offsets))


def _token_offsets(tokenizer: Any, texts: Sequence[Text]) -> list[list[tuple[int, int]]]:
    try:
        encoding = tokenizer([t.text for t in texts], return_offsets_mapping=True, verbose=False)
    except NotImplementedError as error:
        raise ConfigError(
            "detection.scope: the model's tokenizer does not report the characters of a token. "
            "Score whole texts."
        ) from error
    offsets: list[list[tuple[int, int]]] = encoding["offset_mapping"]
    return offsets


def _text_in_scope(scope: str, text: Text) -> Text:
    part = text.text[text.output_start :] if scope == OUTPUT else text.text[: text.output_start]
    return replace(text, text=part)

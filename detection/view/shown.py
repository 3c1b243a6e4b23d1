"""An example as the page shows it: its tokens' texts and numbers, and its scores, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detection.flags import unranked
from detection.methods._likelihood import standardised
from detection.methods.infilling import Infilling
from detection.methods.reference import REFERENCE
from detection.needs import Methods
from detection.passes import ORIGINAL, Example, Pass, TokenStats
from detection.scores import judged, seen
from detection.store import ByText
from detection.texts import Text
from detection.view.choose import KINDS

PER_UNIT = 1000
"""Numbers are stored as whole thousandths: short, and exact to 3 digits."""
FIRST_CHOICE = -1
"""In the place of the likeliest token's id, where the text's own token is the likeliest."""


@dataclass(frozen=True)
class Reading:
    """What examples are read with.

    Attributes:
        tokenizer: the target's.
        passes: the stored passes; the target's over the text itself is one of them.
        methods: those whose passes are all stored, by name and variant.
        min_scored_tokens: a text of fewer is not ranked.
        occurrences: of the examples of a corpus, by id.
    """

    tokenizer: Any
    passes: Mapping[Pass, ByText]
    methods: Methods
    min_scored_tokens: int
    occurrences: Mapping[str, int]


def show(texts: Sequence[Text], reading: Reading) -> dict[str, Any]:
    """The examples in their order, with the words for the likeliest tokens' ids."""
    found = {}
    for place in sorted(range(len(texts)), key=lambda i: texts[i].sha256):  # as passes are stored
        found[place] = _example(texts[place], reading)
    examples = [found[place] for place in range(len(texts))]
    ids = {id_ for example in examples for id_ in example["top"] if id_ != FIRST_CHOICE}
    words = {str(id_): reading.tokenizer.decode([id_]) for id_ in sorted(ids)}
    return {"examples": examples, "words": words}


def pieces(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[str]:
    """The text divided among its tokens, then what is left after the last: joined, the text.

    A token has what stands between the end of those before it and its own end, so white space that
    a tokenizer drops is with the token after it, and a character that is several tokens is with the
    first of them.

    Args:
        text: the text.
        spans: the start and the end of each token, in characters.
    """
    start = 0
    for _, end in spans:
        yield text[start:end]
        start = max(start, end)
    yield text[start:]


def numbers(example: Example, methods: Methods) -> dict[str, NDArray[Any]]:
    """The numbers of each scored token, by name; the last ones are missing where not all are known.

    Every method's number is its own function of the passes: see there for the equations.
    """
    stats = example.stats(ORIGINAL)
    found: dict[str, NDArray[Any]] = {"logprob": stats.logprob}
    if {"mean", "std"} <= vars(stats).keys():  # a served model has none
        found["z"] = standardised(stats)
    infilling = next((m for m in methods.values() if isinstance(m, Infilling)), None)
    if infilling is not None:
        found["ratio"] = infilling.ratios(example)
    if REFERENCE in example.copies:
        other = example.stats(REFERENCE).logprob
        shared = min(len(stats), len(other))  # of texts that are cut at the models' contexts
        found["difference"] = stats.logprob[:shared] - other[:shared]
    return found


def _example(text: Text, reading: Reading) -> dict[str, Any]:
    copies = {wanted: found[text.sha256] for wanted, found in reading.passes.items()}
    example = Example(text.example_id, text.text, copies)
    stats = example.stats(ORIGINAL)
    read = reading.tokenizer(text.text, return_offsets_mapping=True, verbose=False)
    ids = np.array(read["input_ids"][1 : len(stats) + 1])
    scores, flags = _scores(text, reading, len(stats))
    return {
        "id": text.example_id,
        "kind": KINDS[text.label],
        "benchmark": text.benchmark,
        "occurrences": reading.occurrences.get(text.example_id),
        "tokens": [*pieces(text.text, read["offset_mapping"])],
        "top": _tops(stats, ids),
        "numbers": {n: _whole(v) for n, v in numbers(example, reading.methods).items()},
        "scores": scores,
        "flags": flags,
    }


def _tops(stats: TokenStats, ids: NDArray[Any]) -> list[int]:
    """The likeliest token at each place, FIRST_CHOICE where it is the text's; none: not known."""
    if "top_id" not in vars(stats):
        return []
    found: list[int] = np.where(stats.top_id == ids, FIRST_CHOICE, stats.top_id).tolist()
    return found


def _scores(text: Text, reading: Reading, scored: int) -> tuple[dict[str, float], list[str]]:
    """The methods' scores, by name and variant, and what is out of the ordinary about them."""
    scores, flags = {}, {}
    why_not = unranked(text.text, scored, reading.min_scored_tokens)
    for (name, variant), method in reading.methods.items():
        example, label = seen(method, text, reading.passes), f"{name} {variant}".strip()
        scores[label], flag = judged(method, example, why_not)
        flags[flag if why_not else f"{name}: {flag}"] = flag
    return scores, [words for words, flag in flags.items() if flag]


def _whole(values: NDArray[Any]) -> list[int]:
    found: list[int] = np.rint(values.astype(np.float64) * PER_UNIT).astype(np.int64).tolist()
    return found

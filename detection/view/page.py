"""The page: one file with everything in it, that works from disk and without network."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from core.web_page import filled, script_json
from detection.view.shown import FIRST_CHOICE, PER_UNIT

FULL = 98
"""The percentile of all tokens' |value| from which on the colour is full."""


@dataclass(frozen=True)
class Number:
    """A number of each token in words.

    Attributes:
        title: its name.
        low: what the lower end says of a token.
        high: what the upper end says.
        meaning: what it is, in a sentence.
    """

    title: str
    low: str
    high: str
    meaning: str


NUMBERS = {
    "logprob": Number(
        "log p",
        "unexpected",
        "certain",
        "The log-probability of the token after those before it, in nats.",
    ),
    "z": Number(
        "z",
        "less likely than usual",
        "likelier than usual",
        "z = (log p − μ) / σ: log p against what the model expects of a token of its own, as in "
        "Min-K%++.",
    ),
    "ratio": Number(
        "infilling r",
        "fits worse than the first choice",
        "fits better",
        "How well the token and what follows fit, against the model's first choice in its place "
        "(Infilling Score); 0 where that is the token.",
    ),
    "difference": Number(
        "model − reference",
        "less likely than for the reference",
        "likelier than for the reference",
        "log p of the model less that of the reference, in nats.",
    ),
    "rank": Number(
        "rank 0",
        "another token is likelier",
        "the model's first choice",
        "Whether no token is likelier than the text's own.",
    ),
}


def page(facts: Mapping[str, str], shown: Mapping[str, Any]) -> str:
    """The whole page.

    Args:
        facts: what its head says, by name.
        shown: what `detection.view.shown.show` gives.
    """
    said = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(fact)}</dd></div>"
        for name, fact in facts.items()
    )
    numbers = {
        name: {**asdict(number), "full": full}
        for name, number in NUMBERS.items()
        if (full := _full(name, shown["examples"]))
    }
    settings = {"numbers": numbers, "perUnit": PER_UNIT, "firstChoice": FIRST_CHOICE}
    return filled(
        _file("page.html"),
        {
            "title": html.escape(facts["model"]),
            "facts": said,
            "css": _file("page.css"),
            "data": script_json({**settings, **shown}),
            "js": _file("page.js"),
        },
    )


def _full(name: str, examples: list[dict[str, Any]]) -> float:
    """The |value| from which on the colour is full; 0 where no example has the number."""
    if name == "rank":
        return float(any(example["top"] for example in examples))
    found = [value for example in examples for value in example["numbers"].get(name, [])]
    return max(0.001, float(np.percentile(np.abs(found), FULL)) / PER_UNIT) if found else 0.0


def _file(name: str) -> str:
    return files("detection.view").joinpath(name).read_text(encoding="utf-8")

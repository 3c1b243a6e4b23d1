"""The page: one file with everything in it, that works from disk and without network."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contamination.core.errors import ConfigError
from contamination.core.report.html import filled, script_json
from contamination.core.seeds import derive
from contamination.data.texts import Text, Texts
from contamination.detection.flags import unranked
from contamination.detection.methods._shared import standardised
from contamination.detection.methods.infilling import Infilling
from contamination.detection.methods.reference import REFERENCE
from contamination.detection.pass_store import ByText
from contamination.detection.passes import ORIGINAL, Example, Pass, TokenStats
from contamination.detection.requirements import Methods
from contamination.detection.scores import judged, seen

KINDS = {True: "member", False: "non-member", None: "no label"}


def chosen(examples: Texts, count: int, ids: Sequence[str] | None, seed: int) -> list[Text]:
    """Those of the ids, in their order, or up to `count` of each kind, drawn at random.

    A draw does not depend on the order of the examples, and a larger one holds the smaller. It is
    sorted by kind, benchmark and id.

    Raises:
        ConfigError: an id that no example has.
    """
    if ids is None:
        ordered = examples.take(examples.order("example_id"))
        return [text for label in KINDS for text in _drawn(ordered, label, count, seed)]
    place_of = {name: i for i, name in enumerate(examples.column("example_id").to_pylist())}
    for name in ids:
        if name not in place_of:
            raise ConfigError(
                f"view.ids names {name!r}, which is no example's id. The ids are such as "
                f"{', '.join(list(place_of)[:3])}."
            )
    return [examples[place_of[name]] for name in ids]


def _drawn(examples: Texts, label: bool | None, count: int, seed: int) -> list[Text]:
    labels = examples.column("label").to_pylist()
    places = [place for place, own in enumerate(labels) if own is label]
    rng = np.random.default_rng(derive(seed, "view", KINDS[label]))
    drawn = [examples[place] for place in rng.permutation(places)[:count]]
    return sorted(drawn, key=lambda text: (text.benchmark, text.example_id))


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
        shown: what `detection.viewer.page.show` gives.
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
    return files(__package__).joinpath(name).read_text(encoding="utf-8")

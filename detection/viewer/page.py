"""Builds the web page: a single file that works from disk and without a network."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contamination.core.errors import ConfigError
from contamination.core.report.html import fill_html_template, json_for_script
from contamination.core.seeds import derive_seed
from contamination.data.texts import Text, Texts
from contamination.detection.flags import reason_unranked
from contamination.detection.methods._shared import standardised_logprobs
from contamination.detection.methods.infilling import Infilling
from contamination.detection.methods.info_rmia import InfoRmia
from contamination.detection.methods.reference import REFERENCE
from contamination.detection.pass_store import StatsByText
from contamination.detection.passes import ORIGINAL, Example, Pass, TokenStats
from contamination.detection.requirements import Methods
from contamination.detection.scores import example_seen_by, score_and_flag

KINDS = {True: "member", False: "non-member", None: "no label"}
"""The kind of an example, by its label."""


def select_examples(
    examples: Texts, count: int, ids: Sequence[str] | None, seed: int
) -> list[Text]:
    """Returns the examples with these ids, in their order, or a random sample of each kind.

    A sample does not depend on the order of the examples, and a larger one includes the smaller
    one. It is sorted by kind, benchmark and id.

    Args:
        examples: the examples to choose from.
        count: the size of each kind's sample, at most.
        ids: the ids; None for a sample.
        seed: the seed of the sample.

    Raises:
        ConfigError: no example has one of the ids.
    """
    if ids is None:
        ordered = examples.take(examples.sorting_indices("example_id"))
        return [text for label in KINDS for text in _sample_with_label(ordered, label, count, seed)]
    index_by_id = {id_: i for i, id_ in enumerate(examples.column("example_id").to_pylist())}
    for example_id in ids:
        if example_id not in index_by_id:
            raise ConfigError(
                f"view.ids contains {example_id!r}, which is not the id of an example. Some "
                f"of the ids are {', '.join(list(index_by_id)[:3])}."
            )
    return [examples[index_by_id[example_id]] for example_id in ids]


def _sample_with_label(examples: Texts, label: bool | None, count: int, seed: int) -> list[Text]:
    labels = examples.column("label").to_pylist()
    indices = [index for index, value in enumerate(labels) if value is label]
    rng = np.random.default_rng(derive_seed(seed, "view", KINDS[label]))
    sample = [examples[index] for index in rng.permutation(indices)[:count]]
    return sorted(sample, key=lambda text: (text.benchmark, text.example_id))


PER_UNIT = 1000
"""Numbers are stored as integer thousandths, which are short and exact to 3 digits."""
FIRST_CHOICE = -1
"""Replaces the id of the likeliest token if that is the text's own token."""


@dataclass(frozen=True)
class StoredResults:
    """The stored data that the page is made from.

    Attributes:
        tokenizer: the target's tokenizer.
        passes: the stored passes, including the target's over the original text.
        methods: the methods whose passes are all stored, by name and variant.
        min_scored_tokens: texts with fewer scored tokens are not ranked.
        occurrences: the occurrences of a corpus's examples, by id.
    """

    tokenizer: Any
    passes: Mapping[Pass, StatsByText]
    methods: Methods
    min_scored_tokens: int
    occurrences: Mapping[str, int]


def page_data(texts: Sequence[Text], stored: StoredResults) -> dict[str, Any]:
    """Returns the page's data: the examples in order, and the texts of the likeliest tokens."""
    by_hash = sorted(range(len(texts)), key=lambda i: texts[i].sha256)  # the order of stored passes
    example_by_index = {index: _example_data(texts[index], stored) for index in by_hash}
    examples = [example_by_index[index] for index in range(len(texts))]
    ids = {id_ for example in examples for id_ in example["top"] if id_ != FIRST_CHOICE}
    text_by_token_id = {str(id_): stored.tokenizer.decode([id_]) for id_ in sorted(ids)}
    return {"examples": examples, "words": text_by_token_id}


def split_at_tokens(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yields the text of each token, then the text after the last; joined, they are the text.

    A token's text reaches from the end of the tokens before it to its own end. So white space that
    a tokenizer drops belongs to the token after it, and a character of several tokens to the first.

    Args:
        text: the text.
        spans: the start and the end of each token, in characters.
    """
    start = 0
    for _, end in spans:
        yield text[start:end]
        start = max(start, end)
    yield text[start:]


def token_numbers_by_name(example: Example, methods: Methods) -> dict[str, NDArray[Any]]:
    """Returns the numbers of each scored token, by name.

    They are computed by the methods, which cite the equations. The last tokens may lack a number,
    and numbers whose passes are not stored are left out.
    """
    stats = example.stats(ORIGINAL)
    columns: dict[str, NDArray[Any]] = {"logprob": stats.logprob}
    if {"mean", "std"} <= vars(stats).keys():  # a served model has none
        columns["z"] = standardised_logprobs(stats)
    infilling = next((m for m in methods.values() if isinstance(m, Infilling)), None)
    if infilling is not None:
        columns["ratio"] = infilling.ratio_by_token(example)
    info_rmia = next((m for m in methods.values() if isinstance(m, InfoRmia)), None)
    if info_rmia is not None:
        columns["gain"] = info_rmia.score_by_token(example)
    if REFERENCE in example.copies:
        reference = example.stats(REFERENCE).logprob
        shared_length = min(len(stats), len(reference))  # texts may be cut at the models' contexts
        columns["difference"] = stats.logprob[:shared_length] - reference[:shared_length]
    return columns


def _example_data(text: Text, stored: StoredResults) -> dict[str, Any]:
    copies = {stored_pass: by_text[text.sha256] for stored_pass, by_text in stored.passes.items()}
    example = Example(text.example_id, text.text, copies)
    stats = example.stats(ORIGINAL)
    encoding = stored.tokenizer(text.text, return_offsets_mapping=True, verbose=False)
    ids = np.array(encoding["input_ids"][1 : len(stats) + 1])
    scores, flag_texts = _scores_and_flags(text, stored, len(stats))
    numbers = token_numbers_by_name(example, stored.methods)
    return {
        "id": text.example_id,
        "kind": KINDS[text.label],
        "benchmark": text.benchmark,
        "occurrences": stored.occurrences.get(text.example_id),
        "tokens": [*split_at_tokens(text.text, encoding["offset_mapping"])],
        "top": _likeliest_token_ids(stats, ids),
        "numbers": {name: _to_thousandths(values) for name, values in numbers.items()},
        "scores": scores,
        "flags": flag_texts,
    }


def _likeliest_token_ids(stats: TokenStats, ids: NDArray[Any]) -> list[int]:
    """Returns the likeliest token at each position, or FIRST_CHOICE; empty if not stored."""
    if "top_id" not in vars(stats):
        return []
    top_ids: list[int] = np.where(stats.top_id == ids, FIRST_CHOICE, stats.top_id).tolist()
    return top_ids


def _scores_and_flags(
    text: Text, stored: StoredResults, scored: int
) -> tuple[dict[str, float], list[str]]:
    scores, flags = {}, {}
    unranked_flag = reason_unranked(text.text, scored, stored.min_scored_tokens)
    for (name, variant), method in stored.methods.items():
        example, score_label = (
            example_seen_by(method, text, stored.passes),
            f"{name} {variant}".strip(),
        )
        scores[score_label], flag = score_and_flag(method, example, unranked_flag)
        flags[flag if unranked_flag else f"{name}: {flag}"] = flag
    return scores, [flag_text for flag_text, flag in flags.items() if flag]


def _to_thousandths(values: NDArray[Any]) -> list[int]:
    rounded: list[int] = np.rint(values.astype(np.float64) * PER_UNIT).astype(np.int64).tolist()
    return rounded


FULL_COLOUR_PERCENTILE = 98
"""The percentile of all tokens' |value| that gets the full colour, as do larger values."""


@dataclass(frozen=True)
class NumberLegend:
    """The legend of a per-token number.

    Attributes:
        title: the number's name.
        low: the label of the lower end.
        high: the label of the upper end.
        meaning: a sentence that defines it.
    """

    title: str
    low: str
    high: str
    meaning: str


NUMBERS = {
    "logprob": NumberLegend(
        "log p",
        "unexpected",
        "certain",
        "The log-probability of the token after those before it, in nats.",
    ),
    "z": NumberLegend(
        "z",
        "less likely than usual",
        "likelier than usual",
        "z = (log p − μ) / σ: log p relative to its mean and standard deviation under the model's "
        "own distribution, as in Min-K%++.",
    ),
    "ratio": NumberLegend(
        "infilling r",
        "fits worse than the first choice",
        "fits better",
        "How well the token and the following tokens fit, compared with the model's first choice "
        "in its place (Infilling Score); 0 if the token is the first choice.",
    ),
    "difference": NumberLegend(
        "model − reference",
        "less likely than for the reference",
        "likelier than for the reference",
        "log p of the model minus log p of the reference, in nats.",
    ),
    "gain": NumberLegend(
        "InfoRMIA s",
        "less gained than by other tokens",
        "more gained than by other tokens",
        "log p of the model less that of the reference, above the mean of what the reference would "
        "have written there, in nats (InfoRMIA).",
    ),
    "rank": NumberLegend(
        "rank 0",
        "another token is likelier",
        "the model's first choice",
        "Whether no token is likelier than the text's own.",
    ),
}


def render_page(facts: Mapping[str, str], data: Mapping[str, Any]) -> str:
    """Returns the HTML of the page.

    Args:
        facts: the entries of its head, by name.
        data: the result of `page_data`.
    """
    fact_list = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(fact)}</dd></div>"
        for name, fact in facts.items()
    )
    legends = {
        name: {**asdict(legend), "full": full}
        for name, legend in NUMBERS.items()
        if (full := _full_colour_value(name, data["examples"]))
    }
    settings = {"numbers": legends, "perUnit": PER_UNIT, "firstChoice": FIRST_CHOICE}
    return fill_html_template(
        _read_package_file("page.html"),
        {
            "title": html.escape(facts["model"]),
            "facts": fact_list,
            "css": _read_package_file("page.css"),
            "data": json_for_script({**settings, **data}),
            "js": _read_package_file("page.js"),
        },
    )


def _full_colour_value(name: str, examples: list[dict[str, Any]]) -> float:
    """Returns the smallest |value| with the full colour; 0 if no example has the number."""
    if name == "rank":
        return float(any(example["top"] for example in examples))
    values = [value for example in examples for value in example["numbers"].get(name, [])]
    if not values:
        return 0.0
    percentile = float(np.percentile(np.abs(values), FULL_COLOUR_PERCENTILE))
    return max(0.001, percentile / PER_UNIT)


def _read_package_file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")

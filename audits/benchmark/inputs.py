"""The texts of an audit: the questions, and what they are compared with.

There are three comparisons. `fresh` questions of the same making cannot have leaked. `versions` are
other wordings of the same questions, made in the same way, of which the published one was drawn at
random (Rastogi et al. 2025, arXiv 2504.13416). The `order` of the questions in the published file
is compared with random orders of the same questions (Oren et al. 2023, arXiv 2310.17623).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from contamination.audits.benchmark.origin import design_of
from contamination.core.errors import DataError, UserError, require
from contamination.data.config import ExamplesConfig
from contamination.data.examples import check_ids_and_benchmarks, make_text
from contamination.data.texts import Text, Texts
from contamination.detection.examples import open_examples

FRESH, VERSIONS, ORDER = "fresh questions", "other versions", "random orders"
SHARDS, ORDERS = 20, 20
"""Shards of the order test, and orders per shard, the published one included."""
SEPARATOR = "\n\n"
"""Between the questions of a shard."""
MAX_TOKENS = 2_048
"""The most tokens of a shard."""


def read_texts(field: str, given: Any, examples: ExamplesConfig) -> Texts:
    """Returns the texts of a file, or those that a Python program gives.

    Raises:
        UserError: they cannot be read or used; the error names `field`.
    """
    remedy = "give a format string, or the name of a benchmark."
    is_text = examples.template is None or isinstance(examples.template, str)
    require(is_text, "audit.template", examples.template, remedy)
    is_mapping = isinstance(examples.columns, Mapping)
    require(is_mapping, "audit.columns", examples.columns, "give names by field: {text: body}.")
    if isinstance(given, Texts):
        return given
    with naming_fields_in_errors(field, "audit."):
        return open_examples(replace(examples, path=str(given)))


@contextmanager
def naming_fields_in_errors(field: str, prefix: str = "") -> Iterator[None]:
    """Makes errors of reading texts name the audit's fields.

    Args:
        field: the field or argument that gives the texts.
        prefix: what stands before `template` and the like.
    """
    patterns = {
        r"^texts\b(?!\.)|\btexts(?=\[)|\bexamples\.path\b": field,
        r", or set (?:examples\.)?on_error=skip to leave such input out and count it": "",
        r"Give it with examples\.format=\S+": "Give a .csv, .tsv, .jsonl or .parquet file.",
        r"\bexamples\.(?=(?:template|columns|separator|limit)\b)": prefix,
    }
    try:
        yield
    except UserError as error:
        message = str(error)
        for pattern, name in patterns.items():
            message = re.sub(pattern, name.replace("\\", r"\\"), message)
        if "invalid UTF-8" in message:
            message = message.replace("Fix it.", "Save the file as UTF-8.")
        error.args = (message,)
        raise


def without_empty_texts(texts: Texts, control: str) -> tuple[Texts, list[str]]:
    """Returns the texts that are not blank, and a note if some are.

    Without its question a version has nothing to be compared with, and is left out as well.

    Raises:
        DataError: no question is left.
    """
    kept = texts.take(np.flatnonzero([bool(text.strip()) for text in _column(texts, "text")]))
    if len(kept) == len(texts):
        return texts, []
    if control == VERSIONS:
        kept = kept.take(np.flatnonzero(design_of(kept).is_in_mixed_cluster))
    if not any(text.label or control == ORDER for text in kept):
        raise DataError("audit.questions: each is blank. Give texts.")
    number = len(texts) - len(kept)
    return kept, [f"Texts left out because they, or all to compare with, are blank: {number}."]


def questions_alone(questions: Texts) -> Texts:
    """Returns the questions, labelled."""
    return _joined(_labelled("question", questions, True))


def questions_and_fresh(questions: Texts, fresh: Texts) -> Texts:
    """Returns both, labelled; clusters are kept, so that a sibling may name its question's.

    Raises:
        DataError: a text is on both sides.
    """
    known = dict(zip(_column(questions, "sha256"), _column(questions, "example_id"), strict=True))
    for text in fresh:
        if text.sha256 in known:
            raise DataError(
                f"audit.fresh: its text {text.example_id} is also the question "
                f"{known[text.sha256]}, so it is not fresh. Leave it out of one of the two files."
            )
    return _joined(_labelled("question", questions, True), _labelled("fresh", fresh, False))


def questions_and_versions(questions: Texts, versions: Texts) -> Texts:
    """Returns both, labelled; a version's cluster, or else its id, is its question's id.

    Raises:
        DataError: a version belongs to no question, or a question has no version.
    """
    ids = {*_column(questions, "example_id")}
    question_of = [version.cluster or version.example_id for version in versions]
    unknown = [name for name in question_of if name not in ids]
    if unknown:
        raise DataError(
            f"audit.versions: no question has the id {unknown[0]!r}. Give each version the "
            "column `cluster` with the id of its question."
        )
    alone = sorted(ids - {*question_of})
    if alone:
        raise DataError(
            f"audit.versions: {len(alone)} questions have no version, such as {alone[0]!r}. Give "
            "each question at least one."
        )
    benchmark = {question.example_id: question.benchmark for question in questions}
    labelled = (
        replace(
            text, example_id=f"version/{number}/{name}", label=False, cluster=name,
            benchmark=benchmark[name],
        )
        for number, (text, name) in enumerate(zip(versions, question_of, strict=True))
    )  # fmt: skip
    originals = (replace(text, cluster=text.example_id) for text in questions)
    return _joined(_labelled("question", originals, True), labelled)


def published_and_random_orders(
    questions: Texts, tokenizer: Any, context: int | None, seed: int
) -> tuple[Texts, str]:
    """Returns shards of consecutive questions, each in the published order and in random ones.

    Also returns a note on the questions that are in no shard, or "" if each is in one.

    Raises:
        DataError: fewer than two questions fit into the model's context.
    """
    limit = min(MAX_TOKENS, context or MAX_TOKENS)
    strings = _column(questions, "text")
    tokens = [len(ids) + 2 for ids in tokenizer(strings, verbose=False)["input_ids"]]
    per_shard = max(2, -(-len(strings) // SHARDS))
    rng = np.random.default_rng(seed)
    shards = [*_shards(tokens, per_shard, limit)]
    if not shards:
        raise DataError(
            f"audit.order: no two consecutive questions fit into the model's context of {limit} "
            "tokens. Give fresh questions instead."
        )
    rows = []
    for number, places in enumerate(shards):
        orders = [places, *(rng.permutation(places).tolist() for _ in range(ORDERS - 1))]
        for order, permuted in enumerate(orders):
            text = SEPARATOR.join(strings[i] for i in permuted)
            name, cluster = f"shard {number}/order {order}", f"shard {number}"
            rows.append(replace(make_text(name, text, order == 0, ""), cluster=cluster))
    return Texts.of(rows), _note_on_unused(tokens, shards, limit)


def _note_on_unused(tokens: Sequence[int], shards: Sequence[Sequence[int]], limit: int) -> str:
    used = sum(map(len, shards))
    if used == len(tokens):
        return ""
    too_long = sum(size > limit for size in tokens)
    return (
        f"The order test uses {used} of {len(tokens)} questions, in {len(shards)} shards. Left out "
        f"are those longer than the model's context of {limit} tokens ({too_long}) and those left "
        f"without a neighbour that fits into it with them ({len(tokens) - used - too_long})."
    )


def _shards(tokens: Sequence[int], per_shard: int, limit: int) -> Iterator[list[int]]:
    """Yields the places of consecutive questions: up to `per_shard` that fit the context."""
    shard: list[int] = []
    for place, size in enumerate(tokens):
        if len(shard) == per_shard or sum(tokens[i] for i in shard) + size > limit:
            if len(shard) > 1:
                yield shard
            shard = []
        if size <= limit:
            shard.append(place)
    if len(shard) > 1:
        yield shard


def _labelled(side: str, texts: Iterable[Text], label: bool) -> Iterator[Text]:
    for text in texts:
        yield replace(text, example_id=f"{side}/{text.example_id}", label=label)


def _joined(*sides: Iterable[Text]) -> Texts:
    return check_ids_and_benchmarks("audit", Texts.of(text for side in sides for text in side))


def _column(texts: Texts, name: str) -> list[Any]:
    values: list[Any] = texts.column(name).to_pylist()
    return values
